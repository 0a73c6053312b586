//! A process over time: its start, samples, peak and end.
//!
//! Live bytes are steps: the recorder takes a sample when they have changed by one percent of their
//! peak, so each value holds until the next sample. The other values are lines between samples.

use crate::model::{Process, Sample};

/// A value over time: points joined by straight lines, in order of time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    points: Vec<(u64, u64)>,
}

impl Series {
    /// Returns a series of points (nanoseconds, value), given in any order; if several have the
    /// same time, the line continues from the last one.
    ///
    /// ```
    /// use heaptide_analysis::views::timeline::Series;
    /// let line = Series::of(vec![(0, 0), (20, 100), (10, 80)]);
    /// assert_eq!([line.at(5), line.at(15), line.at(99)], [40.0, 90.0, 100.0]);
    /// assert_eq!(line.highest(4, 12), 84.0);
    /// ```
    pub fn of(mut points: Vec<(u64, u64)>) -> Series {
        points.sort_by_key(|point| point.0);
        Series { points }
    }

    /// Returns a series of steps: each value holds until the time of the next point.
    ///
    /// ```
    /// use heaptide_analysis::views::timeline::Series;
    /// let steps = Series::steps(vec![(0, 0), (20, 100), (10, 80)]);
    /// let values = [9, 10, 19, 20].map(|time| steps.at(time));
    /// assert_eq!(values, [0.0, 80.0, 80.0, 100.0]);
    /// ```
    pub fn steps(points: Vec<(u64, u64)>) -> Series {
        let Series { points } = Series::of(points);
        let before = points.first().copied().into_iter().chain(points.iter().copied());
        let steps = before.zip(&points).flat_map(|((_, was), &(at, is))| [(at, was), (at, is)]);
        Series { points: steps.collect() }
    }

    /// Returns its value at a time; outside the range of points, the value of the nearest point.
    pub fn at(&self, time: u64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= time);
        match (after.checked_sub(1).map(|i| self.points[i]), self.points.get(after)) {
            (Some((from, low)), Some(&(to, high))) => {
                let part = (time - from) as f64 / (to - from) as f64;
                low as f64 + (high as f64 - low as f64) * part
            }
            (Some((_, value)), None) | (None, Some(&(_, value))) => value as f64,
            (None, None) => 0.0,
        }
    }

    /// Returns its highest value between two times, inclusive.
    pub fn highest(&self, from: u64, to: u64) -> f64 {
        let first = self.points.partition_point(|point| point.0 < from);
        let end = self.points.partition_point(|point| point.0 <= to);
        let inside = self.points.get(first..end).unwrap_or_default();
        let most = inside.iter().map(|point| point.1 as f64).fold(0.0, f64::max);
        most.max(self.at(from)).max(self.at(to))
    }

    /// Returns its highest point, the first of several, as nanoseconds and value.
    pub fn top(&self) -> (u64, u64) {
        let highest = |a: (u64, u64), &b: &(u64, u64)| if b.1 > a.1 { b } else { a };
        self.points.iter().fold((0, 0), highest)
    }

    /// Returns whether it has no point.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

/// The values of a process over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// Time from the start to the end, or to the last known point, in nanoseconds; at least 1.
    pub duration_ns: u64,
    /// Usable bytes live.
    pub live: Series,
    /// Resident bytes of the process; empty if no sample has them.
    pub resident: Series,
    /// Allocations so far; never decreases.
    pub allocations: Series,
    /// Allocations after the last sample if the end of the process is unknown: they are excluded
    /// from rates.
    pub undated_allocations: u64,
}

impl Timeline {
    /// Returns the timeline of a process.
    ///
    /// ```
    /// use heaptide_analysis::views::timeline::Timeline;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let timeline = Timeline::of(&process);
    /// assert!(timeline.duration_ns >= process.lifetime.duration_ns);
    /// ```
    pub fn of(process: &Process) -> Timeline {
        let (samples, totals) = (&process.time.samples, &process.totals);
        let last = samples.iter().map(|sample| sample.time_ns).max().unwrap_or(0);
        let duration_ns = process.lifetime.duration_ns.max(last).max(process.peak_time_ns).max(1);
        let points = |value: fn(&Sample) -> u64| samples.iter().map(move |s| (s.time_ns, value(s)));
        let mut live: Vec<_> = points(|s| s.live_bytes).collect();
        live.push((0, 0));
        // The peaks and ends of joined processes have different times.
        let is_of_totals = !process.time.samples_have_more;
        if process.identity.images == 1 && is_of_totals {
            live.push((process.peak_time_ns, totals.peak_bytes));
            live.push((duration_ns, totals.live_bytes));
        }
        let resident = points(|s| s.resident_bytes).filter(|point| point.1 > 0).collect();
        let mut allocations: Vec<_> = points(|s| s.allocations).collect();
        allocations.push((0, 0));
        let sampled = allocations.iter().map(|point| point.1).max().unwrap_or(0);
        let mut undated_allocations = 0;
        if process.lifetime.duration_is_known && is_of_totals {
            allocations.push((duration_ns, totals.allocations));
        } else if is_of_totals {
            undated_allocations = totals.allocations.saturating_sub(sampled);
        }
        Timeline {
            duration_ns,
            live: Series::steps(live),
            resident: Series::of(resident),
            allocations: rising(Series::of(allocations)),
            undated_allocations,
        }
    }

    /// Returns the time interval of each of `count` columns from the start to the end.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// # let mut timeline = heaptide_analysis::views::timeline::Timeline::of(&process);
    /// timeline.duration_ns = 10;
    /// assert_eq!(timeline.columns(4), [(0, 2), (2, 5), (5, 7), (7, 10)]);
    /// ```
    pub fn columns(&self, count: usize) -> Vec<(u64, u64)> {
        let edge =
            |i: usize| (u128::from(self.duration_ns) * i as u128 / count.max(1) as u128) as u64;
        (0..count).map(|i| (edge(i), edge(i + 1))).collect()
    }

    /// Returns the column that contains a time.
    pub fn column(&self, time: u64, count: usize) -> usize {
        let at = u128::from(time) * count as u128 / u128::from(self.duration_ns);
        (at as usize).min(count.saturating_sub(1))
    }

    /// Returns the allocations per second between two times.
    pub fn rate(&self, (from, to): (u64, u64)) -> f64 {
        let seconds = (to - from).max(1) as f64 / 1e9;
        (self.allocations.at(to) - self.allocations.at(from)).max(0.0) / seconds
    }
}

/// Makes counters monotonic: after a reset the totals start again, and a counter can be read
/// slightly earlier.
fn rising(mut series: Series) -> Series {
    let mut most = 0;
    for point in &mut series.points {
        most = most.max(point.1);
        point.1 = most;
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(samples: &[(u64, u64, u64)]) -> Process {
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(b"HEAPTIDE");
        (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
        let mut process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
        let sample = |&(time_ns, live_bytes, allocations): &(u64, u64, u64)| Sample {
            time_ns,
            live_bytes,
            peak_bytes: live_bytes,
            allocations,
            frees: 0,
            usable_bytes: live_bytes,
            resident_bytes: 0,
            virtual_bytes: 0,
        };
        process.time.samples = samples.iter().map(sample).collect();
        process
    }

    #[test]
    fn without_samples_there_is_start_peak_and_end() {
        let mut process = process(&[]);
        (process.lifetime.duration_ns, process.peak_time_ns) = (100, 40);
        process.lifetime.duration_is_known = true;
        (process.totals.peak_bytes, process.totals.live_bytes) = (800, 200);
        process.totals.allocations = 50;
        let timeline = Timeline::of(&process);
        assert_eq!([0, 20, 40, 70, 100].map(|t| timeline.live.at(t)), [0., 0., 800., 800., 200.]);
        assert!(timeline.resident.is_empty());
        assert_eq!(timeline.rate((0, 50)), 0.5e9);
        assert_eq!(timeline.live.top(), (40, 800));
        process.identity.images = 2;
        let joined = Timeline::of(&process);
        assert_eq!(joined.live.top(), (0, 0), "peaks of several are not of one moment");
    }

    #[test]
    fn without_a_known_end_there_is_no_rate_after_the_last_sample() {
        let mut process = process(&[(50, 5, 20)]);
        (process.lifetime.duration_ns, process.totals.allocations) = (60, 1_000_000);
        let timeline = Timeline::of(&process);
        assert!(!process.lifetime.duration_is_known);
        assert_eq!((timeline.rate((0, 50)), timeline.rate((50, 60))), (0.4e9, 0.0));
        assert_eq!(timeline.undated_allocations, 999_980);
        process.lifetime.duration_is_known = true;
        let timeline = Timeline::of(&process);
        assert_eq!((timeline.rate((50, 60)), timeline.undated_allocations), (99_998.0e9, 0));
    }

    #[test]
    fn of_nothing_there_is_a_line_at_zero() {
        let timeline = Timeline::of(&process(&[]));
        assert_eq!((timeline.duration_ns, timeline.live.top()), (1, (0, 0)));
        assert_eq!((timeline.columns(3).len(), timeline.column(7, 3)), (3, 2));
        assert_eq!(timeline.rate((0, 0)), 0.0);
    }

    #[test]
    fn samples_after_the_end_and_counts_that_fall_do_no_harm() {
        let timeline = Timeline::of(&process(&[(u64::MAX, 5, 9), (10, 7, 30), (10, 6, 8)]));
        assert_eq!(timeline.duration_ns, u64::MAX);
        assert_eq!((timeline.live.at(10), timeline.live.highest(0, 20)), (6.0, 7.0));
        assert_eq!(timeline.allocations.at(u64::MAX), 30.0);
        assert_eq!(timeline.column(u64::MAX, 80), 79);
    }
}
