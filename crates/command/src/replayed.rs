//! What the trace of a process says beyond its tables, for the views that show it.

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::model::Process;
use heaptide_analysis::views::highest::Highest;
use heaptide_analysis::views::owners_over_time::OwnersOverTime;
use heaptide_render::page;

use crate::message::message;
use crate::progress::Progress;

/// The highest live bytes of the parts of a process, if it has a trace. What is missing of that is
/// reported on standard error.
pub fn replayed(process: &Process) -> Option<Highest> {
    if !process.has_trace() {
        return None;
    }
    let progress = Progress::start("reading the trace");
    let found = Highest::of(process);
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

/// Live bytes over time by the owners with most, if it has a trace; likewise.
pub fn owners_over_time(process: &Process) -> Option<OwnersOverTime> {
    if !process.has_trace() {
        return None;
    }
    let progress = Progress::start("reading the trace");
    let found = OwnersOverTime::of(process, &Owners::of(process), page::OWNERS);
    drop(progress);
    found.map_err(|error| message(format_args!("{error}"))).ok()
}
