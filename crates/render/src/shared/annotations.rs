//! Labels, pools, marks and windows: names and sums that several views need.

use std::cmp::Reverse;
use std::collections::HashMap;

use heaptide_analysis::model::{LabelId, Mark, MarkKind, Process, Shape, SiteKind, Window};

use crate::shared::names::elide_middle;

/// Number of marks, and of windows, that get a letter.
pub(crate) const LETTERS: usize = 26;
/// Characters of a mark's name.
const MARK_NAME_CHARS: usize = 60;

/// Returns whether memory of this kind is in the totals.
pub(crate) fn in_totals(kind: SiteKind) -> bool {
    kind.is_in_totals()
}

/// Returns the name of this kind of memory.
pub(crate) fn kind_name(kind: SiteKind) -> &'static str {
    match kind {
        SiteKind::Heap => "heap",
        SiteKind::Outside => "other memory",
        SiteKind::OutsidePoolBlock => "other pool blocks",
        SiteKind::OutsidePoolChunk => "other idle pool",
        kind if kind.is_pool_block() => "pool blocks",
        kind if kind.is_pool_chunk() => "idle pool",
        SiteKind::Mapped(mapping) => mapping.class.name(),
        _ => "device memory",
    }
}

/// Returns the bytes of chunks that are lent to blocks, by pool.
pub(crate) fn lent(process: &Process) -> HashMap<(LabelId, SiteKind), u64> {
    let mut lent = HashMap::new();
    for site in process.tables.sites.iter().filter(|site| site.lent_bytes > 0) {
        if let Some(label) = site.label {
            let sum: &mut u64 = lent.entry((label, site.kind)).or_default();
            *sum = sum.saturating_add(site.lent_bytes);
        }
    }
    lent
}

/// Describes shapes by dimensions and bytes per element.
pub(crate) fn shapes_say(shapes: &[&Shape]) -> String {
    let Some((first, others)) = shapes.split_first() else {
        return String::new();
    };
    let of = format!("{} of {} B", first.dims(), first.element_bytes);
    match others.len() {
        0 => of,
        1 => format!("{of}, 1 other shape"),
        more => format!("{of}, {more} other shapes"),
    }
}

/// Describes a mark.
pub(crate) fn mark_says(mark: &Mark) -> String {
    let name = elide_middle(&mark.name, MARK_NAME_CHARS);
    match (mark_kind(mark.kind), mark.number) {
        ("mark", _) => name,
        (kind, 0) => format!("{kind} {name}").trim_end().to_owned(),
        (kind, number) => format!("{kind} {number} {name}").trim_end().to_owned(),
    }
}

/// Returns the name of a kind of mark.
pub(crate) fn mark_kind(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Mark => "mark",
        MarkKind::Snapshot => "snapshot",
        MarkKind::Reset => "reset",
        MarkKind::On => "on",
        MarkKind::Off => "off",
    }
}

/// Returns the windows with the highest peaks in order of their begin, each with its letter.
pub(crate) fn windows_shown(process: &Process) -> impl Iterator<Item = (char, &Window)> {
    let mut shown: Vec<&Window> = process.time.windows.iter().collect();
    shown.sort_by_key(|window| Reverse(window.peak_bytes));
    shown.truncate(LETTERS);
    shown.sort_by_key(|window| window.begin_time_ns);
    ('A'..='Z').zip(shown)
}

/// Returns the first marks other than those of snapshots, each with its letter.
pub(crate) fn marks_shown(process: &Process) -> impl Iterator<Item = (char, &Mark)> {
    ('a'..='z').zip(marks(process))
}

/// Returns the marks other than those of snapshots.
pub(crate) fn marks(process: &Process) -> impl Iterator<Item = &Mark> {
    process.time.marks.iter().filter(|mark| mark.kind != MarkKind::Snapshot)
}
