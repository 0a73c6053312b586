//! The contents of a profile file, with ids converted to indices, and the counters at a reset.

use std::path::PathBuf;
use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::FileHeader;
use rustc_hash::FxHashMap;

use super::accounts::Account;
use super::annotations::Named;
use super::python::PythonLine;
use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;
use crate::model::retained::{Kept, Search};
use crate::model::{EventExtent, Measures, Moved, Searched};

/// The contents of one profile file, with ids converted to indices.
#[derive(Debug)]
pub struct Profile {
    /// The file's header.
    pub header: FileHeader,
    /// How much is recorded.
    pub mode: format::Mode,
    /// Path of the program.
    pub program: String,
    /// Its arguments.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// The parallel job's name.
    pub job: String,
    /// Modules in order of the file.
    pub modules: Vec<Module>,
    /// Distinct places in code.
    pub places: Vec<Place>,
    /// Lines of Python functions.
    pub python: Vec<PythonLine>,
    /// Nodes of the stack tree, parents first.
    pub nodes: Vec<Node>,
    /// Nodes of generated code, in order: the index, and the flags with the time at which the node
    /// was created.
    pub made: Vec<(u32, u32)>,
    /// Lanes in order of their index.
    pub lanes: Vec<format::Lane>,
    /// Threads that had a lane before its last one, in order.
    pub former_threads: Vec<format::FormerThread>,
    /// Counters of each stack, scope path, label and lane.
    pub sites: Vec<Site>,
    /// Names, scopes, windows and marks; empty in version 1.
    pub named: Named,
    /// Accounts of resident memory in order of time.
    pub accounts: Vec<Account>,
    /// Samples in order of time.
    pub timeline: Vec<format::Sample>,
    /// Bounds of live bytes in order of time.
    pub spans: Vec<format::Span>,
    /// Indices of nodes by their id, if frees have stacks.
    pub(crate) node_ids: Option<SparseArray>,
    /// Extents of events, whose contents are not read here.
    pub(crate) events: Vec<EventExtent>,
    /// Counters at the last reset; `None` if counters start at the start of the program.
    pub before: Option<Box<Before>>,
    /// The sites at the peak before the last reset, if that peak counts.
    pub(crate) earlier_peak: Option<Box<EarlierPeak>>,
    /// What was live when Python began to end, if that was requested.
    pub(crate) held: Option<Box<Held>>,
    /// A search for what keeps its blocks, or why that failed; `None` if there was none.
    pub(crate) search: Option<Result<Arc<Search>, String>>,
    /// Which blocks were lost then, if that was requested and is known.
    pub(crate) lost: Option<Box<Lost>>,
    /// Mappings, if any were recorded.
    pub mapped: Option<Box<MappedProfile>>,
    /// Device memory, if any was recorded.
    pub device: Option<Box<MappedProfile>>,
    /// Whether its tables have a row for each site, and [`crate::model::SiteRows`].
    pub(crate) is_followed: bool,
    /// Whether a part of the file is missing.
    pub(crate) is_cut: bool,
    /// Restrictions of completeness, for people.
    pub notes: Vec<String>,
}

/// The sites of the baseline, whose peak was higher than that since the reset.
#[derive(Debug)]
pub(crate) struct EarlierPeak {
    /// The number of that peak.
    pub(crate) epoch: u32,
    /// The sites by their ids.
    pub(crate) sites: FxHashMap<u32, Site>,
}

/// What a Python program held when its interpreter began to end.
#[derive(Debug)]
pub(crate) struct Held {
    /// Nanoseconds from the start of the process.
    pub(crate) time_ns: u64,
    /// The sites at that time, by their ids.
    pub(crate) sites: FxHashMap<u32, Site>,
}

impl Held {
    /// Makes the live blocks of a site those of that time, unless more are live now.
    pub(crate) fn add_to(
        &self,
        id: u32,
        measures: &mut Measures,
        measures_of: impl Fn(&Site) -> Measures,
    ) {
        if let Some(held) = self.sites.get(&id).map(measures_of)
            && held.live_bytes > measures.live_bytes
        {
            measures.live_blocks = held.live_blocks;
            measures.live_bytes = held.live_bytes;
        }
    }
}

/// The blocks of a program that no pointer led to when it ended.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// When that was found; `None` if the process was not searched.
    pub(crate) searched: Option<Searched>,
    /// The blocks of each site that has some, by its id.
    pub(crate) sites: FxHashMap<u32, Kept>,
}

impl Lost {
    /// Makes the live blocks of a site those that were lost.
    pub(crate) fn replace(&self, id: u32, measures: &mut Measures) {
        let Kept { blocks, bytes } = self.sites.get(&id).copied().unwrap_or_default();
        (measures.live_blocks, measures.live_bytes) = (blocks, bytes);
    }
}

/// A kind of memory outside the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Mapped,
    Device,
}

/// The records of a profile about mappings, or about device memory.
#[derive(Debug, Default)]
pub struct MappedProfile {
    /// Counters of each stack, scope path, lane and kind of memory.
    pub sites: Vec<Site>,
    /// Counters of lanes; lanes without such memory are missing.
    pub lanes: Vec<format::Lane>,
    /// Samples in order of time.
    pub timeline: Vec<format::Sample>,
    /// Changes in order of time.
    pub changes: Vec<format::MappedChange>,
    /// Names of mapped files by the reference of their string.
    pub files: FxHashMap<u32, Arc<str>>,
}

impl Profile {
    /// Returns whether it has counters of stacks or scopes, not only of lanes.
    pub(crate) fn has_sites(&self) -> bool {
        self.mode != format::Mode::Counters
    }

    /// Returns the maximum number of bytes that threads may have allocated without publishing them,
    /// and so without recording a peak: each thread publishes after at most [`format::PEAK_BATCH`]
    /// bytes.
    pub(crate) fn unpublished_bytes(&self) -> u64 {
        match u64::from(self.header.lanes_at_once) {
            0 | 1 => 0,
            lanes => lanes * format::PEAK_BATCH,
        }
    }

    /// Returns whether inconsistent tables are caused by events that were being counted: the
    /// process may have been active, and no part of the file is missing. Version 1 had other
    /// tables.
    pub(crate) fn may_be_reconciled(&self) -> bool {
        let at_rest = self.header.end_kind == format::End::Exited as u32;
        let alone = self.header.lanes_at_once <= 1;
        self.header.version > 1 && !self.is_cut && !(at_rest && alone)
    }
}

/// A loaded file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its path as bytes, which need not be UTF-8.
    pub path: PathBuf,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Address minus link-time address.
    pub bias: u64,
    /// GNU build-id, empty if none.
    pub build_id: Vec<u8>,
    /// Whether it was unloaded.
    pub unloaded: bool,
}

/// A place in code, to be resolved to a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Index into [`Profile::modules`], [`NO_MODULE`] or [`PYTHON`].
    pub module: u32,
    /// Link-time address of the call in the module; without a module the address itself or a
    /// marker. For a Python frame, the index into [`Profile::python`].
    pub offset: u64,
    /// Whether it is a frame of the interpreter that executes the Python frames below it.
    pub is_interpreter: bool,
}

/// [`Place::module`] of code without a file and of markers.
pub const NO_MODULE: u32 = u32::MAX;
/// [`Place::module`] of Python frames.
pub const PYTHON: u32 = u32::MAX - 1;

impl Place {
    /// Returns whether it is in the code of a module.
    pub fn has_module(&self) -> bool {
        self.module < PYTHON
    }
}

/// A node of the stack tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Index of the caller, which is smaller than its own; none for an outermost frame.
    pub parent: OptionalIndex,
    /// Index into [`Profile::places`].
    pub place: u32,
}

/// The counters of one stack, scope path, label and lane.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The record's id in the file.
    pub id: u32,
    /// Index of the innermost frame's node; none without a stack.
    pub node: OptionalIndex,
    /// Index into [`Named::scopes`]; none for no scope.
    pub scope: OptionalIndex,
    /// Index into [`Named::names`], of the label or pool.
    pub label: OptionalIndex,
    /// Index of the allocating lane as in the file; its record may be missing.
    pub lane: u32,
    /// Index of the lane that counts it, which differs if another lane labelled its blocks.
    pub owner: u32,
    /// Its key's `KEY_` flags.
    pub flags: u32,
    /// Bytes requested for each block, with [`format::KEY_SIZED`]; the packed kind of a mapping,
    /// with [`format::KEY_MAPPING`].
    pub size: u64,
    /// Blocks moved here by labels: number, usable and requested bytes.
    pub moved: [u64; 3],
    /// Bytes lent to blocks of a pool; of weighted counters the number of sampled blocks that
    /// labels moved here.
    pub lent_bytes: i64,
    /// The record.
    pub counters: format::Site,
    /// Whether the record is a [`format::SampledSite`], which has the same size.
    pub is_weighted: bool,
}

impl Site {
    /// Returns the record.
    pub(crate) fn record(&self) -> SiteRecord<'_> {
        SiteRecord { counters: &self.counters, is_weighted: self.is_weighted }
    }
}

/// A record of a site, whose counters are weighted or not.
#[derive(Clone, Copy)]
pub(crate) struct SiteRecord<'a> {
    /// The record; weighted ones have the layout of [`format::SampledSite`].
    pub(crate) counters: &'a format::Site,
    /// Whether it is a [`format::SampledSite`].
    pub(crate) is_weighted: bool,
}

/// Counters at the last reset.
#[derive(Debug)]
pub struct Before {
    /// A description of the event: a reset or a snapshot, and its time.
    pub(super) since: String,
    pub(super) sites: FxHashMap<u32, Site>,
    pub(super) lanes: FxHashMap<u32, format::Lane>,
    /// Counters of mappings by lane, and of device memory.
    pub(super) mapped_lanes: FxHashMap<u32, format::Lane>,
    pub(super) device_lanes: FxHashMap<u32, format::Lane>,
}

impl Before {
    /// Returns a description of the covered part, for people.
    pub(crate) fn says(&self) -> String {
        format!("since {}", self.since)
    }

    /// Returns the counters of mappings, or of device memory, whose sites have ids of their own.
    pub(crate) fn of_space(&self, space: Space) -> Before {
        let lanes = match space {
            Space::Mapped => &self.mapped_lanes,
            Space::Device => &self.device_lanes,
        };
        let [mapped_lanes, device_lanes] = [FxHashMap::default(), FxHashMap::default()];
        let (since, sites, lanes) = (self.since.clone(), self.sites.clone(), lanes.clone());
        Before { since, sites, lanes, mapped_lanes, device_lanes }
    }

    /// Returns the earlier counters of a site.
    pub(crate) fn site(&self, id: u32) -> Option<&Site> {
        self.sites.get(&id)
    }

    /// Subtracts the earlier counters of a site; `measures_of` converts a record to a row.
    pub(crate) fn take_off_site(
        &self,
        id: u32,
        measures: &mut Measures,
        moved: &mut Moved,
        measures_of: impl Fn(&Site) -> Measures,
    ) {
        let Some(site) = self.sites.get(&id) else {
            return;
        };
        measures.subtract_counters(&measures_of(site));
        let [blocks, usable_bytes, requested_bytes] = site.moved;
        moved.blocks = moved.blocks.saturating_sub(blocks);
        moved.usable_bytes = moved.usable_bytes.saturating_sub(usable_bytes);
        moved.requested_bytes = moved.requested_bytes.saturating_sub(requested_bytes);
    }

    /// Subtracts the earlier counters of a lane, for profiles with lanes only.
    pub(crate) fn take_off_lane(
        &self,
        index: u32,
        measures: &mut Measures,
        measures_of: impl Fn(&format::Lane) -> Measures,
    ) {
        if let Some(lane) = self.lanes.get(&index) {
            measures.subtract_counters(&measures_of(lane));
        }
    }

    /// Returns the lanes minus their earlier counters, for size classes and their bytes.
    pub(crate) fn counts(&self, lanes: &[format::Lane]) -> Vec<format::Lane> {
        let mut lanes = lanes.to_vec();
        for lane in &mut lanes {
            let Some(was) = self.lanes.get(&lane.index) else {
                continue;
            };
            let less = |is: &mut [u64; format::SIZE_CLASSES], was: &[u64; format::SIZE_CLASSES]| {
                is.iter_mut().zip(was).for_each(|(is, was)| *is = is.saturating_sub(*was));
            };
            less(&mut lane.requested_classes, &was.requested_classes);
            less(&mut lane.usable_classes, &was.usable_classes);
            less(&mut lane.freed_classes, &was.freed_classes);
            lane.requested_bytes = lane.requested_bytes.saturating_sub(was.requested_bytes);
            lane.usable_bytes = lane.usable_bytes.saturating_sub(was.usable_bytes);
        }
        lanes
    }
}
