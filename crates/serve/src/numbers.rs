//! The metrics of a process, of its scopes and labels, and of the server.

use heaptide_analysis::model::Measures;
use heaptide_analysis::recording::live_sums::LiveSums;
use heaptide_format::{CONTROL_OFF, CONTROL_PAUSE, FileHeader};

use crate::family::Definition;

/// Counters of a process.
pub(crate) const COUNTERS: [Definition; 10] = [
    Definition::counter("heaptide_allocations", "", "Blocks allocated, including by realloc."),
    Definition::counter("heaptide_allocated_bytes", "bytes", "Usable bytes of allocated blocks."),
    Definition::counter("heaptide_requested_bytes", "bytes", "Bytes that the program requested."),
    Definition::counter("heaptide_frees", "", "Blocks freed."),
    Definition::counter("heaptide_freed_bytes", "bytes", "Usable bytes of freed blocks."),
    Definition::counter("heaptide_reallocations", "", "Blocks reallocated."),
    Definition::counter("heaptide_failed_allocations", "", "Allocations that failed."),
    Definition::counter(
        "heaptide_temporary_allocations",
        "",
        "Blocks freed by the allocating thread before its next allocation.",
    ),
    Definition::counter(
        "heaptide_unmatched_frees",
        "",
        "Frees of blocks that the recorder never saw allocated.",
    ),
    Definition::counter(
        "heaptide_process_losses",
        "",
        "Events that the recorder lost, of all kinds: see heaptide_losses.",
    ),
];

/// Gauges of a process, and whether they can be summed over processes.
pub(crate) const GAUGES: [(Definition, bool); 12] = [
    (
        Definition::gauge("heaptide_live_bytes", "bytes", "Usable bytes allocated and not freed."),
        true,
    ),
    (Definition::gauge("heaptide_live_blocks", "", "Blocks allocated and not freed."), true),
    (
        Definition::gauge(
            "heaptide_peak_bytes",
            "bytes",
            "Highest live bytes since the start of the process.",
        ),
        false,
    ),
    (
        Definition::gauge(
            "heaptide_mapped_bytes",
            "bytes",
            "Bytes that the program mapped itself.",
        ),
        true,
    ),
    (
        Definition::gauge(
            "heaptide_mapped_peak_bytes",
            "bytes",
            "Highest mapped bytes since the start of the process.",
        ),
        false,
    ),
    (Definition::gauge("heaptide_device_bytes", "bytes", "Allocated memory of devices."), true),
    (
        Definition::gauge(
            "heaptide_device_peak_bytes",
            "bytes",
            "Highest allocated memory of devices since the start of the process.",
        ),
        false,
    ),
    (
        Definition::gauge(
            "heaptide_process_resident_memory_bytes",
            "bytes",
            "Resident memory of the process (VmRSS).",
        ),
        true,
    ),
    (
        Definition::gauge(
            "heaptide_process_virtual_memory_bytes",
            "bytes",
            "Virtual memory of the process, excluding what the recorder reserves.",
        ),
        true,
    ),
    (Definition::gauge("heaptide_profile_bytes", "bytes", "Size of the profile on disk."), true),
    (
        Definition::gauge(
            "heaptide_recording_on",
            "",
            "1 if allocations are recorded, 0 if recording is switched off.",
        ),
        false,
    ),
    (
        Definition::gauge(
            "heaptide_process_running",
            "",
            "1 if the process is running, 0 if it has recently ended.",
        ),
        false,
    ),
];

/// Start time of the process.
pub(crate) const START_TIME: Definition = Definition::gauge(
    "heaptide_process_start_time_seconds",
    "seconds",
    "Start of the recorded program, in seconds since 1970-01-01 UTC.",
);

/// Information about the process.
pub(crate) const PROCESS_INFO: Definition =
    Definition::info("heaptide_process", "The recorded program and its recording.");

/// Number of series of a process, excluding its scopes and labels.
pub(crate) const SERIES_OF_PROCESS: usize = COUNTERS.len() + GAUGES.len() + 2;

/// The values of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) counters: [u64; COUNTERS.len()],
    /// `None` if it is unknown or no longer meaningful.
    pub(crate) gauges: [Option<u64>; GAUGES.len()],
}

impl Numbers {
    /// Returns the values of a running process with this resident memory.
    pub(crate) fn of(sums: &LiveSums, resident: Option<u64>) -> Numbers {
        let (header, totals) = (sums.header(), sums.totals());
        let losses = header.losses.iter().fold(0, |a: u64, &b| a.saturating_add(b));
        Numbers {
            counters: [
                totals.allocations,
                totals.usable_bytes,
                totals.requested_bytes,
                totals.frees,
                totals.freed_bytes,
                totals.reallocations,
                totals.failed,
                totals.temporary,
                header.unmatched_frees,
                losses,
            ],
            gauges: [
                Some(totals.live_bytes),
                Some(totals.live_blocks),
                Some(totals.peak_bytes),
                Some(header.mapped_bytes),
                Some(header.mapped_peak_bytes),
                Some(header.device_bytes),
                Some(header.device_peak_bytes),
                resident,
                sums.sample().map(|sample| sample.virtual_bytes),
                Some(header.file_end),
                Some(u64::from(is_on(header))),
                Some(1),
            ],
        }
    }

    /// Returns the values after the end of a process: counters and peaks.
    pub(crate) fn after_end(&self) -> Numbers {
        let [_, _, peak, _, mapped_peak, _, device_peak, ..] = self.gauges;
        let mut gauges = [None; GAUGES.len()];
        (gauges[2], gauges[4], gauges[6]) = (peak, mapped_peak, device_peak);
        gauges[GAUGES.len() - 1] = Some(0);
        Numbers { counters: self.counters, gauges }
    }
}

/// Returns whether allocations are recorded.
fn is_on(header: &FileHeader) -> bool {
    header.command_off == 0 && header.control & CONTROL_OFF == 0 && header.control < CONTROL_PAUSE
}

/// Counters of a scope path.
pub(crate) const SCOPE_COUNTERS: [Definition; 4] = [
    Definition::counter(
        "heaptide_scope_allocations",
        "",
        "Blocks allocated in the scope, excluding scopes inside it.",
    ),
    Definition::counter(
        "heaptide_scope_allocated_bytes",
        "bytes",
        "Usable bytes of blocks allocated in the scope.",
    ),
    Definition::counter(
        "heaptide_scope_frees",
        "",
        "Freed blocks that were allocated in the scope.",
    ),
    Definition::counter(
        "heaptide_scope_freed_bytes",
        "bytes",
        "Freed usable bytes that were allocated in the scope.",
    ),
];

/// Gauges of a scope path.
pub(crate) const SCOPE_GAUGES: [Definition; 2] = [
    Definition::gauge(
        "heaptide_scope_live_bytes",
        "bytes",
        "Usable bytes allocated in the scope and not freed.",
    ),
    Definition::gauge(
        "heaptide_scope_live_blocks",
        "",
        "Blocks allocated in the scope and not freed.",
    ),
];

/// Counters of a label.
pub(crate) const LABEL_COUNTERS: [Definition; 4] = [
    Definition::counter("heaptide_label_allocations", "", "Blocks that were given the label."),
    Definition::counter(
        "heaptide_label_allocated_bytes",
        "bytes",
        "Bytes of blocks that were given the label.",
    ),
    Definition::counter("heaptide_label_frees", "", "Freed blocks that had the label."),
    Definition::counter("heaptide_label_freed_bytes", "bytes", "Freed bytes that had the label."),
];

/// Gauges of a label.
pub(crate) const LABEL_GAUGES: [Definition; 2] = [
    Definition::gauge("heaptide_label_live_bytes", "bytes", "Live bytes that have the label."),
    Definition::gauge("heaptide_label_live_blocks", "", "Live blocks that have the label."),
];

/// Number of series of a scope or label.
pub(crate) const SERIES_OF_GROUP: usize = SCOPE_COUNTERS.len() + SCOPE_GAUGES.len();

/// The values of a scope or label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct GroupNumbers {
    pub(crate) counters: [u64; SCOPE_COUNTERS.len()],
    pub(crate) gauges: [u64; SCOPE_GAUGES.len()],
}

impl GroupNumbers {
    pub(crate) fn of(sums: &Measures) -> GroupNumbers {
        GroupNumbers {
            counters: [sums.allocations, sums.usable_bytes, sums.frees, sums.freed_bytes],
            gauges: [sums.live_bytes, sums.live_blocks],
        }
    }
}

/// Raises counters to new values, and returns the increases. Counters never decrease, because a
/// reading of a running program can be lower than the previous one.
pub(crate) fn raise<const N: usize>(counters: &mut [u64; N], now: &[u64; N]) -> [u64; N] {
    let mut grown = [0; N];
    for ((counter, &now), grown) in counters.iter_mut().zip(now).zip(&mut grown) {
        *grown = now.saturating_sub(*counter);
        *counter = now.max(*counter);
    }
    grown
}

/// Adds increases to counters.
pub(crate) fn add<const N: usize>(counters: &mut [u64; N], grown: &[u64; N]) {
    counters.iter_mut().zip(grown).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_never_decrease() {
        let mut counters = [10, 20];
        assert_eq!(raise(&mut counters, &[12, 19]), [2, 0]);
        assert_eq!(counters, [12, 20]);
        let mut sum = [1, u64::MAX];
        add(&mut sum, &[2, 3]);
        assert_eq!(sum, [3, u64::MAX]);
    }
}
