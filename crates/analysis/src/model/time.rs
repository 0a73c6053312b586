//! Time-dependent data of a process: samples, windows, marks and events.

use std::sync::Arc;

pub use heaptide_format::MarkKind;

use super::account::Account;
use super::ids::LaneId;
use super::site_rows::SiteRows;
use super::trace::Trace;

/// Time-dependent data of a process: samples, windows, marks and events.
#[derive(Clone, Debug, Default)]
pub struct TimeTables {
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// Whether samples have more events than the totals, because these are of a part of the blocks
    /// or of the time.
    pub samples_have_more: bool,
    /// Bounds of live bytes in order of time, as the recorder measured them between samples; none
    /// of older profiles, joined processes and mappings.
    pub bounds: Vec<Bounds>,
    /// Accounts of resident memory in order of time; none of joined processes.
    pub accounts: Vec<Account>,
    /// Windows in order of their begin.
    pub windows: Vec<Window>,
    /// Marks in order of time.
    pub marks: Vec<Mark>,
    /// Names of the marks that traces refer to.
    pub mark_names: Vec<Arc<str>>,
    /// When joined processes had most live bytes together; `None` for a single image, and if some
    /// blocks were excluded since.
    pub highest: Option<Highest>,
    /// Traces of events, if they were recorded: one for each process image in these tables that has
    /// a trace. See [`crate::model::Process::has_trace`].
    pub traces: Vec<Trace>,
    /// The sites contain memory of which these traces have no events.
    pub traces_are_partial: bool,
    /// Row of each site id, if a reader follows the counters of the profile: see
    /// [`crate::recording::live`].
    pub site_rows: Option<SiteRows>,
}

impl TimeTables {
    /// Replaces the rows of sites; `new` returns `None` for sites that were removed.
    pub(crate) fn move_sites(&mut self, new: impl Fn(u32) -> Option<u32>) {
        for trace in &mut self.traces {
            trace.move_sites(&new);
        }
        if let Some(rows) = &mut self.site_rows {
            rows.move_sites(&new);
        }
    }
}

/// The moment at which joined processes had most live bytes together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Highest {
    /// Nanoseconds from the first start.
    pub time_ns: u64,
    /// Live bytes of all processes.
    pub live_bytes: u64,
    /// The most that they can have had at one time, if it differs: changes were too fast for
    /// samples.
    pub at_most_bytes: Option<u64>,
    /// Names of the processes that held some, with their live bytes, in decreasing order.
    pub holders: Vec<(Arc<str>, u64)>,
}

/// Bounds of live bytes from a time until that of the next ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// The lowest live bytes.
    pub lowest: u64,
    /// The highest live bytes.
    pub highest: u64,
}

/// The state of a process at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Usable bytes live.
    pub live_bytes: u64,
    /// Highest live bytes so far.
    pub peak_bytes: u64,
    /// Successful allocations so far.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
    /// Usable bytes allocated so far.
    pub usable_bytes: u64,
    /// Resident memory of the process, bytes.
    pub resident_bytes: u64,
    /// Virtual memory of the process, bytes.
    pub virtual_bytes: u64,
}

/// A named interval of the whole process. Its counters cover the time from its begin to its end, or
/// to the time at which the profile was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// The name that the program gave it.
    pub name: Arc<str>,
    /// Whether it has not ended.
    pub open: bool,
    /// When it began, nanoseconds from the start.
    pub begin_time_ns: u64,
    /// When it ended; 0 if it is open.
    pub end_time_ns: u64,
    /// Successful allocations.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Successful reallocations.
    pub reallocations: u64,
    /// Failed allocations.
    pub failed: u64,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Usable bytes allocated.
    pub usable_bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
    /// Net change of live blocks.
    pub live_blocks: i64,
    /// Net change of live bytes.
    pub live_bytes: i64,
    /// Highest live bytes of the process while it was open.
    pub peak_bytes: u64,
    /// Error bound of `peak_bytes`, in bytes.
    pub peak_bound_bytes: u64,
}

/// A named point in time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Nanoseconds from the start.
    pub time_ns: u64,
    /// Its name; empty if it has none.
    pub name: Arc<str>,
    /// Its kind, such as a snapshot or a reset.
    pub kind: MarkKind,
    /// The lane that set it; `None` if another process did.
    pub lane: Option<LaneId>,
    /// The number of a snapshot or reset, from 1.
    pub number: u32,
    /// Usable bytes live.
    pub live_bytes: u64,
}
