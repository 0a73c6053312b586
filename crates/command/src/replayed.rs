//! Data from the trace of a process, in addition to its tables, for the views that show it.

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::{LaneId, Process};
use heaptide_analysis::views::highest::Highest;
use heaptide_analysis::views::lifetimes::Lifetimes;
use heaptide_analysis::views::owners_over_time::OwnersOverTime;
use heaptide_render::page;

use crate::message::message;
use crate::progress::Progress;

/// Returns the highest live bytes of the parts of a process, if it has a trace. Missing parts are
/// reported on standard error.
pub fn replayed(process: &Process) -> Option<Highest> {
    replayed_of_lanes(process, |_| true)
}

/// Does the same for the allocations of some lanes.
pub fn replayed_of_lanes(process: &Process, counts: impl Fn(LaneId) -> bool) -> Option<Highest> {
    if !process.has_trace() {
        return None;
    }
    let progress = Progress::start("reading the trace");
    let found = Highest::of_lanes(process, counts);
    drop(progress);
    match found {
        Ok(highest) => {
            highest.notes.iter().for_each(|note| message(format_args!("{note}")));
            Some(highest)
        }
        Err(error) => {
            message(format_args!("{error}"));
            None
        }
    }
}

/// Returns live bytes over time of the largest owners, and lifetimes of blocks, if it has a trace.
/// Missing parts are reported on standard error.
pub fn for_page(process: &Process) -> Option<(OwnersOverTime, Lifetimes)> {
    if !process.has_trace() {
        return None;
    }
    let progress = Progress::start("reading the trace");
    let over_time = OwnersOverTime::of(process, &Owners::of(process), page::OWNERS);
    let lifetimes = Lifetimes::of(process, 0..u64::MAX);
    drop(progress);
    let found = over_time.and_then(|over_time| Ok((over_time, lifetimes?)));
    let found = found.map_err(|error| message(format_args!("{error}"))).ok()?;
    found.1.notes.iter().for_each(|note| message(format_args!("{note}")));
    Some(found)
}
