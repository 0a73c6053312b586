//! Estimates of a sampled recording: what each site stands for.
//!
//! A site has the counts of its sampled blocks. They are nearly of one size, and so of one
//! probability p ([`heaptide_format::sample_class`]): each stands for 1 ÷ p blocks. Sums of that
//! are unbiased, but differ from the totals, which are exact; [`super::calibrate`] has them agree.
//! A row then has no less than was sampled of it, and what it allocated is what is live and what was
//! freed.

use super::calibrate::{Cell, Lacking, calibrate};
use super::raw_site::RawSite;
use crate::model::{Combine, Measure, Measures, Moved, Sampling, Site, Spread, Sum};
use crate::profile::parsed;

/// The variance of a byte of slack where none was sampled.
const LITTLE: f64 = 1e-9;

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

    /// That of blocks of so many usable bytes on average.
    pub(crate) fn of_size(bytes: f64, mean: u64) -> Weight {
        let bytes = bytes.max(1.0);
        let means = bytes / mean.max(1) as f64;
        let (missed, sampled) = ((-means).exp(), -(-means).exp_m1());
        let variance = missed / (sampled * sampled);
        Weight { bytes, blocks: 1.0 / sampled, variance, effective: means * means * variance }
    }

    /// Usable bytes of a block, on average; 1 at least.
    pub(crate) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// What so many sampled blocks, or bytes of them, stand for.
    pub(crate) fn estimate(&self, sampled: u64) -> u64 {
        (sampled as f64 * self.blocks).round() as u64
    }

    /// The estimate of what all blocks have, of which so many were sampled that have `value`.
    pub(crate) fn cell(&self, blocks: u64, value: u64) -> Cell {
        let of_one = value as f64 / blocks.max(1) as f64;
        Cell {
            value: value as f64 * self.blocks,
            variance: blocks as f64 * of_one * of_one * self.variance,
            least: value,
            most: u64::MAX,
        }
    }

    /// The same of their number.
    pub(crate) fn count(&self, blocks: u64) -> Cell {
        self.cell(blocks, blocks)
    }
}

/// Estimates on their way.
pub(crate) struct Estimates {
    /// By site; sites behind them are not sampled.
    weights: Vec<Weight>,
    /// How the process was sampled.
    pub(crate) sampling: Sampling,
    /// Counts are since a reset: what is live may have been allocated before.
    is_part: bool,
}

impl Estimates {
    /// Estimates of a profile's sites; `mean_bytes` were allocated for each sampled block.
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
        let columns = Columns { weights: &self.weights, sampled: &sampled };
        columns.moved(sites);
        columns.live(sites, totals);
        columns.freed(sites, totals);
        if self.is_part {
            columns.allocated(sites, totals);
        } else {
            sites.iter_mut().for_each(allocated_is_live_or_freed);
        }
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
            let own = own(site).0;
            let measures = &mut site.measures;
            measures.spread = Spread {
                allocated: of(measures.allocations),
                live: of(measures.live_blocks),
                at_peak: of(measures.at_peak_blocks),
            };
            let sampling = &mut self.sampling;
            sampling.blocks = sampling.blocks.saturating_add(own);
            sampling.whole.add(&Spread { allocated: of(own), ..measures.spread });
        }
    }

    /// The same of what was live at the peak, which adds up to `peak_bytes`. Returns what no row
    /// stands for.
    pub(crate) fn estimate_peak(&mut self, sites: &mut [RawSite], peak_bytes: u64) -> u64 {
        let cells = sites.iter().zip(&self.weights).map(|(site, weight)| {
            weight.cell(site.measures.at_peak_blocks, site.measures.at_peak_bytes)
        });
        let whole = calibrate(&cells.collect::<Vec<_>>(), peak_bytes, Lacking::MayBeUnseen);
        for ((site, weight), &bytes) in sites.iter_mut().zip(&self.weights).zip(&whole) {
            let m = &mut site.measures;
            // How many blocks there were is not known.
            let blocks = (bytes as f64 / weight.bytes).round() as u64;
            (m.at_peak_blocks, m.at_peak_bytes) = (blocks.max(m.at_peak_blocks), bytes);
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
}

impl Columns<'_> {
    /// Has a column add up to a total. `cell` makes the estimate of what was sampled; `set` takes the
    /// result.
    fn column(
        &self,
        sites: &mut [RawSite],
        total: u64,
        cell: impl Fn(&Weight, &RawSite) -> Cell,
        set: impl Fn(&mut RawSite, u64),
    ) {
        let rows = self.weights.iter().zip(self.sampled);
        let cells: Vec<Cell> = rows.map(|(weight, row)| cell(weight, row)).collect();
        let whole = calibrate(&cells, total, Lacking::MayBeUnseen);
        sites.iter_mut().zip(whole).for_each(|(site, value)| set(site, value));
    }

    /// What labels moved from one site to another, which no total has.
    fn moved(&self, sites: &mut [RawSite]) {
        for (site, weight) in sites.iter_mut().zip(self.weights) {
            let Moved { blocks, usable_bytes, requested_bytes } = &mut site.moved;
            for moved in [blocks, usable_bytes, requested_bytes] {
                *moved = weight.estimate(*moved);
            }
        }
    }

    /// What is live.
    fn live(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.live_bytes,
            |weight, row| weight.cell(row.measures.live_blocks, row.measures.live_bytes),
            |site, bytes| site.measures.live_bytes = bytes,
        );
        self.column(
            sites,
            totals.live_blocks,
            |weight, row| weight.count(row.measures.live_blocks),
            |site, blocks| site.measures.live_blocks = blocks,
        );
    }

    /// What was freed, or by labels moved to another site. Of the blocks, the number of temporary
    /// ones is known, too.
    fn freed(&self, sites: &mut [RawSite], totals: &Measures) {
        let moved = sites.iter().fold((0u64, 0u64), |sum, site| {
            let Moved { blocks, usable_bytes, .. } = site.moved;
            (sum.0.saturating_add(blocks), sum.1.saturating_add(usable_bytes))
        });
        self.column(
            sites,
            totals.freed_bytes.saturating_add(moved.1),
            |weight, row| weight.cell(row.measures.frees, row.measures.freed_bytes),
            |site, bytes| site.measures.freed_bytes = bytes,
        );
        self.column(
            sites,
            totals.temporary,
            |weight, row| weight.count(row.measures.temporary),
            |site, blocks| site.measures.temporary = blocks,
        );
        self.column(
            sites,
            totals.frees.saturating_sub(totals.temporary).saturating_add(moved.0),
            |weight, Site { measures: m, .. }| weight.count(m.frees.saturating_sub(m.temporary)),
            |Site { measures: m, .. }, blocks| m.frees = m.temporary.saturating_add(blocks),
        );
    }

    /// What was allocated since a reset.
    fn allocated(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.usable_bytes,
            |weight, row| weight.cell(own(row).0, own(row).1),
            |site, bytes| {
                site.measures.usable_bytes = bytes.saturating_add(site.moved.usable_bytes);
            },
        );
        self.column(
            sites,
            totals.allocations,
            |weight, row| weight.count(own(row).0),
            |site, blocks| site.measures.allocations = blocks.saturating_add(site.moved.blocks),
        );
    }

    /// Blocks that something happened to.
    fn events(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.reallocations,
            |weight, row| weight.count(row.measures.reallocations),
            |site, blocks| site.measures.reallocations = blocks,
        );
        // Their total is not known.
        for (site, weight) in sites.iter_mut().zip(self.weights) {
            let m = &mut site.measures;
            m.cross_thread_frees = weight.estimate(m.cross_thread_frees).min(m.frees);
        }
    }

    /// Bytes requested: those that are not slack, of which no row has more than it has bytes. What
    /// no row stands for has as much of it as all.
    fn requested(&self, sites: &mut [RawSite], totals: &Measures) {
        let unseen = lacking(totals, sites).usable_bytes;
        let part = totals.slack_bytes() as f64 / totals.usable_bytes.max(1) as f64;
        let unseen = ((unseen as f64 * part).round() as u64).min(unseen);
        let rows = self.weights.iter().zip(self.sampled).zip(sites.iter());
        let cells = rows.map(|((weight, row), site)| {
            let (blocks, usable) = own(row);
            let requested = row.measures.requested_bytes.saturating_sub(row.moved.requested_bytes);
            let cell = weight.cell(blocks, usable.saturating_sub(requested));
            let most = own(site).1;
            // Where no sampled block has slack, all may have a little.
            let variance = cell.variance + most as f64 * LITTLE;
            Cell { least: 0, most, variance, ..cell }
        });
        let slack = totals.slack_bytes().saturating_sub(unseen);
        let whole = calibrate(&cells.collect::<Vec<_>>(), slack, Lacking::IsError);
        for (site, slack) in sites.iter_mut().zip(whole) {
            let requested = own(site).1.saturating_sub(slack);
            site.measures.requested_bytes = requested.saturating_add(site.moved.requested_bytes);
        }
    }
}

/// What a site allocated is what is live, and what was freed or moved by labels.
fn allocated_is_live_or_freed(site: &mut RawSite) {
    let m = &mut site.measures;
    m.allocations = m.live_blocks.saturating_add(m.frees);
    m.usable_bytes = m.live_bytes.saturating_add(m.freed_bytes);
}

/// Blocks and bytes that a site allocated, without those that came by labelling.
fn own(site: &RawSite) -> (u64, u64) {
    let (m, moved) = (&site.measures, &site.moved);
    let blocks = m.allocations.saturating_sub(moved.blocks);
    (blocks, m.usable_bytes.saturating_sub(moved.usable_bytes))
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
