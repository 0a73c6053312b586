//! Live bytes over time, from the timeline and the totals.

use heaptide_analysis::model::Process;

/// Returns live bytes by nanoseconds from the start: 0 at the start, the samples, and the peak and
/// the end, if the timeline covers the same events as the totals.
pub(crate) fn points(process: &Process) -> Vec<(u64, u64)> {
    let mut points = vec![(0, 0)];
    points.extend(process.time.samples.iter().map(|sample| (sample.time_ns, sample.live_bytes)));
    if !process.has_timeline_of_totals() {
        return points;
    }
    points.push((process.peak_time_ns, process.totals.peak_bytes));
    points.sort_by_key(|&(ns, _)| ns);
    points.push((process.lifetime.duration_ns, process.totals.live_bytes));
    points
}
