//! Annotations in the JSON report: scopes, labels, windows, marks.

use heaptide_analysis::model::{
    Label, Mark, Measures, Process, Scope, ScopeId, Shape, Site, SiteKind, Window,
};
use heaptide_analysis::views::aggregate::{Key, by_label};
use heaptide_analysis::views::scopes::{self, ScopeSums};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::entries::MeasuresEntry;
use crate::json::entries::serialize_part;
use crate::shared::annotations::{lent, mark_kind};
use crate::shared::quantity::seconds;
use crate::shared::sequence::seq;

/// Maximum number of innermost scopes that a site lists. In a program with scopes 10 000 deep,
/// every site would repeat 10 000 names. The list of scopes has all complete paths; the site holds
/// the index of its own.
pub(crate) const SCOPES: usize = 100;

/// Writes the lists of annotations of a process.
pub(crate) fn serialize_lists<M: SerializeMap>(
    process: &Process,
    map: &mut M,
) -> Result<(), M::Error> {
    let sums = scopes::sums(process, None);
    let rows = process.tables.scopes.iter().zip(&sums).zip(0..);
    let rows = rows.map(|((scope, sums), id)| ScopeEntry { scope, sums, id, process });
    map.serialize_entry("scopes", &seq(rows))?;
    let groups = by_label(process);
    let lent = lent(process);
    let shapes = process.shapes_by_label();
    let rows = groups.iter().filter_map(|group| match group.key {
        Key::Label(Some(id), kind) => {
            let lent_bytes = lent.get(&(id, kind)).copied().unwrap_or(0);
            Some(LabelEntry {
                label: &process.tables.labels[id.0 as usize],
                shapes: &shapes[id.0 as usize],
                kind,
                own: &group.own,
                lent_bytes,
                process,
            })
        }
        _ => None,
    });
    map.serialize_entry("labels", &seq(rows))?;
    map.serialize_entry("windows", &seq(process.time.windows.iter().map(WindowEntry::of)))?;
    map.serialize_entry("marks", &seq(process.time.marks.iter().map(|m| MarkEntry::of(process, m))))
}

/// Writes the fields of a site other than stack, lane and metrics.
pub(crate) fn serialize_site<M: SerializeMap>(
    process: &Process,
    site: &Site,
    map: &mut M,
) -> Result<(), M::Error> {
    serialize_scope(process, site.scope, map)?;
    let label = site.label.map(|id| &*process.tables.labels[id.0 as usize].name);
    map.serialize_entry("label", &label)?;
    map.serialize_entry("kind", site.kind.name())?;
    if let Some(mapping) = site.kind.mapping() {
        map.serialize_entry("class", mapping.class.name())?;
        map.serialize_entry("protection", &mapping.protection)?;
        map.serialize_entry("flags", &mapping.flags)?;
    }
    if let Some(memory) = site.kind.device_memory() {
        map.serialize_entry("class", memory.class.name())?;
        map.serialize_entry("api", memory.device.api.name())?;
        map.serialize_entry("device", &memory.device.number)?;
    }
    if let Some(size) = site.size {
        map.serialize_entry("size", &size)?;
    }
    if let Some(call) = site.call {
        map.serialize_entry("call", call.name())?;
    }
    if site.label.is_some() {
        map.serialize_entry("moved_blocks", &site.moved.blocks)?;
        map.serialize_entry("moved_usable_bytes", &site.moved.usable_bytes)?;
        map.serialize_entry("moved_requested_bytes", &site.moved.requested_bytes)?;
        map.serialize_entry("lent_bytes", &site.lent_bytes)?;
    }
    Ok(())
}

/// Writes the innermost scopes of a path, outermost first.
pub(crate) fn serialize_scope<M: SerializeMap>(
    process: &Process,
    scope: ScopeId,
    map: &mut M,
) -> Result<(), M::Error> {
    let mut path: Vec<_> = process.scopes_of(scope).take(SCOPES + 1).collect();
    let is_cut = path.len() > SCOPES;
    path.truncate(SCOPES);
    path.reverse();
    map.serialize_entry("scope", &seq(path.iter().map(|scope| NameEntry::of(scope))))?;
    map.serialize_entry("scope_index", &scope.0)?;
    if is_cut {
        map.serialize_entry("scope_cut", &true)?;
    }
    Ok(())
}

#[derive(serde::Serialize)]
struct NameEntry<'a> {
    attribute: &'a str,
    value: &'a str,
}

impl NameEntry<'_> {
    fn of(scope: &Scope) -> NameEntry<'_> {
        NameEntry { attribute: &scope.attribute, value: &scope.value }
    }
}

/// A scope path. Its parent is an index into this list; the first entry represents no scope.
struct ScopeEntry<'a> {
    scope: &'a Scope,
    sums: &'a ScopeSums,
    id: u32,
    process: &'a Process,
}

impl Serialize for ScopeEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &ScopeEntry { scope, sums, id, process } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("parent", &Some(scope.parent.0).filter(|_| ScopeId(id) != ScopeId(0)))?;
        map.serialize_entry("attribute", &*scope.attribute)?;
        map.serialize_entry("value", &*scope.value)?;
        map.serialize_entry("entered", &scope.entered)?;
        map.serialize_entry("peak_bytes", &scope.peak_bytes)?;
        map.serialize_entry("active_bytes", &scope.active_bytes)?;
        serialize_part(&sums.own, process, &mut map)?;
        map.serialize_entry("inclusive", &MeasuresEntry(sums.inclusive, process))?;
        map.end()
    }
}

/// A label and the kind of memory it names: one row for each kind.
struct LabelEntry<'a> {
    label: &'a Label,
    shapes: &'a [&'a Shape],
    kind: SiteKind,
    own: &'a Measures,
    lent_bytes: u64,
    process: &'a Process,
}

impl Serialize for LabelEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &LabelEntry { label: Label { name, pool }, shapes, kind, own, lent_bytes, process } =
            self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("label", &**name)?;
        map.serialize_entry("pool", pool)?;
        map.serialize_entry("kind", kind.name())?;
        map.serialize_entry("shapes", &seq(shapes.iter().map(|shape| ShapeEntry::of(shape))))?;
        serialize_part(own, process, &mut map)?;
        map.serialize_entry("lent_bytes", &lent_bytes)?;
        map.end()
    }
}

/// An array that a label names.
#[derive(serde::Serialize)]
struct ShapeEntry<'a> {
    dimensions: &'a [u64],
    element_bytes: u64,
    labelled: u64,
}

impl ShapeEntry<'_> {
    fn of(shape: &Shape) -> ShapeEntry<'_> {
        let &Shape { ref dimensions, element_bytes, labelled, .. } = shape;
        ShapeEntry { dimensions, element_bytes, labelled }
    }
}

#[derive(serde::Serialize)]
pub(crate) struct WindowEntry<'a> {
    name: &'a str,
    open: bool,
    begin_s: f64,
    end_s: Option<f64>,
    allocations: u64,
    frees: u64,
    reallocations: u64,
    failed: u64,
    requested_bytes: u64,
    usable_bytes: u64,
    freed_bytes: u64,
    live_blocks: i64,
    live_bytes: i64,
    peak_bytes: u64,
    peak_bound_bytes: u64,
}

impl WindowEntry<'_> {
    pub(crate) fn of(w: &Window) -> WindowEntry<'_> {
        WindowEntry {
            name: &w.name,
            open: w.open,
            begin_s: seconds(w.begin_time_ns),
            end_s: (!w.open).then(|| seconds(w.end_time_ns)),
            allocations: w.allocations,
            frees: w.frees,
            reallocations: w.reallocations,
            failed: w.failed,
            requested_bytes: w.requested_bytes,
            usable_bytes: w.usable_bytes,
            freed_bytes: w.freed_bytes,
            live_blocks: w.live_blocks,
            live_bytes: w.live_bytes,
            peak_bytes: w.peak_bytes,
            peak_bound_bytes: w.peak_bound_bytes,
        }
    }
}

#[derive(serde::Serialize)]
pub(crate) struct MarkEntry<'a> {
    time_s: f64,
    kind: &'static str,
    name: &'a str,
    number: u32,
    lane: Option<&'a str>,
    live_bytes: u64,
}

impl MarkEntry<'_> {
    pub(crate) fn of<'a>(process: &'a Process, mark: &'a Mark) -> MarkEntry<'a> {
        let lane = mark.lane.and_then(|id| process.tables.lanes.get(id.0 as usize));
        MarkEntry {
            time_s: seconds(mark.time_ns),
            kind: mark_kind(mark.kind),
            name: &mark.name,
            number: mark.number,
            lane: lane.map(|lane| lane.name.as_str()),
            live_bytes: mark.live_bytes,
        }
    }
}
