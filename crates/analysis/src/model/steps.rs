//! The live bytes of a process as a step function, from its samples and totals.

use std::mem;

use super::process::Process;
use super::time::Sample;

/// A sample of a process that has no blocks.
pub(crate) const NOTHING: Sample = Sample {
    time_ns: 0,
    live_bytes: 0,
    peak_bytes: 0,
    allocations: 0,
    frees: 0,
    usable_bytes: 0,
    resident_bytes: 0,
    virtual_bytes: 0,
};

impl Process {
    /// Adds the peak and the end to the samples, because the totals are about to become those of a
    /// part of the blocks or of the time.
    pub(crate) fn complete_samples(&mut self) {
        if self.identity.images == 1 && self.has_timeline_of_totals() {
            let samples = mem::take(&mut self.time.samples);
            self.time.samples = steps(self, samples, false);
        }
        self.time.samples_have_more = true;
    }
}

/// Returns the samples of a process with its peak and its end. With `ended`, nothing is live at the
/// end.
pub(crate) fn steps(process: &Process, mut steps: Vec<Sample>, ended: bool) -> Vec<Sample> {
    if !process.time.samples_have_more {
        add_peak(process, &mut steps);
    }
    let last = steps.last().copied().unwrap_or(NOTHING);
    let time_ns = process.lifetime.duration_ns.max(last.time_ns);
    let mut at_end = Sample { time_ns, ..last };
    if !process.time.samples_have_more {
        let totals = &process.totals;
        (at_end.live_bytes, at_end.peak_bytes) =
            (totals.live_bytes, totals.peak_bytes.max(last.peak_bytes));
        // Otherwise, the times of the remaining events are unknown.
        if process.lifetime.duration_is_known {
            at_end.allocations = totals.allocations.max(last.allocations);
            at_end.frees = totals.frees.max(last.frees);
            at_end.usable_bytes = totals.usable_bytes.max(last.usable_bytes);
        }
    }
    if ended {
        (at_end.live_bytes, at_end.resident_bytes, at_end.virtual_bytes) = (0, 0, 0);
    }
    steps.push(at_end);
    steps
}

fn add_peak(process: &Process, steps: &mut Vec<Sample>) {
    let totals = &process.totals;
    let peak_at = steps.partition_point(|sample| sample.time_ns <= process.peak_time_ns);
    let before = peak_at.checked_sub(1).map_or(NOTHING, |at| steps[at]);
    let (time_ns, peak_bytes) = (process.peak_time_ns, totals.peak_bytes);
    let next = steps.get(peak_at).map_or(totals.live_bytes, |next| next.live_bytes);
    // The value just after the peak is unknown: it is at most the previous or the next one.
    let after = Sample { peak_bytes, live_bytes: before.live_bytes.max(next), ..before };
    let after = Sample { time_ns: time_ns.saturating_add(1), ..after };
    let peak = Sample { time_ns, live_bytes: peak_bytes, peak_bytes, ..before };
    steps.splice(peak_at..peak_at, [peak, after]);
}
