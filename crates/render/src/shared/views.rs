//! Options of the views of leaks, sizes and sites over time that text and JSON share.

use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::recording::snapshot::Snapshot;
use heaptide_analysis::views::suppressions::Suppressions;

/// Options of the view of leaks.
#[derive(Clone, Copy, Debug)]
pub struct LeaksView<'a> {
    /// Suppressed leaks; their blocks are not counted.
    pub suppressions: &'a Suppressions,
    /// Maximum number of leaks per process; by default 20 as text, all as JSON.
    pub top: Option<usize>,
    /// Restricts the view to the images of this process.
    pub process: Option<u32>,
    /// Whether live blocks are those that were lost when the process ended.
    pub lost: bool,
    /// What a row of the text represents, if blocks have stacks.
    pub by: LeaksBy,
}

/// What a row of leaks represents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeaksBy {
    /// A whole stack.
    #[default]
    Stack,
    /// The owner of the blocks.
    Function,
    /// The line of the owner.
    Line,
}

/// Options of the view of sizes.
#[derive(Clone, Copy, Debug)]
pub struct HistogramView {
    /// The metric by which exact sizes are sorted.
    pub sort: Measure,
    /// Maximum number of exact sizes; 20 by default.
    pub top: Option<usize>,
}

impl Default for HistogramView {
    fn default() -> HistogramView {
        HistogramView { sort: Measure::Allocations, top: None }
    }
}

/// The state of a part of the process at one time.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The snapshot's number; `None` for the end.
    pub snapshot: Option<u32>,
    /// The snapshot's name; empty if it has none.
    pub name: String,
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Their usable bytes.
    pub live_bytes: u64,
    /// Allocations so far.
    pub allocations: u64,
}

/// Returns the snapshots of a process.
pub fn of_process<'a>(
    snapshots: &'a [Snapshot],
    process: &'a Process,
) -> impl Iterator<Item = &'a Snapshot> {
    let run = process.identity.run.as_ref().map_or(0, |run| run.number);
    let own = (run, process.identity.pid, process.identity.image);
    snapshots.iter().filter(move |s| (s.run, s.pid, s.image) == own)
}

/// Order of sibling branches in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BranchOrder {
    /// In order of the first call or entry.
    First,
    /// Largest value first.
    Value,
}

/// Treatment of scopes without allocations and frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// They are shown.
    Shown,
    /// They are omitted, like scopes excluded by a filter.
    Omitted,
}
