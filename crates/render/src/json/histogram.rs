//! Blocks by size, as JSON.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::views::sizes::{Bounds, Class, Exact, Sizes};

use crate::json::document;
use crate::json::entries::MeasuresEntry;
use crate::shared::views::HistogramView;

/// Writes the histograms of the selected processes as JSON.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    pid: Option<u32>,
    view: &HistogramView,
) -> io::Result<()> {
    document::write(out, recording, pid, |process| Histogram::of(process, view))
}

#[derive(serde::Serialize)]
struct Histogram<'a> {
    allocations: u64,
    requested_bytes: u64,
    usable_bytes: u64,
    live_blocks: u64,
    live_bytes: u64,
    classes: Vec<ClassEntry>,
    exact: ExactEntry<'a>,
}

#[derive(serde::Serialize)]
struct ClassEntry {
    size_min: u64,
    size_max: u64,
    requested: u64,
    usable: u64,
    freed: u64,
    live: Option<u64>,
    requested_bytes: BoundsEntry,
    usable_bytes: BoundsEntry,
    live_bytes: Option<BoundsEntry>,
}

#[derive(serde::Serialize)]
struct BoundsEntry {
    least: u64,
    most: u64,
    exact: bool,
}

#[derive(serde::Serialize)]
struct ExactEntry<'a> {
    recorded: bool,
    allocations: u64,
    sizes: Vec<SizeEntry<'a>>,
}

#[derive(serde::Serialize)]
struct SizeEntry<'a> {
    size: u64,
    #[serde(flatten)]
    measures: MeasuresEntry<'a>,
}

impl Histogram<'_> {
    fn of<'a>(process: &'a Process, view: &HistogramView) -> Histogram<'a> {
        let t = &process.totals;
        let sizes = Sizes::of(process);
        let (recorded, allocations) = (sizes.recorded, sizes.covered());
        let mut rows = sizes.exact;
        rows.sort_by_key(|row| (Reverse(view.sort.of_sites().of(&row.measures)), row.size));
        rows.truncate(view.top.unwrap_or(usize::MAX));
        let measures = |row: &Exact| MeasuresEntry(row.measures, process);
        let row = |row: Exact| SizeEntry { size: row.size, measures: measures(&row) };
        let sizes_shown = rows.into_iter().map(row).collect();
        Histogram {
            allocations: t.allocations,
            requested_bytes: t.requested_bytes,
            usable_bytes: t.usable_bytes,
            live_blocks: t.live_blocks,
            live_bytes: t.live_bytes,
            classes: sizes.classes.iter().map(ClassEntry::of).collect(),
            exact: ExactEntry { recorded, allocations, sizes: sizes_shown },
        }
    }
}

impl ClassEntry {
    fn of(class: &Class) -> ClassEntry {
        let counts = &class.counts;
        let between = |b: Bounds| BoundsEntry { least: b.least, most: b.most, exact: b.is_exact() };
        ClassEntry {
            size_min: counts.size_min,
            size_max: counts.size_max,
            requested: counts.requested,
            usable: counts.usable,
            freed: counts.freed,
            live: class.live.map(|live| live.0),
            requested_bytes: between(class.requested_bytes),
            usable_bytes: between(class.usable_bytes),
            live_bytes: class.live.map(|live| between(live.1)),
        }
    }
}
