//! Columns of live memory that need more than counters: its requested bytes, and the peak of each
//! part of a process. For these, traces are replayed once per process.

use heaptide_analysis::model::{Process, StackId};
use heaptide_analysis::views::highest::{
    self, Highest, live_requested_of_sites, live_requested_of_stacks, trace_knows_more,
};

use super::info::Info;
use super::source::{Filler, HIGHEST};

const REQUESTED: &str = "live_requested_bytes";

/// The column of live requested bytes.
pub(super) fn requested() -> Info {
    Info::uint(
        REQUESTED,
        "bytes",
        "requested bytes allocated and not freed; known from a trace, or if nothing was freed or \
         all blocks have the same size",
    )
}

/// The columns of a row's peak.
pub(super) fn highest() -> [Info; 2] {
    let [usable, of_requested] = HIGHEST;
    [
        Info::uint(usable, "bytes", "highest live bytes of the row itself; of a whole trace only"),
        Info::uint(of_requested, "bytes", "the same of requested bytes; of a whole trace only"),
    ]
}

/// The live memory of a process, as far as columns need it.
pub(super) struct Live {
    pub(super) highest: Option<Highest>,
    /// By site; empty if not needed.
    requested: Vec<Option<u64>>,
}

impl Live {
    pub(super) fn of(filler: &Filler, process: &Process) -> Live {
        let is_requested = filler.column(REQUESTED).is_some();
        let is_highest = HIGHEST.iter().any(|name| filler.column(name).is_some());
        let needs_trace = is_highest || is_requested && trace_knows_more(process);
        let mut highest = None;
        if needs_trace && process.has_trace() {
            match Highest::of(process) {
                Ok(found) => {
                    filler.notes.add(found.notes.clone());
                    highest = Some(found);
                }
                Err(error) => filler.notes.add(vec![error.to_string()]),
            }
        }
        let requested = if is_requested {
            live_requested_of_sites(process, highest.as_ref())
        } else {
            Vec::new()
        };
        Live { highest, requested }
    }

    /// Sets the live memory of a site.
    pub(super) fn set_site(&self, filler: &mut Filler, row: usize, site: usize) {
        set(filler, row, self.requested.get(site).copied().flatten());
    }

    /// Returns the values from counters by stack; empty if not needed.
    pub(super) fn by_stack(&self, process: &Process) -> Vec<Option<u64>> {
        let is_wanted = !self.requested.is_empty();
        if is_wanted { live_requested_of_stacks(process) } else { Vec::new() }
    }

    /// Sets the live memory and the peak of a stack: from counters, or else from the trace.
    pub(super) fn set_stack(
        &self,
        filler: &mut Filler,
        row: usize,
        stack: StackId,
        by_counters: Option<u64>,
        live_bytes: u64,
    ) {
        let by_trace = self.highest.as_ref().and_then(|of| of.stacks.get(stack.0 as usize));
        set(filler, row, by_counters.or_else(|| by_trace?.requested_of(live_bytes)));
        set_highest(filler, row, by_trace);
    }
}

/// Sets the column of live requested bytes.
fn set(filler: &mut Filler, row: usize, live: Option<u64>) {
    if let Some(live) = live {
        filler.uint(REQUESTED, row, live);
    }
}

/// Sets the columns that need a trace.
pub(super) fn set_highest(filler: &mut Filler, row: usize, live: Option<&highest::Live>) {
    if let Some(live) = live.and_then(|live| live.highest) {
        let [usable, requested] = HIGHEST;
        filler.uint(usable, row, live.usable);
        filler.uint(requested, row, live.requested);
    }
}
