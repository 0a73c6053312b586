//! Live bytes over time, from the timeline and the totals.

use heaptide_analysis::model::{End, Process};

/// Returns whether the timeline covers the same events as the totals. It covers more if blocks were
/// excluded or counters start at a reset. A running process may have continued between the two
/// reads.
pub(crate) fn is_of_totals(process: &Process) -> bool {
    let totals = &process.totals;
    let is_running = process.lifetime.end == End::Running;
    let most = totals.peak_bytes.saturating_add(process.completeness.peak_bound_bytes);
    process.time.samples.iter().all(|sample| {
        let made = is_running || sample.allocations <= totals.allocations;
        made && sample.live_bytes <= most
    })
}

/// Returns live bytes by nanoseconds from the start: 0 at the start, the samples, and the peak and
/// the end, if the timeline covers the same events as the totals.
pub(crate) fn points(process: &Process) -> Vec<(u64, u64)> {
    let mut points = vec![(0, 0)];
    points.extend(process.time.samples.iter().map(|sample| (sample.time_ns, sample.live_bytes)));
    if !is_of_totals(process) {
        return points;
    }
    points.push((process.peak_time_ns, process.totals.peak_bytes));
    points.sort_by_key(|&(ns, _)| ns);
    points.push((process.lifetime.duration_ns, process.totals.live_bytes));
    points
}
