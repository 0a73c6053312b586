//! Sampled recordings: how exact the estimates of a row are.
//!
//! The recorder samples a block of n usable bytes with the probability p = 1 − exp(−n ÷ mean), so
//! each that it has stands for 1 ÷ p of its size (Horvitz and Thompson, 1952). The variance of that
//! estimate is the sum of (n ÷ p)² (1 − p) over the sampled blocks. In units of mean² this is the
//! *effective number* of sampled blocks: a small block counts as 1, one far above the mean as 0, for
//! it is never missed. A sum of bytes is as exact as a count of so many events.

use super::measure::{Measure, Measures};
use super::process::Process;
use crate::binomial;

/// Effective numbers of sampled blocks, of which the estimates of a row are made: 0 if it is exact.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// Of what was allocated.
    pub allocated: f32,
    /// Of what is live.
    pub live: f32,
    /// Of what was live at the peak.
    pub at_peak: f32,
}

// It is computed from counters, and never NaN.
impl Eq for Spread {}

impl Spread {
    /// Adds those of another row.
    pub fn add(&mut self, row: &Spread) {
        self.allocated += row.allocated;
        self.live += row.live;
        self.at_peak += row.at_peak;
    }

    /// The same if each sampled block is taken for so many bytes, and not for `own`.
    pub(crate) fn in_units(self, own: u64, mean_bytes: u64) -> Spread {
        let scale = (own as f64 / mean_bytes.max(1) as f64).powi(2) as f32;
        Spread {
            allocated: self.allocated * scale,
            live: self.live * scale,
            at_peak: self.at_peak * scale,
        }
    }

    /// That of a metric that counts usable bytes; none for others.
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

/// How a process was sampled.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sampling {
    /// Usable bytes that were allocated for each sampled block on average; of joined processes the
    /// largest.
    pub mean_bytes: u64,
    /// Sampled blocks.
    pub blocks: u64,
    /// Effective numbers of the whole process, whatever is selected of it.
    pub whole: Spread,
    /// Bytes of the whole process that no sampled block stands for: allocated, live, at the peak.
    pub rest: [u64; 3],
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
    /// Whether the value may be any between these.
    pub fn contains(&self, value: u64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl Sampling {
    /// The same with another mean.
    pub(crate) fn in_units_of(self, mean_bytes: u64) -> Sampling {
        let whole = self.whole.in_units(self.mean_bytes, mean_bytes);
        Sampling { mean_bytes, whole, ..self }
    }

    /// The 95 % interval of a metric of a row; none of a metric that is exact, or that counts
    /// blocks.
    ///
    /// The row's share of the effective number of the process has the limits of a binomial
    /// distribution. As the totals are exact, what a row has too much the others have too little.
    ///
    /// ```
    /// use heaptide_analysis::model::{Measure, Measures, Sampling, Spread};
    /// let whole = Spread { live: 100.0, ..Spread::default() };
    /// let sampling = Sampling { mean_bytes: 1000, whole, ..Sampling::default() };
    /// let spread = Spread { live: 10.0, ..Spread::default() };
    /// let row = Measures { live_bytes: 10_000, spread, ..Measures::default() };
    /// let interval = sampling.interval(Measure::LiveBytes, &row).unwrap();
    /// assert_eq!((interval.low, interval.high), (4_900, 17_622));
    /// ```
    pub fn interval(&self, metric: Measure, row: &Measures) -> Option<Interval> {
        let metric = metric.of_sites();
        let (own, all) = (row.spread.of(metric)?, self.whole.of(metric)?);
        let value = metric.of(row);
        // Of a selection that was made of several processes, a row may have more than one of them.
        let (own, all) = (f64::from(own), f64::from(all.max(own)));
        let (low, high) = binomial::limits(own, all);
        let unit = self.mean_bytes as f64;
        let below = (own - low * all) * unit;
        let above = (high * all - own) * unit + self.unseen(metric);
        Some(Interval {
            low: value.saturating_sub(below.ceil() as u64),
            high: value.saturating_add(above.ceil() as u64),
        })
    }

    /// What a row may have of the bytes that no sampled block stands for: no more than what is
    /// sampled in 97.5 % of all cases.
    fn unseen(&self, metric: Measure) -> f64 {
        const NATS: f64 = 3.688_879_454_113_936; // −ln 0.025
        let [allocated, live, at_peak] = self.rest;
        let rest = match metric {
            Measure::LiveBytes => live,
            Measure::AtPeakBytes => at_peak,
            _ => allocated,
        };
        (rest as f64).min(NATS * self.mean_bytes as f64)
    }

    /// Bytes below which a row may have no sampled block at all: more have one in 95 % of all cases.
    pub fn smallest_seen_bytes(&self) -> u64 {
        const NATS: f64 = 2.995_732_273_553_991; // −ln 0.05
        (NATS * self.mean_bytes as f64).ceil() as u64
    }
}

impl Process {
    /// The name of the mode that it was recorded with, as options have it.
    pub fn mode_name(&self) -> &'static str {
        match self.mode {
            _ if self.sampling.is_some() => heaptide_format::SAMPLED,
            mode => mode.name(),
        }
    }

    /// Whether it is a part of a process that was sampled, of which not even the totals are exact.
    pub fn is_part_of_sampled(&self) -> bool {
        // Sums of the same numbers in another order differ by less.
        const ROUNDING: f32 = 1e-3;
        self.sampling.is_some_and(|sampling| {
            let (part, whole) = (self.totals.spread, sampling.whole);
            let lacks = |part: f32, whole: f32| part < whole * (1.0 - ROUNDING);
            lacks(part.allocated, whole.allocated) || lacks(part.live, whole.live)
        })
    }

    /// The 95 % interval of a metric of a row of this process; none if it is exact, or has none
    /// ([`Sampling::interval`]).
    pub fn interval(&self, metric: Measure, row: &Measures) -> Option<Interval> {
        self.sampling.as_ref()?.interval(metric, row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(live: f32, rest: u64) -> Sampling {
        let whole = Spread { live, ..Spread::default() };
        Sampling { mean_bytes: 1000, blocks: 1, whole, rest: [0, rest, 0] }
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
        // All that is not seen may be of this row, or a likely part of it.
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

    #[test]
    fn blocks_and_exact_metrics_have_no_interval() {
        let none = [Measure::LiveBlocks, Measure::Failed, Measure::LargestBytes];
        let has = |metric| sampling(9.0, 0).interval(metric, &row(9, 1.0)).is_some();
        assert_eq!(none.map(has), [false; 3]);
    }
}
