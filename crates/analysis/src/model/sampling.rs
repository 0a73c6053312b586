//! Sampled recordings: precision of the estimates of a row.
//!
//! The recorder samples a block of n usable bytes with the probability p = 1 − exp(−n ÷ mean), so
//! each sampled block represents 1 ÷ p of its size (Horvitz and Thompson, 1952). The variance of
//! that estimate is the sum of (n ÷ p)² (1 − p) over the sampled blocks. In units of mean² this is
//! the *effective number* of sampled blocks: a small block counts as 1, a block far above the mean
//! as 0, because it is always sampled. A sum of bytes has the relative error of a count of this
//! many events.

use super::measure::{Measure, Measures};
use super::spread::Spread;
use crate::binomial;

impl Spread {
    /// Returns the effective number for a metric that counts usable bytes; `None` for other
    /// metrics.
    pub fn of(&self, metric: Measure) -> Option<f32> {
        match metric {
            Measure::UsableBytes | Measure::RequestedBytes | Measure::FreedBytes => {
                Some(self.allocated)
            }
            Measure::LiveBytes => Some(self.live),
            Measure::AtPeakBytes => Some(self.at_peak),
            _ => None,
        }
    }
}

/// Sampling parameters and precision of a process.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sampling {
    /// Mean of usable bytes allocated per sampled block; for joined processes the largest mean.
    pub mean_bytes: u64,
    /// Sampled blocks.
    pub blocks: u64,
    /// Effective numbers of the whole process, independent of the selection.
    pub whole: Spread,
    /// Bytes of the whole process that no sampled block represents: allocated, live, at peak.
    pub rest: [u64; 3],
    /// Bytes by which all estimates were raised to the totals: allocated, live, at peak.
    pub raised: [u64; 3],
}

/// The 95 % interval of an estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The lower limit.
    pub low: u64,
    /// The upper limit.
    pub high: u64,
}

impl Interval {
    /// Returns whether the value is within the interval.
    pub fn contains(&self, value: u64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl Sampling {
    /// Converts the effective numbers to another mean.
    pub(crate) fn in_units_of(self, mean_bytes: u64) -> Sampling {
        let whole = self.whole.in_units(self.mean_bytes, mean_bytes);
        Sampling { mean_bytes, whole, ..self }
    }

    /// Returns the 95 % interval of a metric of a row; `None` for exact metrics and for counts of
    /// blocks.
    ///
    /// The row's share of the effective number of the process has the limits of a binomial
    /// distribution: because totals are exact, an excess in one row is a deficit in the others. If
    /// the estimates were raised, each effective block represents more than the mean.
    ///
    /// ```
    /// use heaptide_analysis::model::{Measure, Measures, Sampling, Spread};
    /// let whole = Spread { live: 100.0, ..Spread::default() };
    /// let sampling = Sampling { mean_bytes: 1000, whole, ..Sampling::default() };
    /// let spread = Spread { live: 10.0, ..Spread::default() };
    /// let row = Measures { live_bytes: 10_000, spread, ..Measures::default() };
    /// let interval = sampling.interval(Measure::LiveBytes, &row).unwrap();
    /// assert_eq!((interval.low, interval.high), (4_900, 17_623));
    /// ```
    pub fn interval(&self, metric: Measure, row: &Measures) -> Option<Interval> {
        let metric = metric.of_sites();
        let (own, all) = (row.spread.of(metric)?, self.whole.of(metric)?);
        let value = metric.of(row);
        // In a selection from several processes, a row can have a larger number than `whole`.
        let (own, all) = (f64::from(own), f64::from(all.max(own)));
        let (low, high) = binomial::limits(own, all);
        let raised = self.part_of(self.raised, metric) as f64;
        let unit = self.mean_bytes as f64 + if all > 0.0 { raised / all } else { 0.0 };
        let below = (own - low * all) * unit;
        let above = (high * all - own) * unit + self.unseen(metric);
        Some(Interval {
            low: value.saturating_sub(below.ceil() as u64),
            high: value.saturating_add(above.ceil() as u64),
        })
    }

    /// Returns an upper limit of a row's part of the bytes that no sampled block represents: a row
    /// with more bytes would have a sampled block in 97.5 % of all cases.
    fn unseen(&self, metric: Measure) -> f64 {
        const NATS: f64 = 3.688_879_454_113_936; // −ln 0.025
        let rest = self.part_of(self.rest, metric);
        (rest as f64).min(NATS * self.mean_bytes as f64)
    }

    /// Returns the bytes of a metric.
    fn part_of(&self, [allocated, live, at_peak]: [u64; 3], metric: Measure) -> u64 {
        match metric {
            Measure::LiveBytes => live,
            Measure::AtPeakBytes => at_peak,
            _ => allocated,
        }
    }

    /// Returns the size in bytes from which a row has a sampled block in at least 95 % of all
    /// cases.
    pub fn smallest_seen_bytes(&self) -> u64 {
        const NATS: f64 = 2.995_732_273_553_991; // −ln 0.05
        (NATS * self.mean_bytes as f64).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(live: f32, rest: u64) -> Sampling {
        let whole = Spread { live, ..Spread::default() };
        Sampling { mean_bytes: 1000, blocks: 1, whole, rest: [0, rest, 0], raised: [0; 3] }
    }

    fn row(live_bytes: u64, live: f32) -> Measures {
        let spread = Spread { live, ..Spread::default() };
        Measures { live_bytes, spread, ..Measures::default() }
    }

    fn limits(sampling: Sampling, row: &Measures) -> (u64, u64) {
        let found = sampling.interval(Measure::LiveBytes, row).expect("an interval");
        (found.low, found.high)
    }

    #[test]
    fn what_is_certain_is_exact() {
        assert_eq!(limits(sampling(0.0, 0), &row(70_000, 0.0)), (70_000, 70_000));
        // All unseen bytes can belong to this row, up to a likely part.
        assert_eq!(limits(sampling(0.0, 500), &row(70_000, 0.0)), (70_000, 70_500));
        assert_eq!(limits(sampling(0.0, 9000), &row(70_000, 0.0)), (70_000, 73_689));
    }

    #[test]
    fn a_row_without_a_sampled_block_may_have_a_few_bytes() {
        let (low, high) = limits(sampling(1e6, 0), &row(0, 0.0));
        assert!(low == 0 && (3688..=3690).contains(&high), "{high}");
    }

    #[test]
    fn the_whole_has_at_most_what_there_is() {
        let (low, high) = limits(sampling(50.0, 0), &row(50_000, 50.0));
        assert!(high == 50_000 && (46_000..47_000).contains(&low), "{low}");
    }

    /// Two blocks were sampled of what turned out to be 3,000 bytes.
    #[test]
    fn shares_are_of_the_bytes_to_which_estimates_were_raised() {
        let sampling = Sampling { raised: [0, 1000, 0], ..sampling(2.0, 0) };
        // 0.025^(1/2) of 3,000 bytes is 474.
        assert_eq!(limits(sampling, &row(3000, 2.0)), (474, 3000));
        assert_eq!(limits(sampling, &row(0, 0.0)), (0, 2526));
    }

    #[test]
    fn blocks_and_exact_metrics_have_no_interval() {
        let none = [Measure::LiveBlocks, Measure::Failed, Measure::LargestBytes];
        let has = |metric| sampling(9.0, 0).interval(metric, &row(9, 1.0)).is_some();
        assert_eq!(none.map(has), [false; 3]);
    }
}
