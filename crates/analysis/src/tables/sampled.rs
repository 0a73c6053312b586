//! Estimates of a sampled recording: what each site stands for.
//!
//! A site has the counts of its sampled blocks. They are nearly of one size, and so of one
//! probability p ([`heaptide_format::sample_class`]): each stands for 1 ÷ p blocks. Sums of that
//! are unbiased, but differ from the totals, which are exact; [`super::calibrate`] has them agree.
//! A row then has no less than was sampled of it, and no more live, or at the peak, than allocated.

use super::calibrate::{Cell, Lacking, calibrate};
use super::raw_site::RawSite;
use crate::model::{Combine, Measure, Measures, Moved, Sampling, Spread, Sum};
use crate::profile::parsed;

/// What a sampled block of a site stands for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weight {
    /// Usable bytes of a block, on average.
    bytes: f64,
    /// Blocks that one stands for.
    blocks: f64,
    /// The variance of that.
    variance: f64,
    /// Its effective number ([`crate::model::Spread`]).
    effective: f64,
}

impl Weight {
    /// That of the blocks of a site; `mean` bytes were allocated for each sampled block.
    pub(crate) fn of(counters: &heaptide_format::Site, mean: u64) -> Weight {
        let bytes = counters.usable_bytes as f64 / counters.allocations.max(1) as f64;
        Weight::of_size(bytes, mean)
    }

    fn of_size(bytes: f64, mean: u64) -> Weight {
        let bytes = bytes.max(1.0);
        let means = bytes / mean.max(1) as f64;
        let (missed, sampled) = ((-means).exp(), -(-means).exp_m1());
        let variance = missed / (sampled * sampled);
        Weight { bytes, blocks: 1.0 / sampled, variance, effective: means * means * variance }
    }

    /// What so many sampled blocks, or bytes of them, stand for.
    pub(crate) fn estimate(&self, sampled: u64) -> u64 {
        (sampled as f64 * self.blocks).round() as u64
    }

    /// The estimate of what so many sampled blocks had, if it is `value` in all.
    fn cell(&self, blocks: u64, value: u64, most: u64) -> Cell {
        let of_one = value as f64 / blocks.max(1) as f64;
        Cell {
            value: value as f64 * self.blocks,
            variance: blocks as f64 * of_one * of_one * self.variance,
            least: value,
            most,
        }
    }
}

/// Estimates on their way.
pub(crate) struct Estimates {
    /// By site; sites behind them are not sampled.
    weights: Vec<Weight>,
    /// How the process was sampled.
    pub(crate) sampling: Sampling,
    /// Counts are since a reset, and more may be live than was allocated.
    is_part: bool,
}

impl Estimates {
    /// Estimates of a profile's sites, whose mean is `mean`.
    pub(crate) fn new(sites: &[parsed::Site], mean_bytes: u64, is_part: bool) -> Estimates {
        let weights = sites.iter().map(|site| Weight::of(&site.counters, mean_bytes)).collect();
        let sampling = Sampling { mean_bytes, ..Sampling::default() };
        Estimates { weights, sampling, is_part }
    }

    /// Turns what was sampled into estimates that add up to these totals; not yet what was live at
    /// the peak. Returns what the totals have and no row stands for.
    pub(crate) fn estimate(&mut self, sites: &mut [RawSite], totals: &Measures) -> Measures {
        self.spread(sites);
        let sampled = sites.to_vec();
        for (site, weight) in sites.iter_mut().zip(&self.weights) {
            let Moved { blocks, usable_bytes, requested_bytes } = &mut site.moved;
            for moved in [blocks, usable_bytes, requested_bytes] {
                *moved = weight.estimate(*moved);
            }
        }
        let columns = Columns { weights: &self.weights, sampled: &sampled, is_part: self.is_part };
        columns.allocated(sites, totals);
        columns.live(sites, totals);
        columns.freed(sites, totals);
        columns.events(sites, totals);
        columns.requested(sites, totals);
        let rest = lacking(totals, sites);
        self.sampling.rest[..2].copy_from_slice(&[rest.usable_bytes, rest.live_bytes]);
        rest
    }

    /// Notes how many sampled blocks there are, and how exact each row is.
    fn spread(&mut self, sites: &mut [RawSite]) {
        for (site, weight) in sites.iter_mut().zip(&self.weights) {
            let of = |blocks: u64| (blocks as f64 * weight.effective) as f32;
            let measures = &mut site.measures;
            measures.spread = Spread {
                allocated: of(measures.allocations),
                live: of(measures.live_blocks),
                at_peak: of(measures.at_peak_blocks),
            };
            let own = measures.allocations.saturating_sub(site.moved.blocks);
            let sampling = &mut self.sampling;
            sampling.blocks = sampling.blocks.saturating_add(own);
            sampling.whole.add(&Spread { allocated: of(own), ..measures.spread });
        }
    }

    /// The same of what was live at the peak, which adds up to `peak_bytes`. Returns what no row
    /// stands for.
    pub(crate) fn estimate_peak(&mut self, sites: &mut [RawSite], peak_bytes: u64) -> u64 {
        let most =
            |measures: &Measures| if self.is_part { u64::MAX } else { measures.usable_bytes };
        let rows = || sites.iter().zip(&self.weights);
        let cells = rows().map(|(site, weight)| {
            let m = &site.measures;
            weight.cell(m.at_peak_blocks, m.at_peak_bytes, most(m))
        });
        let whole = calibrate(&cells.collect::<Vec<_>>(), peak_bytes, Lacking::MayBeUnseen);
        for ((site, weight), &bytes) in sites.iter_mut().zip(&self.weights).zip(&whole) {
            let m = &mut site.measures;
            let blocks = (bytes as f64 / weight.bytes.max(1.0)).round() as u64;
            let most = if self.is_part { u64::MAX } else { m.allocations.max(m.at_peak_blocks) };
            m.at_peak_blocks = blocks.max(m.at_peak_blocks).min(most);
            m.at_peak_bytes = bytes;
        }
        let rest = peak_bytes.saturating_sub(whole.iter().sum());
        self.sampling.rest[2] = rest;
        rest
    }

    /// The peak is what is live now: so is what was live at it.
    pub(crate) fn peak_is_live(&mut self) {
        let Sampling { whole, rest, .. } = &mut self.sampling;
        (whole.at_peak, rest[2]) = (whole.live, rest[1]);
    }
}

/// Columns of rows, which become estimates one after the other.
struct Columns<'a> {
    weights: &'a [Weight],
    sampled: &'a [RawSite],
    is_part: bool,
}

impl Columns<'_> {
    /// Has a column add up to a total. `cell` makes the estimate of what was sampled, of a row as it
    /// is so far; `set` takes the result.
    fn column(
        &self,
        sites: &mut [RawSite],
        total: u64,
        lacking: Lacking,
        cell: impl Fn(&Weight, &RawSite, &RawSite) -> Cell,
        set: impl Fn(&mut RawSite, u64),
    ) {
        let rows = self.weights.iter().zip(self.sampled).zip(sites.iter());
        let cells: Vec<Cell> = rows.map(|((weight, row), site)| cell(weight, row, site)).collect();
        let whole = calibrate(&cells, total, lacking);
        sites.iter_mut().zip(whole).for_each(|(site, value)| set(site, value));
    }

    /// Blocks and bytes that were allocated; those that labels moved come on top.
    fn allocated(&self, sites: &mut [RawSite], totals: &Measures) {
        let own = |row: &RawSite| {
            let (m, moved) = (&row.measures, &row.moved);
            let blocks = m.allocations.saturating_sub(moved.blocks);
            (blocks, m.usable_bytes.saturating_sub(moved.usable_bytes))
        };
        self.column(
            sites,
            totals.usable_bytes,
            Lacking::MayBeUnseen,
            |weight, row, _| weight.cell(own(row).0, own(row).1, u64::MAX),
            |site, bytes| {
                site.measures.usable_bytes = bytes.saturating_add(site.moved.usable_bytes)
            },
        );
        self.column(
            sites,
            totals.allocations,
            Lacking::MayBeUnseen,
            |weight, row, _| weight.cell(own(row).0, own(row).0, u64::MAX),
            |site, blocks| site.measures.allocations = blocks.saturating_add(site.moved.blocks),
        );
    }

    /// The most that a row may have of what was allocated.
    fn most(&self, allocated: u64) -> u64 {
        if self.is_part { u64::MAX } else { allocated }
    }

    /// What is live of it.
    fn live(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.live_bytes,
            Lacking::MayBeUnseen,
            |weight, row, site| {
                let m = &row.measures;
                weight.cell(m.live_blocks, m.live_bytes, self.most(site.measures.usable_bytes))
            },
            |site, bytes| site.measures.live_bytes = bytes,
        );
        self.column(
            sites,
            totals.live_blocks,
            Lacking::MayBeUnseen,
            |weight, row, site| {
                let live = row.measures.live_blocks;
                weight.cell(live, live, self.most(site.measures.allocations))
            },
            |site, blocks| site.measures.live_blocks = blocks,
        );
    }

    /// What was freed: what is not live, or since a reset a column of its own, in which labels have
    /// moved blocks, too.
    fn freed(&self, sites: &mut [RawSite], totals: &Measures) {
        if !self.is_part {
            for RawSite { measures: m, .. } in sites {
                m.frees = m.allocations.saturating_sub(m.live_blocks);
                m.freed_bytes = m.usable_bytes.saturating_sub(m.live_bytes);
            }
            return;
        }
        let moved = sites.iter().fold((0u64, 0u64), |sum, site| {
            let Moved { blocks, usable_bytes, .. } = site.moved;
            (sum.0.saturating_add(blocks), sum.1.saturating_add(usable_bytes))
        });
        self.column(
            sites,
            totals.freed_bytes.saturating_add(moved.1),
            Lacking::MayBeUnseen,
            |weight, row, _| weight.cell(row.measures.frees, row.measures.freed_bytes, u64::MAX),
            |site, bytes| site.measures.freed_bytes = bytes,
        );
        self.column(
            sites,
            totals.frees.saturating_add(moved.0),
            Lacking::MayBeUnseen,
            |weight, row, _| weight.cell(row.measures.frees, row.measures.frees, u64::MAX),
            |site, blocks| site.measures.frees = blocks,
        );
    }

    /// Blocks that something happened to: no more than there are.
    fn events(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.temporary,
            Lacking::MayBeUnseen,
            |weight, row, site| {
                let temporary = row.measures.temporary;
                weight.cell(temporary, temporary, site.measures.frees)
            },
            |site, blocks| site.measures.temporary = blocks,
        );
        self.column(
            sites,
            totals.reallocations,
            Lacking::MayBeUnseen,
            |weight, row, site| {
                let reallocations = row.measures.reallocations;
                weight.cell(reallocations, reallocations, site.measures.allocations)
            },
            |site, blocks| site.measures.reallocations = blocks,
        );
        // Their total is not known.
        for (site, weight) in sites.iter_mut().zip(self.weights) {
            let m = &mut site.measures;
            m.cross_thread_frees = weight.estimate(m.cross_thread_frees).min(m.frees);
        }
    }

    /// Bytes requested: those that are not slack, which no row has more of than bytes. What no row
    /// stands for has as much of it as all.
    fn requested(&self, sites: &mut [RawSite], totals: &Measures) {
        let unseen = lacking(totals, sites).usable_bytes;
        let part = totals.slack_bytes() as f64 / totals.usable_bytes.max(1) as f64;
        let unseen = ((unseen as f64 * part).round() as u64).min(unseen);
        let own = |m: &Measures, moved: &Moved| {
            let usable = m.usable_bytes.saturating_sub(moved.usable_bytes);
            (usable, m.requested_bytes.saturating_sub(moved.requested_bytes))
        };
        self.column(
            sites,
            totals.slack_bytes().saturating_sub(unseen),
            Lacking::IsError,
            |weight, row, site| {
                let blocks = row.measures.allocations.saturating_sub(row.moved.blocks);
                let (usable, requested) = own(&row.measures, &row.moved);
                let slack = usable.saturating_sub(requested);
                let cell = weight.cell(blocks, slack, own(&site.measures, &site.moved).0);
                // Slack is that of what was sampled, and no less certain than that.
                Cell { least: 0, ..cell }
            },
            |site, slack| {
                let requested = own(&site.measures, &site.moved).0.saturating_sub(slack);
                site.measures.requested_bytes =
                    requested.saturating_add(site.moved.requested_bytes);
            },
        );
    }
}

/// What totals have and sites do not.
fn lacking(totals: &Measures, sites: &[RawSite]) -> Measures {
    let has = Sum::over(sites);
    let mut lacking = Measures::default();
    for &metric in Measure::all() {
        if metric.combine() == Combine::Sum {
            metric.set(&mut lacking, metric.of(totals).saturating_sub(metric.of(&has)));
        }
    }
    lacking
}
