//! Estimates the counters of sites in a sampled recording.
//!
//! A site counts what its sampled blocks represent ([`super::weighted`]). Sums of these estimates
//! are unbiased but differ from the totals, which are exact; [`super::calibrate`] adjusts them.
//! Afterwards, a row has at least its sampled blocks, and its allocated bytes are the sum of its
//! live and its freed bytes.

use super::calibrate::{Cell, Lacking, calibrate};
use super::raw_site::RawSite;
use super::weighted::{Part, Weighted};
use crate::model::{Combine, Measure, Measures, Moved, Sampling, Spread, Sum};

/// The variance of a byte of slack if no sampled block had slack.
const LITTLE: f64 = 1e-9;
/// Number of standard errors by which the sampled blocks must differ from a total to disprove it. A
/// correct total is disproved less than once in ten million recordings.
const DOUBTLESS: f64 = 5.0;
/// The recorder rounds the bytes that a sampled block represents, by less than this.
const ROUNDED_BYTES: f64 = 1.0;

/// Estimates under construction.
pub(crate) struct Estimates {
    /// What sites represent; later sites are not sampled.
    rows: Vec<Weighted>,
    /// Sampling parameters and precision.
    pub(crate) sampling: Sampling,
    /// Whether counters start at a reset, so that live blocks can be older.
    is_part: bool,
}

impl Estimates {
    /// Returns estimates for sites that represent this; `mean_bytes` is the average of bytes
    /// allocated per sampled block.
    pub(crate) fn new(rows: Vec<Weighted>, mean_bytes: u64, is_part: bool) -> Estimates {
        let sampling = Sampling { mean_bytes, ..Sampling::default() };
        Estimates { rows, sampling, is_part }
    }

    /// Corrects totals of live and freed blocks that sampled blocks disprove ([`correct`]). Returns
    /// frees of blocks that were not recorded.
    pub(crate) fn correct(&self, totals: &mut Measures) -> u64 {
        let mut live = (totals.live_blocks, totals.live_bytes);
        let mut freed = (totals.frees, totals.freed_bytes);
        if !self.is_part {
            freed = (freed.0.min(totals.allocations), freed.1.min(totals.usable_bytes));
        }
        let of_others = totals.frees - freed.0;
        let unmatched = correct(&self.rows, self.sampling.mean_bytes, &mut live, &mut freed);
        (totals.live_blocks, totals.live_bytes) = live;
        (totals.frees, totals.freed_bytes) = freed;
        of_others.saturating_add(unmatched)
    }

    /// Returns the highest live bytes: those of the profile, unless sampled blocks disprove them.
    pub(crate) fn peak_bytes(&self, totals: &Measures, peak_bytes: u64) -> u64 {
        let parts = self.rows.iter().map(|row| row.at_peak);
        let Some((_, bytes)) = surplus(parts, self.sampling.mean_bytes, (0, peak_bytes)) else {
            return peak_bytes;
        };
        let most = if self.is_part { u64::MAX } else { totals.usable_bytes.max(peak_bytes) };
        peak_bytes.saturating_add(bytes).min(most)
    }

    /// Replaces counters of sampled blocks by estimates that add up to these totals, except for
    /// blocks live at peak. Returns the part of the totals that no row represents.
    pub(crate) fn estimate(&mut self, sites: &mut [RawSite], totals: &Measures) -> Measures {
        self.spread(sites);
        let columns = Columns { rows: &self.rows, mean: self.sampling.mean_bytes };
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
        let estimates = |of: fn(&Weighted) -> f64| self.rows.iter().map(of).sum::<f64>();
        let allocated = estimates(|row| row.own().bytes);
        let raised = |total: u64, rest: u64, estimate: f64| {
            (total.saturating_sub(rest) as f64 - estimate).max(0.0) as u64
        };
        self.sampling.raised[..2].copy_from_slice(&[
            raised(totals.usable_bytes, rest.usable_bytes, allocated),
            raised(totals.live_bytes, rest.live_bytes, estimates(|row| row.live.bytes)),
        ]);
        rest
    }

    /// Stores the number of sampled blocks, and the precision of each row.
    fn spread(&mut self, sites: &mut [RawSite]) {
        for (site, row) in sites.iter_mut().zip(&self.rows) {
            let of = |part: &Part| part.effective() as f32;
            let own = row.own();
            let measures = &mut site.measures;
            measures.spread = Spread {
                allocated: of(&row.allocated),
                live: of(&row.live),
                at_peak: of(&row.at_peak),
            };
            let sampling = &mut self.sampling;
            sampling.blocks = sampling.blocks.saturating_add(own.sampled as u64);
            sampling.whole.add(&Spread { allocated: of(&own), ..measures.spread });
        }
    }

    /// Replaces counters at peak by estimates that add up to `peak_bytes`. Returns the part that no
    /// row represents.
    pub(crate) fn estimate_peak(&mut self, sites: &mut [RawSite], peak_bytes: u64) -> u64 {
        let mean = self.sampling.mean_bytes;
        let cells: Vec<Cell> = self.rows.iter().map(|row| row.at_peak.of_bytes(mean)).collect();
        let whole = calibrate(&cells, peak_bytes, Lacking::MayBeUnseen);
        for ((site, row), &bytes) in sites.iter_mut().zip(&self.rows).zip(&whole) {
            let m = &mut site.measures;
            // The number of blocks is unknown.
            let size = row.at_peak.block_bytes().or(row.allocated.block_bytes()).unwrap_or(1.0);
            let blocks = (bytes as f64 / size).round() as u64;
            let least = row.at_peak.sampled.round() as u64;
            (m.at_peak_blocks, m.at_peak_bytes) = (blocks.max(least), bytes);
        }
        let (sum, estimate) = (whole.iter().sum::<u64>(), cells.iter().map(|cell| cell.value));
        let rest = peak_bytes.saturating_sub(sum);
        self.sampling.rest[2] = rest;
        self.sampling.raised[2] = (sum as f64 - estimate.sum::<f64>()).max(0.0) as u64;
        rest
    }

    /// Sets the values at peak to the live ones, if the peak is at the end.
    pub(crate) fn peak_is_live(&mut self) {
        let Sampling { whole, rest, raised, .. } = &mut self.sampling;
        (whole.at_peak, rest[2], raised[2]) = (whole.live, rest[1], raised[1]);
    }
}

/// Columns of rows, which are replaced by estimates one after the other.
struct Columns<'a> {
    rows: &'a [Weighted],
    mean: u64,
}

impl Columns<'_> {
    /// Calibrates a column to a total. `cell` returns the estimate of a row; `set` stores the
    /// result.
    fn column(
        &self,
        sites: &mut [RawSite],
        total: u64,
        cell: impl Fn(&Weighted) -> Cell,
        set: impl Fn(&mut RawSite, u64),
    ) {
        self.column_of(sites, |_| true, total, cell, set);
    }

    /// Like [`column`](Self::column), for the rows whose sampled blocks satisfy `is_wanted`.
    fn column_of(
        &self,
        sites: &mut [RawSite],
        is_wanted: impl Fn(&Weighted) -> bool,
        total: u64,
        cell: impl Fn(&Weighted) -> Cell,
        set: impl Fn(&mut RawSite, u64),
    ) {
        let rows = self.rows.iter().zip(sites.iter_mut());
        let mut rows: Vec<_> = rows.filter(|(row, _)| is_wanted(row)).collect();
        let cells: Vec<Cell> = rows.iter().map(|(row, _)| cell(row)).collect();
        let whole = calibrate(&cells, total, Lacking::MayBeUnseen);
        rows.iter_mut().zip(whole).for_each(|((_, site), value)| set(site, value));
    }

    /// Estimates the blocks that labels moved from one site to another, which are excluded from
    /// totals.
    fn moved(&self, sites: &mut [RawSite]) {
        for (site, row) in sites.iter_mut().zip(self.rows) {
            site.moved = row.moved_rounded();
        }
    }

    /// Estimates live blocks.
    fn live(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.live_bytes,
            |row| row.live.of_bytes(self.mean),
            |site, bytes| site.measures.live_bytes = bytes,
        );
        self.column(
            sites,
            totals.live_blocks,
            |row| row.live.of_blocks(),
            |site, blocks| site.measures.live_blocks = blocks,
        );
    }

    /// Estimates blocks that were freed, or that labels moved to another site. The number of
    /// temporary blocks has a total of its own.
    fn freed(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.temporary,
            |row| row.freed.share(row.temporary).of_blocks(),
            |site, blocks| site.measures.temporary = blocks,
        );
        self.freed_of(sites, |_| true, totals);
    }

    /// Estimates freed blocks and bytes of some rows, so that those of all rows add up.
    fn freed_of(
        &self,
        sites: &mut [RawSite],
        is_wanted: impl Fn(&Weighted) -> bool + Copy,
        totals: &Measures,
    ) {
        let (blocks, bytes) = self.freed_elsewhere(sites, is_wanted);
        let moved = moved(sites);
        self.column_of(
            sites,
            is_wanted,
            totals.freed_bytes.saturating_add(moved.usable_bytes).saturating_sub(bytes),
            |row| row.freed.of_bytes(self.mean),
            |site, bytes| site.measures.freed_bytes = bytes,
        );
        // Lanes can count more temporary blocks than sites, because they know blocks only by
        // address.
        self.column_of(
            sites,
            is_wanted,
            totals.frees.saturating_add(moved.blocks).saturating_sub(blocks),
            |row| row.freed.share((row.freed.blocks - row.temporary).max(0.0)).of_blocks(),
            |RawSite { measures: m, .. }, blocks| m.frees = m.temporary.saturating_add(blocks),
        );
    }

    /// Returns freed blocks and bytes that the calibration of some rows has no part in: those of
    /// other rows, and the temporary blocks.
    fn freed_elsewhere(
        &self,
        sites: &[RawSite],
        is_wanted: impl Fn(&Weighted) -> bool,
    ) -> (u64, u64) {
        let mut sum = (0u64, 0u64);
        for (row, RawSite { measures: m, .. }) in self.rows.iter().zip(sites) {
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
        // The recorder counts what it moves one after the other: one of these can still be 0.
        let has_moved = |row: &Weighted| row.moved.sampled + row.moved.bytes > 0.0;
        if !self.rows.iter().any(has_moved) {
            return;
        }
        for (site, row) in sites.iter_mut().zip(self.rows).filter(|(_, row)| has_moved(row)) {
            fit_moved(site, row);
        }
        self.freed_of(sites, |row| !has_moved(row), totals);
    }

    /// Estimates the blocks allocated since a reset.
    fn allocated(&self, sites: &mut [RawSite], totals: &Measures) {
        self.column(
            sites,
            totals.usable_bytes,
            |row| row.own().of_bytes(self.mean),
            |site, bytes| {
                site.measures.usable_bytes = bytes.saturating_add(site.moved.usable_bytes);
            },
        );
        // Some of the freed blocks were allocated before the reset, but no temporary ones.
        let rows = self.rows.iter().zip(sites.iter());
        let cells = rows.map(|(row, site)| {
            let cell = row.own().of_blocks();
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
            |row| row.allocated.share(row.reallocations).of_blocks(),
            |site, blocks| site.measures.reallocations = blocks,
        );
        // Their total is unknown.
        for (site, row) in sites.iter_mut().zip(self.rows) {
            let m = &mut site.measures;
            m.cross_thread_frees = (row.cross_thread_frees.round() as u64).min(m.frees);
        }
    }

    /// Estimates requested bytes: the bytes that are not slack. A row has at most as much slack as
    /// bytes; the part that no row represents has the average share of slack.
    fn requested(&self, sites: &mut [RawSite], totals: &Measures) {
        let unseen = lacking(totals, sites).usable_bytes;
        let part = totals.slack_bytes() as f64 / totals.usable_bytes.max(1) as f64;
        let unseen = ((unseen as f64 * part).round() as u64).min(unseen);
        let cells = self.rows.iter().zip(sites.iter()).map(|(row, site)| {
            let own_part = row.own();
            let slack = (own_part.bytes - row.own_requested()).max(0.0);
            let share = slack / own_part.bytes.max(1.0);
            let most = own(site).1;
            // If no sampled block has slack, all rows can have a little.
            let variance =
                own_part.of_bytes(self.mean).variance * share * share + most as f64 * LITTLE;
            Cell { value: slack, variance, least: 0, most }
        });
        let slack = totals.slack_bytes().saturating_sub(unseen);
        let whole = calibrate(&cells.collect::<Vec<_>>(), slack, Lacking::IsError);
        for (site, slack) in sites.iter_mut().zip(whole) {
            let requested = own(site).1.saturating_sub(slack);
            site.measures.requested_bytes = requested.saturating_add(site.moved.requested_bytes);
        }
    }
}

/// Corrects totals of live and freed blocks and bytes that sampled blocks disprove. Lanes cannot
/// identify blocks by address: they also count frees of blocks from before a fork or from a time
/// when recording was off, and miss frees while it is off. Returns frees of blocks that were not
/// recorded.
pub(crate) fn correct(
    rows: &[Weighted],
    mean_bytes: u64,
    live: &mut (u64, u64),
    freed: &mut (u64, u64),
) -> u64 {
    let all_live = rows.iter().map(|row| row.live);
    if let Some((blocks, bytes)) = surplus(all_live, mean_bytes, *live) {
        let (blocks, bytes) = (blocks.min(freed.0), bytes.min(freed.1));
        *live = (live.0.saturating_add(blocks), live.1.saturating_add(bytes));
        *freed = (freed.0 - blocks, freed.1 - bytes);
        return blocks;
    }
    let freed_or_moved = rows.iter().fold(*freed, |sum, row| {
        let (blocks, bytes) = row.moved.rounded();
        (sum.0.saturating_add(blocks), sum.1.saturating_add(bytes))
    });
    let all_freed = rows.iter().map(|row| row.freed);
    if let Some((blocks, bytes)) = surplus(all_freed, mean_bytes, freed_or_moved) {
        let (blocks, bytes) = (blocks.min(live.0), bytes.min(live.1));
        *live = (live.0 - blocks, live.1 - bytes);
        *freed = (freed.0.saturating_add(blocks), freed.1.saturating_add(bytes));
    }
    0
}

/// Returns how many blocks and bytes the estimates exceed a total by, if that is certain.
pub(crate) fn surplus(
    parts: impl Iterator<Item = Part>,
    mean_bytes: u64,
    (blocks, bytes): (u64, u64),
) -> Option<(u64, u64)> {
    let (mut all_blocks, mut all_bytes, mut rounded) = (0.0, 0.0, 0.0);
    // Concurrent events can be in one counter and not in the other.
    let mut variance = (mean_bytes as f64).powi(2);
    for part in parts {
        all_blocks += part.blocks;
        all_bytes += part.bytes;
        rounded += ROUNDED_BYTES * part.sampled;
        variance += part.of_bytes(mean_bytes).variance;
    }
    let more_bytes = all_bytes - bytes as f64;
    let more_blocks = (all_blocks - blocks as f64).max(0.0);
    let is_sure = more_bytes > DOUBTLESS * variance.sqrt() + rounded;
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
fn fit_moved(site: &mut RawSite, row: &Weighted) {
    let RawSite { measures: m, moved, .. } = site;
    let before = moved.usable_bytes;
    let blocks = m.live_blocks.saturating_add(m.frees);
    let bytes = m.live_bytes.saturating_add(m.freed_bytes);
    if row.own().sampled <= 0.0 {
        (moved.blocks, moved.usable_bytes) = (blocks, bytes);
    } else {
        moved.blocks = moved.blocks.min(blocks);
        moved.usable_bytes = moved.usable_bytes.min(bytes);
    }
    if moved.usable_bytes != before {
        let share = row.moved_requested / row.moved.bytes.max(1.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// With a mean of one byte, the recorder rounds the 1.58 bytes of a block of one byte to 2.
    #[test]
    fn rounded_weights_disprove_no_total() {
        const SAMPLED: f64 = 74.0;
        let part = Part { sampled: SAMPLED, blocks: 1.582 * SAMPLED, bytes: 2.0 * SAMPLED };
        assert_eq!(surplus([part].into_iter(), 1, (100, 100)), None);
        assert!(surplus([part].into_iter(), 1, (20, 20)).is_some(), "but a wrong one");
    }
}
