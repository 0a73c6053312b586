//! Memory held at peak, by scope, label and lane.

use std::cmp::Reverse;

use heaptide_analysis::model::{LabelId, Measures, Process, ScopeId, SiteKind};
use heaptide_analysis::views::aggregate::{self, Key};

use crate::shared::annotations::in_totals;

/// Memory that a scope, label or lane held at peak.
pub(crate) struct Row<K> {
    pub(crate) key: K,
    pub(crate) measures: Measures,
    /// Whether it is included in the peak.
    pub(crate) counts: bool,
}

impl<K> Row<K> {
    fn of(key: K, m: &Measures) -> Row<K> {
        Row { key, measures: *m, counts: true }
    }
}

/// Returns the rows that held memory, largest first.
fn ordered<K>(rows: impl Iterator<Item = Row<K>>) -> Vec<Row<K>> {
    let value = |row: &Row<K>| (row.measures.at_peak_bytes, row.measures.at_peak_blocks);
    let mut rows: Vec<Row<K>> = rows.filter(|row| value(row) != (0, 0)).collect();
    rows.sort_by_key(|row| Reverse(value(row)));
    rows
}

/// Returns the rows of scopes.
pub(crate) fn by_scope(process: &Process) -> Vec<Row<ScopeId>> {
    let groups = aggregate::by_scope(process).into_iter();
    ordered(groups.filter_map(|g| match g.key {
        Key::Scope(id) => Some(Row::of(id, &g.own)),
        _ => None,
    }))
}

/// A label and the kind of memory it names.
pub(crate) type Labelled = (Option<LabelId>, SiteKind);

/// Returns the rows of labels, by kind of memory.
pub(crate) fn by_label(process: &Process) -> Vec<Row<Labelled>> {
    let groups = aggregate::by_label(process).into_iter();
    ordered(groups.filter_map(|g| match g.key {
        Key::Label(label, kind) => {
            Some(Row { counts: in_totals(kind), ..Row::of((label, kind), &g.own) })
        }
        _ => None,
    }))
}

/// Returns the rows of lanes, by index.
pub(crate) fn by_lane(process: &Process) -> Vec<Row<usize>> {
    ordered(process.tables.lanes.iter().enumerate().map(|(i, lane)| Row::of(i, &lane.measures)))
}
