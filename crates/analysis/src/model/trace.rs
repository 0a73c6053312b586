//! The trace of a process image, not read yet, and what its ids are in the tables of the process.

use std::path::PathBuf;

use heaptide_format::TraceStart;
use rustc_hash::FxHashMap;

use super::ids::{LaneId, ScopeId, StackId};
use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;

/// An extent of events as it was when the profile was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventExtent {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Bytes of it that were in use.
    pub(crate) committed: u64,
    /// The lane that writes it.
    pub(crate) lane: u32,
    /// What it began with.
    pub(crate) start: TraceStart,
}

/// The trace of one process image, not read yet, and what its ids are in the tables of the process.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The profile.
    pub(crate) file: PathBuf,
    /// When the recorder stopped it for want of room, nanoseconds from the image's start.
    pub(crate) stopped_ns: Option<u64>,
    /// The bound of the recording's traces, in bytes.
    pub(crate) limit_bytes: Option<u64>,
    /// Events before this are not given: figures were reset then.
    pub(crate) since_ns: u64,
    /// Nanoseconds from the start of the process that it was joined to.
    pub(crate) after_ns: u64,
    /// When the image ended, nanoseconds from its start, as far as that is known.
    pub(crate) end_ns: u64,
    /// Whether the image ran when its profile was read: what came later is not in the tables.
    pub(crate) running: bool,
    /// Whether each begin and end of a scope has a record.
    pub(crate) has_scopes: bool,
    /// The extents as they were then.
    pub(crate) extents: Vec<EventExtent>,
    /// Index of a site.
    pub(crate) sites: SparseArray,
    /// Index of the lane that counts what happens at a site.
    pub(crate) owners: SparseArray,
    /// A scope, by the slot of its index: scope 0 is none.
    pub(crate) scopes: SparseArray,
    /// A stack, likewise.
    pub(crate) stacks: SparseArray,
    pub(crate) lanes: FxHashMap<u32, LaneId>,
    /// Index of a shape.
    pub(crate) shapes: SparseArray,
    /// Labellings in the image: they have the first numbers.
    pub(crate) labellings: u64,
    /// What the image counted, to its end: allocations, frees, usable bytes that are live.
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    pub(crate) live_bytes: u64,
}

impl Trace {
    /// Index into the sites of the process; none of a site that is not there any more.
    #[inline]
    pub(crate) fn site(&self, id: u32) -> Option<u32> {
        self.sites.get(id).get()
    }

    /// Whether a lane counts what happens at a site.
    #[inline]
    pub(crate) fn is_counted_by(&self, lane: u32, site: u32) -> bool {
        self.owners.get(site) == OptionalIndex::from_index(lane)
    }

    pub(crate) fn scope(&self, id: u32) -> ScopeId {
        ScopeId(self.scopes.get(id).slot() as u32)
    }

    pub(crate) fn stack(&self, id: u32) -> StackId {
        StackId(self.stacks.get(id).slot() as u32)
    }

    pub(crate) fn lane(&self, index: u32) -> Option<LaneId> {
        self.lanes.get(&index).copied()
    }

    /// Sites have new indices; none for what is left out.
    pub(crate) fn move_sites(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.sites.change(|index| {
            let new = index.get().and_then(&new);
            new.map_or(OptionalIndex::NONE, OptionalIndex::from_index)
        });
    }

    /// Scopes have new ids.
    pub(crate) fn move_scopes(&mut self, new: impl Fn(ScopeId) -> ScopeId) {
        self.scopes.change(|id| OptionalIndex::from_slot(new(ScopeId(id.slot() as u32)).0));
    }

    /// Index into the shapes of the process.
    pub(crate) fn shape(&self, id: u32) -> OptionalIndex {
        self.shapes.get(id)
    }

    /// Shapes have new indices; none for what is left out.
    pub(crate) fn move_shapes(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.shapes.change(|index| {
            let new = index.get().and_then(&new);
            new.map_or(OptionalIndex::NONE, OptionalIndex::from_index)
        });
    }

    /// Stacks have new ids.
    pub(crate) fn move_stacks(&mut self, new: impl Fn(StackId) -> StackId) {
        self.stacks.change(|id| OptionalIndex::from_slot(new(StackId(id.slot() as u32)).0));
    }

    /// Lanes have new ids.
    pub(crate) fn move_lanes(&mut self, new: impl Fn(LaneId) -> LaneId) {
        self.lanes.values_mut().for_each(|lane| *lane = new(*lane));
    }

    /// The stacks that frees may have.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.stacks.indices().map(|id| StackId(id.slot() as u32))
    }
}
