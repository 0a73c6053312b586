//! A reference to the trace of a process image, with the mapping of its ids to the tables of the
//! process. The events are not read yet.

use std::path::PathBuf;

use heaptide_format::TraceStart;
use rustc_hash::FxHashMap;

use super::ids::{LaneId, ScopeId, StackId};
use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;

/// An extent of events at the time at which the profile was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventExtent {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Bytes in use.
    pub(crate) committed: u64,
    /// The lane that writes it.
    pub(crate) lane: u32,
    /// The state at its start.
    pub(crate) start: TraceStart,
}

/// The trace of one process image, and the mapping of its ids to the tables of the process. Its
/// events are not read yet.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The path of the profile.
    pub(crate) file: PathBuf,
    /// When the recorder stopped the trace for lack of room, nanoseconds from the image's start.
    pub(crate) stopped_ns: Option<u64>,
    /// The size limit of all traces of the recording, in bytes.
    pub(crate) limit_bytes: Option<u64>,
    /// Earlier events are skipped: counters were reset at this time.
    pub(crate) since_ns: u64,
    /// Start of the image, in nanoseconds from the start of the process that it was joined to.
    pub(crate) after_ns: u64,
    /// When the image ended, nanoseconds from its start, as far as known.
    pub(crate) end_ns: u64,
    /// Whether the image was running when its profile was read. Later events are not in the tables.
    pub(crate) running: bool,
    /// Whether each begin and end of a scope has a record.
    pub(crate) has_scopes: bool,
    /// The extents at the time at which the profile was read.
    pub(crate) extents: Vec<EventExtent>,
    /// Index of a site, by its id.
    pub(crate) sites: SparseArray,
    /// Index of the lane that counts the events of a site.
    pub(crate) owners: SparseArray,
    /// Scope ids, as slots of an index: scope 0 is none.
    pub(crate) scopes: SparseArray,
    /// Stack ids, likewise.
    pub(crate) stacks: SparseArray,
    pub(crate) lanes: FxHashMap<u32, LaneId>,
    /// Index of a shape, by its id.
    pub(crate) shapes: SparseArray,
    /// Index of its first mark into the names of marks of the process, and the number of its marks.
    pub(crate) marks: (u32, u32),
    /// Number of labellings in the image; they have the lowest numbers.
    pub(crate) labellings: u64,
    /// Totals of the image up to its end: allocations, frees, usable bytes live.
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    pub(crate) live_bytes: u64,
}

impl Trace {
    /// Returns the index into the sites of the process; `None` for a site that was removed.
    #[inline]
    pub(crate) fn site(&self, id: u32) -> Option<u32> {
        self.sites.get(id).get()
    }

    /// Returns whether a lane counts the events of a site.
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

    /// Replaces the indices of sites; `new` returns `None` for sites that were removed.
    pub(crate) fn move_sites(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.sites.change(|index| {
            let new = index.get().and_then(&new);
            new.map_or(OptionalIndex::NONE, OptionalIndex::from_index)
        });
    }

    /// Replaces the ids of scopes.
    pub(crate) fn move_scopes(&mut self, new: impl Fn(ScopeId) -> ScopeId) {
        self.scopes.change(|id| OptionalIndex::from_slot(new(ScopeId(id.slot() as u32)).0));
    }

    /// Returns the index into the shapes of the process.
    pub(crate) fn shape(&self, id: u32) -> OptionalIndex {
        self.shapes.get(id)
    }

    /// Returns the index into the names of marks of the process.
    pub(crate) fn mark(&self, number: u32) -> Option<u32> {
        let (first, count) = self.marks;
        (1..=count).contains(&number).then(|| first + number - 1)
    }

    /// Replaces the indices of shapes; `new` returns `None` for shapes that were removed.
    pub(crate) fn move_shapes(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.shapes.change(|index| {
            let new = index.get().and_then(&new);
            new.map_or(OptionalIndex::NONE, OptionalIndex::from_index)
        });
    }

    /// Replaces the ids of stacks.
    pub(crate) fn move_stacks(&mut self, new: impl Fn(StackId) -> StackId) {
        self.stacks.change(|id| OptionalIndex::from_slot(new(StackId(id.slot() as u32)).0));
    }

    /// Replaces the ids of lanes.
    pub(crate) fn move_lanes(&mut self, new: impl Fn(LaneId) -> LaneId) {
        self.lanes.values_mut().for_each(|lane| *lane = new(*lane));
    }

    /// Returns the stacks that frees can have.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.stacks.indices().map(|id| StackId(id.slot() as u32))
    }
}
