//! What is shown of leaks, sizes and sites over time: choices that text and JSON share.

use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::recording::snapshot::Snapshot;
use heaptide_analysis::views::suppressions::Suppressions;

/// What of the leaks is shown.
#[derive(Clone, Copy, Debug)]
pub struct LeaksView<'a> {
    /// Those of which blocks are not counted.
    pub suppressions: &'a Suppressions,
    /// Leaks of a process at most; as text 20 without, as JSON all.
    pub top: Option<usize>,
    /// Only the images of this process.
    pub process: Option<u32>,
}

/// Which exact sizes are shown.
#[derive(Clone, Copy, Debug)]
pub struct HistogramView {
    /// The measure that orders exact sizes.
    pub sort: Measure,
    /// Exact sizes at most; 20 without.
    pub top: Option<usize>,
}

impl Default for HistogramView {
    fn default() -> HistogramView {
        HistogramView { sort: Measure::Allocations, top: None }
    }
}

/// What a part of the process held at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The snapshot's number; none for the end.
    pub snapshot: Option<u32>,
    /// Its name; empty if it has none.
    pub name: String,
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Blocks that were live.
    pub live_blocks: u64,
    /// Their usable bytes.
    pub live_bytes: u64,
    /// Allocations so far.
    pub allocations: u64,
}

/// The snapshots of a process.
pub fn of_process<'a>(
    snapshots: &'a [Snapshot],
    process: &'a Process,
) -> impl Iterator<Item = &'a Snapshot> {
    let run = process.identity.run.as_ref().map_or(0, |run| run.number);
    let own = (run, process.identity.pid, process.identity.image);
    snapshots.iter().filter(move |s| (s.run, s.pid, s.image) == own)
}

/// Which branch of a tree comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BranchOrder {
    /// The one that the program called or entered first.
    First,
    /// The one with the largest value.
    Value,
}

/// What happens to scopes without an allocation or a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// They are shown.
    Shown,
    /// They are left out, as other scopes were by a filter.
    Omitted,
}
