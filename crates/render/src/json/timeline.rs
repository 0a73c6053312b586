//! The process over time, as JSON.

use std::io::{self, Write};

use heaptide_analysis::model::{Process, Recording};
use heaptide_analysis::recording::snapshot::Snapshot;

use crate::json::annotations::{MarkEntry, WindowEntry};
use crate::json::document;
use crate::json::entries::SampleEntry;
use crate::json::memory::AccountEntry;
use crate::shared::quantity::seconds;
use crate::shared::views::{Moment, of_process};

/// Writes the samples of the selected processes as JSON. `snapshots` are those of all processes.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    pid: Option<u32>,
    snapshots: &[Snapshot],
) -> io::Result<()> {
    document::write(out, recording, pid, |process| TimelineEntry {
        peak_time_s: seconds(process.peak_time_ns),
        peak_bytes: process.totals.peak_bytes,
        peak_bound_bytes: process.completeness.peak_bound_bytes,
        live_bytes: process.totals.live_bytes,
        accounts: AccountEntry::over_time(process),
        samples: process.time.samples.iter().map(SampleEntry::of).collect(),
        windows: process.time.windows.iter().map(WindowEntry::of).collect(),
        marks: process.time.marks.iter().map(|mark| MarkEntry::of(process, mark)).collect(),
        snapshots: of_process(snapshots, process).map(SnapshotEntry::of).collect(),
    })
}

#[derive(serde::Serialize)]
struct TimelineEntry<'a> {
    peak_time_s: f64,
    peak_bytes: u64,
    peak_bound_bytes: u64,
    live_bytes: u64,
    accounts: Vec<AccountEntry>,
    samples: Vec<SampleEntry>,
    windows: Vec<WindowEntry<'a>>,
    marks: Vec<MarkEntry<'a>>,
    snapshots: Vec<SnapshotEntry<'a>>,
}

#[derive(serde::Serialize)]
struct SnapshotEntry<'a> {
    number: u32,
    name: &'a str,
    time_s: f64,
}

impl SnapshotEntry<'_> {
    fn of(snapshot: &Snapshot) -> SnapshotEntry<'_> {
        SnapshotEntry {
            number: snapshot.number,
            name: &snapshot.name,
            time_s: seconds(snapshot.time_ns),
        }
    }
}

/// Writes the values of what matches `site` at all times at which they are known, as JSON.
///
/// Errors: those of `out`.
pub fn write_site(
    out: &mut dyn Write,
    recording: &Recording,
    process: &Process,
    site: &str,
    moments: &[Moment],
) -> io::Result<()> {
    let entry = |m: &Moment| MomentEntry {
        snapshot: m.snapshot,
        name: m.name.clone(),
        time_s: seconds(m.time_ns),
        live_blocks: m.live_blocks,
        live_bytes: m.live_bytes,
        allocations: m.allocations,
    };
    document::write_one(
        out,
        recording,
        process,
        SiteEntry { site: site.to_owned(), moments: moments.iter().map(entry).collect() },
    )
}

#[derive(serde::Serialize)]
struct SiteEntry {
    site: String,
    moments: Vec<MomentEntry>,
}

#[derive(serde::Serialize)]
struct MomentEntry {
    snapshot: Option<u32>,
    name: String,
    time_s: f64,
    live_blocks: u64,
    live_bytes: u64,
    allocations: u64,
}
