//! What held the memory at the peak: scopes, labels, lanes.

use std::cmp::Reverse;

use heaptide_analysis::model::{LabelId, Measures, Process, ScopeId, SiteKind};
use heaptide_analysis::views::aggregate::{self, Key};

use crate::shared::annotations::in_totals;

/// What something held at the peak.
pub(crate) struct Row<K> {
    pub(crate) key: K,
    pub(crate) measures: Measures,
    /// Whether it is part of the peak.
    pub(crate) counts: bool,
}

impl<K> Row<K> {
    fn of(key: K, m: &Measures) -> Row<K> {
        Row { key, measures: *m, counts: true }
    }
}

/// Those that held something, most first.
fn ordered<K>(rows: impl Iterator<Item = Row<K>>) -> Vec<Row<K>> {
    let value = |row: &Row<K>| (row.measures.at_peak_bytes, row.measures.at_peak_blocks);
    let mut rows: Vec<Row<K>> = rows.filter(|row| value(row) != (0, 0)).collect();
    rows.sort_by_key(|row| Reverse(value(row)));
    rows
}

/// What scopes held.
pub(crate) fn by_scope(process: &Process) -> Vec<Row<ScopeId>> {
    let groups = aggregate::by_scope(process).into_iter();
    ordered(groups.filter_map(|g| match g.key {
        Key::Scope(id) => Some(Row::of(id, &g.own)),
        _ => None,
    }))
}

/// A label and what memory it names.
pub(crate) type Labelled = (Option<LabelId>, SiteKind);

/// What labels held, by kind of memory.
pub(crate) fn by_label(process: &Process) -> Vec<Row<Labelled>> {
    let groups = aggregate::by_label(process).into_iter();
    ordered(groups.filter_map(|g| match g.key {
        Key::Label(label, kind) => {
            Some(Row { counts: in_totals(kind), ..Row::of((label, kind), &g.own) })
        }
        _ => None,
    }))
}

/// What lanes held, by their index.
pub(crate) fn by_lane(process: &Process) -> Vec<Row<usize>> {
    ordered(process.tables.lanes.iter().enumerate().map(|(i, lane)| Row::of(i, &lane.measures)))
}
