//! Estimates the counters of sites in a sampled recording.
//!
//! A site counts its sampled blocks. Their sizes are similar, so they have nearly the same
//! probability p ([`heaptide_format::sample_class`]): each represents 1 ÷ p blocks. Sums of these
//! estimates are unbiased but differ from the totals, which are exact; [`super::calibrate`] adjusts
//! them. Afterwards, a row has at least its sampled blocks, and its allocated bytes are the sum of
//! its live and its freed bytes.

use super::calibrate::{Cell, Lacking, calibrate};
use super::raw_site::RawSite;
use crate::model::{Combine, Measure, Measures, Moved, Sampling, Site, Spread, Sum};
use crate::profile::parsed;

/// The variance of a byte of slack if no sampled block had slack.
const LITTLE: f64 = 1e-9;
/// Number of standard errors by which the sampled blocks must differ from a total to disprove it. A
/// correct total is disproved less than once in ten million recordings.
const DOUBTLESS: f64 = 5.0;

/// The weight of a sampled block of a site.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weight {
    /// Average usable bytes of a block.
    bytes: f64,
    /// Number of blocks that a sampled block represents.
    blocks: f64,
    /// The variance of `blocks`.
    variance: f64,
    /// The effective number of a sampled block ([`crate::model::Spread`]).
    effective: f64,
}

impl Weight {
    /// Returns the weight of the blocks of a site; `mean` is the average of bytes allocated per
    /// sampled block.
    pub(crate) fn of(counters: &heaptide_format::Site, mean: u64) -> Weight {
        let bytes = counters.usable_bytes as f64 / counters.allocations.max(1) as f64;
        Weight::of_size(bytes, mean)
    }

    /// Returns the weight of blocks of `bytes` usable bytes on average.
    pub(crate) fn of_size(bytes: f64, mean: u64) -> Weight {
        let bytes = bytes.max(1.0);
        let means = bytes / mean.max(1) as f64;
        let (missed, sampled) = ((-means).exp(), -(-means).exp_m1());
        let variance = missed / (sampled * sampled);
        Weight { bytes, blocks: 1.0 / sampled, variance, effective: means * means * variance }
    }

    /// Returns the average usable bytes of a block, at least 1.
    pub(crate) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Returns the estimate for this number of sampled blocks, or of their bytes.
    pub(crate) fn estimate(&self, sampled: u64) -> u64 {
        (sampled as f64 * self.blocks).round() as u64
    }

    /// Replaces the counters of sampled blocks of a site by estimates for all blocks.
    pub(crate) fn scale(&self, measures: &mut Measures, moved: &mut Moved) {
        for &metric in Measure::all() {
            if metric.combine() == Combine::Sum && metric != Measure::Failed {
                metric.set(measures, self.estimate(metric.of(measures)));
            }
        }
        self.scale_moved(moved);
    }

    /// Replaces the counters of sampled blocks that labels moved to a site.
    pub(crate) fn scale_moved(&self, moved: &mut Moved) {
        let Moved { blocks, usable_bytes, requested_bytes } = moved;
        for moved in [blocks, usable_bytes, requested_bytes] {
            *moved = self.estimate(*moved);
        }
    }

    /// Returns the estimate for all blocks, given `blocks` sampled blocks with a sum of `value`.
    pub(crate) fn cell(&self, blocks: u64, value: u64) -> Cell {
        let of_one = value as f64 / blocks.max(1) as f64;
        Cell {
            value: value as f64 * self.blocks,
            variance: blocks as f64 * of_one * of_one * self.variance,
            least: value,
            most: u64::MAX,
        }
    }

    /// Returns the estimate of the number of blocks.
    pub(crate) fn count(&self, blocks: u64) -> Cell {
        self.cell(blocks, blocks)
    }
}

/// Estimates under construction.
pub(crate) struct Estimates {
    /// Weights of sites; later sites are not sampled.
    weights: Vec<Weight>,
    /// Sampling parameters and precision.
    pub(crate) sampling: Sampling,
    /// Whether counters start at a reset, so that live blocks can be older.
    is_part: bool,
}

impl Estimates {
    /// Returns estimates for a profile's sites; `mean_bytes` is the average of bytes allocated per
    /// sampled block.
    pub(crate) fn new(sites: &[parsed::Site], mean_bytes: u64, is_part: bool) -> Estimates {
        let weights = sites.iter().map(|site| Weight::of(&site.counters, mean_bytes)).collect();
        let sampling = Sampling { mean_bytes, ..Sampling::default() };
        Estimates { weights, sampling, is_part }
    }

    /// Corrects totals of live and freed blocks that sampled blocks disprove ([`correct`]). Returns
    /// frees of blocks that were not recorded.
    pub(crate) fn correct(&self, sites: &[RawSite], totals: &mut Measures) -> u64 {
        let mut live = (totals.live_blocks, totals.live_bytes);
        let mut freed = (totals.frees, totals.freed_bytes);
        if !self.is_part {
            freed = (freed.0.min(totals.allocations), freed.1.min(totals.usable_bytes));
        }
        let of_others = totals.frees - freed.0;
        let rows = || {
            self.weights.iter().zip(sites).map(|(weight, Site { measures: m, moved, .. })| {
                Sampled {
                    weight,
                    live: (m.live_blocks, m.live_bytes),
                    freed: (m.frees, m.freed_bytes),
                    moved: (moved.blocks, moved.usable_bytes),
                }
            })
        };
        let unmatched = correct(rows, self.sampling.mean_bytes, &mut live, &mut freed);
        (totals.live_blocks, totals.live_bytes) = live;
        (totals.frees, totals.freed_bytes) = freed;
        of_others.saturating_add(unmatched)
    }

    /// Returns the highest live bytes: those of the profile, unless sampled blocks disprove them.
    pub(crate) fn peak_bytes(&self, sites: &[RawSite], totals: &Measures, peak_bytes: u64) -> u64 {
        let rows = self.weights.iter().zip(sites).map(|(weight, Site { measures: m, .. })| {
            (weight, (m.at_peak_blocks, m.at_peak_bytes)) //
        });
        let Some((_, bytes)) = surplus(rows, self.sampling.mean_bytes, (0, peak_bytes)) else {
            return peak_bytes;
        };
        let most = if self.is_part { u64::MAX } else { totals.usable_bytes.max(peak_bytes) };
        peak_bytes.saturating_add(bytes).min(most)
    }

    /// Replaces counters of sampled blocks by estimates that add up to these totals, except for
    /// blocks live at peak. Returns the part of the totals that no row represents.
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
            columns.moved_is_live_or_freed(sites, totals);
            sites.iter_mut().for_each(allocated_is_live_or_freed);
        }
        columns.events(sites, totals);
        columns.requested(sites, totals);
        let rest = lacking(totals, sites);
        self.sampling.rest[..2].copy_from_slice(&[rest.usable_bytes, rest.live_bytes]);
        rest
    }

    /// Stores the number of sampled blocks, and the precision of each row.
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

    /// Replaces counters at peak by estimates that add up to `peak_bytes`. Returns the part that no
    /// row represents.
    pub(crate) fn estimate_peak(&mut self, sites: &mut [RawSite], peak_bytes: u64) -> u64 {
        let cells = sites.iter().zip(&self.weights).map(|(site, weight)| {
            weight.cell(site.measures.at_peak_blocks, site.measures.at_peak_bytes)
        });
        let whole = calibrate(&cells.collect::<Vec<_>>(), peak_bytes, Lacking::MayBeUnseen);
        for ((site, weight), &bytes) in sites.iter_mut().zip(&self.weights).zip(&whole) {
            let m = &mut site.measures;
            // The number of blocks is unknown.
            let blocks = (bytes as f64 / weight.bytes).round() as u64;
            (m.at_peak_blocks, m.at_peak_bytes) = (blocks.max(m.at_peak_blocks), bytes);
        }
        let rest = peak_bytes.saturating_sub(whole.iter().sum());
        self.sampling.rest[2] = rest;
        rest
    }

    /// Sets the values at peak to the live ones, if the peak is at the end.
    pub(crate) fn peak_is_live(&mut self) {
        let Sampling { whole, rest, .. } = &mut self.sampling;
        (whole.at_peak, rest[2]) = (whole.live, rest[1]);
    }
}

/// Columns of rows, which are replaced by estimates one after the other.
struct Columns<'a> {
    weights: &'a [Weight],
    sampled: &'a [RawSite],
}

impl Columns<'_> {
    /// Calibrates a column to a total. `cell` returns the estimate of a row; `set` stores the
    /// result.
    fn column(
        &self,
        sites: &mut [RawSite],
        total: u64,
        cell: impl Fn(&Weight, &RawSite) -> Cell,
        set: impl Fn(&mut RawSite, u64),
    ) {
        self.column_of(sites, |_| true, total, cell, set);
    }

    /// Like [`column`](Self::column), for the rows whose sampled blocks satisfy `is_wanted`.
    fn column_of(
        &self,
        sites: &mut [RawSite],
        is_wanted: impl Fn(&RawSite) -> bool,
        total: u64,
        cell: impl Fn(&Weight, &RawSite) -> Cell,
        set: impl Fn(&mut RawSite, u64),
    ) {
        let rows = self.weights.iter().zip(self.sampled).zip(sites.iter_mut());
        let mut rows: Vec<_> = rows.filter(|((_, row), _)| is_wanted(row)).collect();
        let cells: Vec<Cell> = rows.iter().map(|((weight, row), _)| cell(weight, row)).collect();
        let whole = calibrate(&cells, total, Lacking::MayBeUnseen);
        rows.iter_mut().zip(whole).for_each(|((_, site), value)| set(site, value));
    }

    /// Estimates the blocks that labels moved from one site to another, which are excluded from
    /// totals.
    fn moved(&self, sites: &mut [RawSite]) {
        for (site, weight) in sites.iter_mut().zip(self.weights) {
            weight.scale_moved(&mut site.moved);
        }
    }

    /// Estimates live blocks.
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

    /// Estimates blocks that were freed, or that labels moved to another site. The number of
    /// temporary blocks has a total of its own.
    fn freed(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.temporary,
            |weight, row| weight.count(row.measures.temporary),
            |site, blocks| site.measures.temporary = blocks,
        );
        self.freed_of(sites, |_| true, totals);
    }

    /// Estimates freed blocks and bytes of some rows, so that those of all rows add up.
    fn freed_of(
        &self,
        sites: &mut [RawSite],
        is_wanted: impl Fn(&RawSite) -> bool + Copy,
        totals: &Measures,
    ) {
        let (blocks, bytes) = self.freed_elsewhere(sites, is_wanted);
        let moved = moved(sites);
        self.column_of(
            sites,
            is_wanted,
            totals.freed_bytes.saturating_add(moved.usable_bytes).saturating_sub(bytes),
            |weight, row| weight.cell(row.measures.frees, row.measures.freed_bytes),
            |site, bytes| site.measures.freed_bytes = bytes,
        );
        // Lanes can count more temporary blocks than sites, because they know blocks only by
        // address.
        self.column_of(
            sites,
            is_wanted,
            totals.frees.saturating_add(moved.blocks).saturating_sub(blocks),
            |weight, Site { measures: m, .. }| weight.count(m.frees.saturating_sub(m.temporary)),
            |Site { measures: m, .. }, blocks| m.frees = m.temporary.saturating_add(blocks),
        );
    }

    /// Returns freed blocks and bytes that the calibration of some rows has no part in: those of
    /// other rows, and the temporary blocks.
    fn freed_elsewhere(
        &self,
        sites: &[RawSite],
        is_wanted: impl Fn(&RawSite) -> bool,
    ) -> (u64, u64) {
        let mut sum = (0u64, 0u64);
        for (row, Site { measures: m, .. }) in self.sampled.iter().zip(sites) {
            let (blocks, bytes) =
                if is_wanted(row) { (m.temporary, 0) } else { (m.frees, m.freed_bytes) };
            sum = (sum.0.saturating_add(blocks), sum.1.saturating_add(bytes));
        }
        sum
    }

    /// Adjusts the blocks that labels moved to sites to the calibrated blocks of these sites: a
    /// site cannot have received more blocks than it has, live and freed. Then the sites that the
    /// blocks came from are calibrated again, so that a moved block still counts once.
    fn moved_is_live_or_freed(&self, sites: &mut [RawSite], totals: &Measures) {
        let has_moved = |row: &RawSite| row.moved.blocks > 0;
        if !self.sampled.iter().any(has_moved) {
            return;
        }
        for (site, row) in sites.iter_mut().zip(self.sampled).filter(|(_, row)| has_moved(row)) {
            fit_moved(site, row);
        }
        self.freed_of(sites, |row| !has_moved(row), totals);
    }

    /// Estimates the blocks allocated since a reset.
    fn allocated(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.usable_bytes,
            |weight, row| weight.cell(own(row).0, own(row).1),
            |site, bytes| {
                site.measures.usable_bytes = bytes.saturating_add(site.moved.usable_bytes);
            },
        );
        // Some of the freed blocks were allocated before the reset, but no temporary ones.
        let rows = self.weights.iter().zip(self.sampled).zip(sites.iter());
        let cells = rows.map(|((weight, row), site)| {
            let cell = weight.count(own(row).0);
            Cell { least: cell.least.max(site.measures.temporary), ..cell }
        });
        let cells: Vec<Cell> = cells.collect();
        let whole = calibrate(&cells, totals.allocations, Lacking::MayBeUnseen);
        for (site, blocks) in sites.iter_mut().zip(whole) {
            site.measures.allocations = blocks.saturating_add(site.moved.blocks);
        }
    }

    /// Estimates reallocations and cross-thread frees.
    fn events(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.reallocations,
            |weight, row| weight.count(row.measures.reallocations),
            |site, blocks| site.measures.reallocations = blocks,
        );
        // Their total is unknown.
        for (site, weight) in sites.iter_mut().zip(self.weights) {
            let m = &mut site.measures;
            m.cross_thread_frees = weight.estimate(m.cross_thread_frees).min(m.frees);
        }
    }

    /// Estimates requested bytes: the bytes that are not slack. A row has at most as much slack as
    /// bytes; the part that no row represents has the average share of slack.
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
            // If no sampled block has slack, all rows can have a little.
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

/// Sampled blocks of a site, and their bytes.
pub(crate) struct Sampled<'a> {
    pub(crate) weight: &'a Weight,
    pub(crate) live: (u64, u64),
    /// Those that were freed, or that labels moved to another site.
    pub(crate) freed: (u64, u64),
    /// Those that labels moved to this site.
    pub(crate) moved: (u64, u64),
}

/// Corrects totals of live and freed blocks and bytes that sampled blocks disprove. Lanes cannot
/// identify blocks by address: they also count frees of blocks from before a fork or from a time
/// when recording was off, and miss frees while it is off. Returns frees of blocks that were not
/// recorded.
pub(crate) fn correct<'a, Rows>(
    rows: impl Fn() -> Rows,
    mean_bytes: u64,
    live: &mut (u64, u64),
    freed: &mut (u64, u64),
) -> u64
where
    Rows: Iterator<Item = Sampled<'a>>,
{
    let all_live = rows().map(|row| (row.weight, row.live));
    if let Some((blocks, bytes)) = surplus(all_live, mean_bytes, *live) {
        let (blocks, bytes) = (blocks.min(freed.0), bytes.min(freed.1));
        *live = (live.0.saturating_add(blocks), live.1.saturating_add(bytes));
        *freed = (freed.0 - blocks, freed.1 - bytes);
        return blocks;
    }
    let all_freed = rows().map(|row| (row.weight, row.freed));
    let freed_or_moved = rows().fold(*freed, |sum, Sampled { weight, moved, .. }| {
        let (blocks, bytes) = (weight.estimate(moved.0), weight.estimate(moved.1));
        (sum.0.saturating_add(blocks), sum.1.saturating_add(bytes))
    });
    if let Some((blocks, bytes)) = surplus(all_freed, mean_bytes, freed_or_moved) {
        let (blocks, bytes) = (blocks.min(live.0), bytes.min(live.1));
        *live = (live.0 - blocks, live.1 - bytes);
        *freed = (freed.0.saturating_add(blocks), freed.1.saturating_add(bytes));
    }
    0
}

/// Returns how many blocks and bytes the estimates exceed a total by, if that is certain.
pub(crate) fn surplus<'a>(
    rows: impl Iterator<Item = (&'a Weight, (u64, u64))>,
    mean_bytes: u64,
    (blocks, bytes): (u64, u64),
) -> Option<(u64, u64)> {
    let (mut all_blocks, mut all_bytes) = (0.0, 0.0);
    // Concurrent events can be in one counter and not in the other.
    let mut variance = (mean_bytes as f64).powi(2);
    for (weight, (blocks, bytes)) in rows {
        let cell = weight.cell(blocks, bytes);
        all_blocks += blocks as f64 * weight.blocks;
        all_bytes += cell.value;
        variance += cell.variance;
    }
    let more_bytes = all_bytes - bytes as f64;
    let more_blocks = (all_blocks - blocks as f64).max(0.0);
    let is_sure = more_bytes > DOUBTLESS * variance.sqrt();
    is_sure.then_some((more_blocks.round() as u64, more_bytes.round() as u64))
}

/// Sets allocated blocks of a site to the sum of its live and freed blocks.
fn allocated_is_live_or_freed(site: &mut RawSite) {
    let m = &mut site.measures;
    m.allocations = m.live_blocks.saturating_add(m.frees);
    m.usable_bytes = m.live_bytes.saturating_add(m.freed_bytes);
}

/// Limits the blocks that labels moved to a site to its live and freed blocks. If the sampled
/// blocks of a site, `row`, were all moved there, so were all its blocks. The bytes that labels
/// stated keep their share.
fn fit_moved(site: &mut RawSite, row: &RawSite) {
    let RawSite { measures: m, moved, .. } = site;
    let before = moved.usable_bytes;
    let blocks = m.live_blocks.saturating_add(m.frees);
    let bytes = m.live_bytes.saturating_add(m.freed_bytes);
    if own(row).0 == 0 {
        (moved.blocks, moved.usable_bytes) = (blocks, bytes);
    } else {
        moved.blocks = moved.blocks.min(blocks);
        moved.usable_bytes = moved.usable_bytes.min(bytes);
    }
    if moved.usable_bytes != before {
        let share = row.moved.requested_bytes as f64 / row.moved.usable_bytes.max(1) as f64;
        moved.requested_bytes = (moved.usable_bytes as f64 * share).round() as u64;
    }
}

/// Returns the sum of the blocks that labels moved to sites.
fn moved(sites: &[RawSite]) -> Moved {
    sites.iter().fold(Moved::default(), |sum, site| Moved {
        blocks: sum.blocks.saturating_add(site.moved.blocks),
        usable_bytes: sum.usable_bytes.saturating_add(site.moved.usable_bytes),
        requested_bytes: sum.requested_bytes.saturating_add(site.moved.requested_bytes),
    })
}

/// Returns blocks and bytes that a site allocated, excluding those moved there by labels.
fn own(site: &RawSite) -> (u64, u64) {
    let (m, moved) = (&site.measures, &site.moved);
    let blocks = m.allocations.saturating_sub(moved.blocks);
    (blocks, m.usable_bytes.saturating_sub(moved.usable_bytes))
}

/// Returns totals minus the sums over sites.
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
