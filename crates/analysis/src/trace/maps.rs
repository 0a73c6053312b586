//! What the ids in a trace have become in the tables of its process, through every selection.

use std::path::{Path, PathBuf};

use heaptide_format as format;
use rustc_hash::FxHashMap;

use crate::collections::sparse_array::SparseArray;
use crate::model::{LaneId, Process, ScopeId, StackId};
use crate::profile::extents::EventExtent;
use crate::profile::reader::Profile;
use crate::recording::snapshot;

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
    /// The extents as they were then.
    pub(crate) extents: Vec<EventExtent>,
    /// Index plus one of a site.
    sites: SparseArray,
    /// Index plus one of the lane that counts what happens at a site.
    owners: SparseArray,
    scopes: SparseArray,
    stacks: SparseArray,
    lanes: FxHashMap<u32, LaneId>,
}

/// What a profile's records have become, for its trace.
pub(crate) struct Became<'a> {
    /// Index of each site.
    pub(crate) sites: &'a [Option<u32>],
    /// By index of the scope path plus one.
    pub(crate) scopes: &'a [ScopeId],
    /// By index of the node plus one.
    pub(crate) stacks: &'a [StackId],
    pub(crate) lanes: &'a FxHashMap<u32, LaneId>,
}

impl Trace {
    /// The trace of a profile in a file; none if events were not recorded.
    pub(crate) fn of(
        profile: &Profile,
        file: &Path,
        (running, end_ns): (bool, u64),
        became: &Became,
    ) -> Option<Trace> {
        let header = &profile.header;
        // What a snapshot is of has a trace, the snapshot has none.
        if header.trace & format::TRACE_ON == 0 || snapshot::numbers(file).is_some() {
            return None;
        }
        let mut trace = Trace {
            file: file.to_owned(),
            stopped_ns: Some(header.trace_stopped_ns).filter(|&ns| ns != 0),
            limit_bytes: Some(header.trace_limit).filter(|&bytes| bytes != 0),
            since_ns: if profile.before.is_some() { header.reset_time_ns } else { 0 },
            after_ns: 0,
            end_ns,
            running,
            extents: profile.events.clone(),
            sites: SparseArray::default(),
            owners: SparseArray::default(),
            scopes: SparseArray::default(),
            stacks: SparseArray::default(),
            lanes: became.lanes.clone(),
        };
        for (site, index) in profile.sites.iter().zip(became.sites) {
            index.iter().for_each(|index| trace.sites.set(site.id, index + 1));
            trace.owners.set(site.id, site.owner.wrapping_add(1));
        }
        for (path, scope) in profile.named.scopes.iter().zip(&became.scopes[1..]) {
            trace.scopes.set(path.id, scope.0);
        }
        if let Some(nodes) = &profile.node_ids {
            trace.stacks = nodes.clone();
            trace.stacks.change(|node| became.stacks[node as usize].0);
        }
        Some(trace)
    }

    /// Index into the sites of the process; none of a site that is not there any more.
    #[inline]
    pub(crate) fn site(&self, id: u32) -> Option<u32> {
        self.sites.get(id).checked_sub(1)
    }

    /// Whether a lane counts what happens at a site.
    #[inline]
    pub(crate) fn is_counted_by(&self, lane: u32, site: u32) -> bool {
        self.owners.get(site) == lane.wrapping_add(1)
    }

    pub(crate) fn scope(&self, id: u32) -> ScopeId {
        ScopeId(self.scopes.get(id))
    }

    pub(crate) fn stack(&self, id: u32) -> StackId {
        StackId(self.stacks.get(id))
    }

    pub(crate) fn lane(&self, index: u32) -> Option<LaneId> {
        self.lanes.get(&index).copied()
    }

    /// Sites have new indices; none for what is left out.
    pub(crate) fn move_sites(&mut self, new: impl Fn(u32) -> Option<u32>) {
        self.sites.change(|index| new(index - 1).map_or(0, |index| index + 1));
    }

    /// Scopes have new ids.
    pub(crate) fn move_scopes(&mut self, new: impl Fn(ScopeId) -> ScopeId) {
        self.scopes.change(|id| new(ScopeId(id)).0);
    }

    /// Stacks have new ids.
    pub(crate) fn move_stacks(&mut self, new: impl Fn(StackId) -> StackId) {
        self.stacks.change(|id| new(StackId(id)).0);
    }

    /// Lanes have new ids.
    pub(crate) fn move_lanes(&mut self, new: impl Fn(LaneId) -> LaneId) {
        self.lanes.values_mut().for_each(|lane| *lane = new(*lane));
    }

    /// The stacks that frees may have.
    pub(crate) fn stacks(&self) -> impl Iterator<Item = StackId> {
        self.stacks.numbers().map(StackId)
    }
}

impl Process {
    /// Whether its events were recorded, so that they can be replayed.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert!(!process.has_trace()); // recorded with --mode stacks
    /// ```
    pub fn has_trace(&self) -> bool {
        !self.traces.is_empty()
    }
}
