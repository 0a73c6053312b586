//! Live memory that grows from the start of a run to its end at a similar rate.
//!
//! Conditions exclude what compilers, linkers and sorters show: phases, levels, limits.

use heaptide_analysis::model::{Process, Sample};

use crate::timeline::{floors, last_time_above};

/// Live bytes from which a time belongs to the work of the program rather than to its cleanup, in
/// percent of the largest sample.
const AT_WORK_PERCENT_MIN: u64 = 90;
/// The number of equal parts of the run whose least live bytes are compared. The first is the start
/// of the program.
pub const PARTS: usize = 10;
/// The minimal growth, in bytes and in percent of the largest sample: less may be random, or a
/// small part of a program that has its data in memory.
const GROWTH_MIN: u64 = 1 << 20;
const GROWTH_PERCENT_MIN: u64 = 50;
/// The same for growth that is even: beside data from the start, less of the memory grows.
const EVEN_PERCENT_MIN: u64 = 20;
/// The maximal fraction of the growth in one part: more indicates a phase. For even growth: of the
/// eight parts, each has about an eighth.
const PART_MAX: u64 = 3;
const EVEN_PART_MAX: u64 = 6;
/// The minimal fraction of the growth in the second half, and in the last quarter: with less,
/// growth slows down and may have a limit.
const SECOND_HALF_MIN: u64 = 3;
const LAST_QUARTER_MIN: u64 = 8;
/// The last tenth of the run must grow, too: by this percentage of the growth, the largest sample
/// is above those before it.
const LAST_PERCENT_MIN: u64 = 6;

/// The maximal number of frees of blocks whose allocation was not recorded, in percent of blocks
/// at peak.
const UNMATCHED_PERCENT_MAX: u64 = 1;

/// The growth of a process until the end of its work.
#[derive(Clone, Debug)]
pub struct SteadyGrowth {
    /// The end of its work, nanoseconds from the start: afterwards, it frees its memory.
    pub end_ns: u64,
    /// The least live bytes in each of equal parts of the time until then.
    pub floors: [u64; PARTS],
    /// Live bytes of the largest sample.
    pub highest: u64,
    /// Live bytes of the largest sample before the last part.
    before_last: u64,
}

impl SteadyGrowth {
    /// Returns the growth of a process whose work takes at least `run_min_ns`, if it is as steady
    /// as in a process whose memory has no bound.
    ///
    /// If blocks were freed whose allocation was not recorded, as after attaching, new blocks may
    /// have taken the place of older ones.
    pub fn of(process: &Process, run_min_ns: u64) -> Option<SteadyGrowth> {
        let unmatched = process.completeness.unmatched_frees;
        if unmatched > process.totals.at_peak_blocks / 100 * UNMATCHED_PERCENT_MAX {
            return None;
        }
        let samples = &process.time.samples;
        let highest = samples.iter().map(|sample| sample.live_bytes).max()?;
        let end_ns = last_time_above(process, highest / 100 * AT_WORK_PERCENT_MIN)?;
        let growth = SteadyGrowth::until(samples, end_ns);
        (end_ns >= run_min_ns && growth.is_steady()).then_some(growth)
    }

    fn until(samples: &[Sample], end_ns: u64) -> SteadyGrowth {
        let most = |samples: &[Sample]| samples.iter().map(|sample| sample.live_bytes).max();
        let last_part_ns = end_ns - end_ns / PARTS as u64;
        let before_last = samples.partition_point(|sample| sample.time_ns < last_part_ns);
        SteadyGrowth {
            end_ns,
            floors: floors(samples, end_ns),
            highest: most(samples).unwrap_or(0),
            before_last: most(&samples[..before_last]).unwrap_or(0),
        }
    }

    /// Returns the least live bytes of the second part of the run, when the program has its data,
    /// and those of the last part.
    pub fn ends(&self) -> (u64, u64) {
        (self.floors[1], self.floors[PARTS - 1])
    }

    /// Returns the bytes by which live memory grew between these parts.
    pub fn bytes(&self) -> u64 {
        let (from, to) = self.ends();
        to.saturating_sub(from)
    }

    /// Returns the time between these parts, in nanoseconds.
    pub fn time_ns(&self) -> u64 {
        self.end_ns / PARTS as u64 * (PARTS as u64 - 2)
    }

    /// Returns the bytes by which live memory grew per second.
    pub fn bytes_per_second(&self) -> u64 {
        let growth = u128::from(self.bytes()) * 1_000_000_000;
        (growth / u128::from(self.time_ns().max(1))) as u64
    }

    fn is_steady(&self) -> bool {
        let grown = self.bytes();
        let steps = self.floors[1..].windows(2).map(|pair| pair[1].checked_sub(pair[0]));
        let Some(steps) = steps.collect::<Option<Vec<u64>>>() else { return false };
        let sum = |steps: &[u64]| steps.iter().fold(0u64, |sum, step| sum.saturating_add(*step));
        let flat = steps.iter().filter(|step| **step == 0).count();
        let largest = steps.iter().max().copied().unwrap_or(0);
        let (half, quarter) = (steps.len() / 2, steps.len() / 4);
        let is = |percent_min: u64, flat_max: usize, part_max: u64| {
            grown >= self.highest / 100 * percent_min
                && flat <= flat_max
                && largest <= grown / part_max
        };
        grown >= GROWTH_MIN
            && (is(GROWTH_PERCENT_MIN, 1, PART_MAX) || is(EVEN_PERCENT_MIN, 0, EVEN_PART_MAX))
            && self.highest - self.before_last >= grown / 100 * LAST_PERCENT_MIN
            && sum(&steps[half..]) >= grown / SECOND_HALF_MIN
            && sum(&steps[steps.len() - quarter..]) >= grown / LAST_QUARTER_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: u64 = 100;

    /// Returns whether live MiB with these values, each second, grow steadily.
    fn grows(live: impl Fn(u64) -> f64) -> bool {
        let mib = |second| (live(second).max(0.0) * f64::from(1 << 20)) as u64;
        let samples: Vec<Sample> = (0..SECONDS)
            .map(|second| Sample {
                time_ns: second * 1_000_000_000,
                live_bytes: mib(second),
                ..Sample::default()
            })
            .collect();
        SteadyGrowth::until(&samples, SECONDS * 1_000_000_000).is_steady()
    }

    #[test]
    fn steady_growth_is_distinct_from_phases_limits_and_levels() {
        let at = |second: u64| second as f64;
        assert!(grows(at));
        assert!(grows(|s| at(s) * 7.0 + at(s % 3) * 5.0), "requests need memory for a moment");
        assert!(grows(|s| at(s / 4 * 4)), "in steps");
        assert!(grows(|s| at(s) + 20.0), "with data that it has from its start on");
        assert!(grows(|s| at(s) + 100.0), "with as much data from its start on");
        assert!(grows(|s| at(s) + 100.0 + at(s % 3) * 5.0), "that, and requests");
        assert!(!grows(|s| at(s / 20 * 20) + 100.0), "with as much data, in five phases");
        assert!(!grows(|s| at(s) * 0.01), "less than a MiB");
        assert!(!grows(|_| 50.0), "a level");
        assert!(!grows(|s| at(s.min(50))), "built, then used");
        assert!(!grows(|s| at(s.min(85))), "built, then written");
        assert!(!grows(|s| if s < 60 { 1.0 } else { at(s) }), "a late phase");
        assert!(!grows(|s| at(s % 10) + at(s) * 0.1 * at(s % 20)), "a saw");
        assert!(!grows(|s| 100.0 * (1.0 - (-at(s) / 40.0).exp())), "a limit");
        assert!(!grows(|s| at(s) + 400.0), "a small part of its data");
        assert!(!grows(|s| f64::from(1u32 << (s / 6).min(20))), "a container that doubles");
        assert!(!grows(|s| 100.0 - at(s)), "it shrinks");
    }
}
