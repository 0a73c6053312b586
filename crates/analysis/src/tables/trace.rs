//! Maps the ids in the trace of a profile to rows of the tables.

use std::path::Path;

use heaptide_format as format;
use rustc_hash::FxHashMap;

use crate::collections::optional_index::OptionalIndex;
use crate::collections::sparse_array::SparseArray;
use crate::files::file_names;
use crate::model::{LaneId, Measures, ScopeId, StackId, Trace};
use crate::profile::parsed::Profile;
use crate::tables::annotation_tables;

/// Rows of the tables that correspond to records of the profile.
pub(crate) struct Became<'a> {
    /// Index of each site.
    pub(crate) sites: &'a [Option<u32>],
    /// Scopes by slot of the index of the scope path.
    pub(crate) scopes: &'a [ScopeId],
    /// Stacks by slot of the index of the node.
    pub(crate) stacks: &'a [StackId],
    pub(crate) lanes: &'a FxHashMap<u32, LaneId>,
    /// Index of each shape.
    pub(crate) shapes: &'a [Option<u32>],
}

/// Returns the trace of a profile in a file; `None` if events were not recorded.
pub(crate) fn trace(
    profile: &Profile,
    file: &Path,
    (running, end_ns): (bool, u64),
    totals: &Measures,
    became: &Became,
) -> Option<Trace> {
    let header = &profile.header;
    // The header of a snapshot is that of its profile, but the snapshot has no trace.
    if header.trace & format::TRACE_ON == 0 || file_names::snapshot(file).is_some() {
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
        has_scopes: header.trace & format::TRACE_SCOPES != 0,
        extents: profile.events.clone(),
        sites: SparseArray::default(),
        owners: SparseArray::default(),
        scopes: SparseArray::default(),
        stacks: SparseArray::default(),
        lanes: became.lanes.clone(),
        shapes: SparseArray::default(),
        marks: (0, annotation_tables::mark_names(profile).len() as u32),
        labellings: header.labellings,
        allocations: totals.allocations,
        frees: totals.frees,
        live_bytes: totals.live_bytes,
    };
    for (site, index) in profile.sites.iter().zip(became.sites) {
        if let Some(index) = *index {
            trace.sites.set(site.id, OptionalIndex::from_index(index));
        }
        trace.owners.set(site.id, OptionalIndex::from_index(site.owner));
    }
    for (path, scope) in profile.named.scopes.iter().zip(&became.scopes[1..]) {
        trace.scopes.set(path.id, OptionalIndex::from_slot(scope.0));
    }
    for (shape, index) in profile.named.shapes.iter().zip(became.shapes) {
        let index = index.map_or(OptionalIndex::NONE, OptionalIndex::from_index);
        trace.shapes.set(shape.id, index);
    }
    if let Some(nodes) = &profile.node_ids {
        trace.stacks = nodes.clone();
        trace.stacks.change(|node| OptionalIndex::from_slot(became.stacks[node.slot()].0));
    }
    Some(trace)
}
