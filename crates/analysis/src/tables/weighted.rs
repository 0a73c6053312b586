//! The counters of a site of sampled blocks: the number of sampled blocks, and the blocks and bytes
//! that they represent.
//!
//! A sampled block of n bytes represents 1 ÷ p blocks with p = 1 − exp(−n ÷ mean) (Horvitz and
//! Thompson, 1952), so its variance is (1 − p) ÷ p² blocks, and n² times that in bytes. Sites have
//! sums over blocks of all sizes, of which the variance follows only if all sizes are equal.
//! Otherwise the variance of bytes is at most that of as many blocks of equal weight, because it is
//! a concave function of the weight: intervals may be too wide, but not too narrow.

use heaptide_format as format;
use zerocopy::{FromBytes, IntoBytes};

use super::calibrate::Cell;
use super::site_counters::{LiveOfSite, live_of_site, not_negative};
use crate::model::{Measure, Measures, Moved};
use crate::profile::parsed;
use crate::profile::parsed::SiteRecord;

/// Blocks that labels moved to a site, as in its key.
#[derive(Clone, Copy, Default)]
pub(crate) struct MovedHere {
    /// Number, usable and requested bytes.
    pub(crate) sums: [u64; 3],
    /// Number of sampled blocks, where the counters are weighted.
    pub(crate) sampled: u64,
}

impl MovedHere {
    /// Returns those of the key of a site with this record.
    pub(crate) fn of(key: &format::Key, record: SiteRecord<'_>) -> MovedHere {
        let sampled = if record.is_weighted { key.lent_bytes } else { key.moved_blocks };
        let sums = [key.moved_blocks, key.moved_bytes, key.moved_requested_bytes];
        MovedHere { sums, sampled }
    }
}

/// Some of the sampled blocks of a site.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Part {
    /// Their number. Of a part whose number is not stored, an estimate.
    pub(crate) sampled: f64,
    /// Blocks that they represent.
    pub(crate) blocks: f64,
    /// Bytes that they represent.
    pub(crate) bytes: f64,
}

impl Part {
    fn of_weighted(sampled: u64, blocks: u64, bytes: u64) -> Part {
        let blocks = blocks as f64 / format::SAMPLE_UNIT as f64;
        Part { sampled: sampled as f64, blocks, bytes: bytes as f64 }
    }

    /// Returns the sum of two parts.
    fn plus(self, other: Part) -> Part {
        Part {
            sampled: self.sampled + other.sampled,
            blocks: self.blocks + other.blocks,
            bytes: self.bytes + other.bytes,
        }
    }

    /// Returns the blocks that are not in another part; none if all sampled blocks are in it.
    fn without(self, other: Part) -> Part {
        if other.sampled >= self.sampled {
            return Part::default();
        }
        Part {
            sampled: self.sampled - other.sampled,
            blocks: (self.blocks - other.blocks).max(0.0),
            bytes: (self.bytes - other.bytes).max(0.0),
        }
    }

    /// Returns the blocks that are also in a larger part.
    fn within(self, larger: Part) -> Part {
        Part {
            sampled: self.sampled.min(larger.sampled),
            blocks: self.blocks.min(larger.blocks),
            bytes: self.bytes.min(larger.bytes),
        }
    }

    /// Returns the part with this number of represented blocks, as blocks of average size.
    pub(crate) fn share(self, blocks: f64) -> Part {
        let share = if self.blocks > 0.0 { (blocks / self.blocks).clamp(0.0, 1.0) } else { 0.0 };
        Part { sampled: self.sampled * share, blocks, bytes: self.bytes * share }
    }

    /// Returns represented blocks beyond the sampled one, per sampled block.
    fn excess(&self) -> f64 {
        ((self.blocks - self.sampled) / self.sampled.max(1e-9)).max(0.0)
    }

    /// Returns −ln(1 − p) of blocks of equal weight: their size in units of the mean.
    fn means(&self) -> f64 {
        (1.0 / self.excess()).ln_1p()
    }

    /// Returns an upper bound of the effective number of sampled blocks
    /// ([`crate::model::Spread`]).
    pub(crate) fn effective(&self) -> f64 {
        let excess = self.excess();
        if excess <= 0.0 {
            return 0.0;
        }
        self.sampled * excess * (1.0 + excess) * self.means().powi(2)
    }

    /// Returns the average usable bytes of a represented block, at least 1; `None` without blocks.
    pub(crate) fn block_bytes(&self) -> Option<f64> {
        (self.blocks > 0.0).then(|| (self.bytes / self.blocks).max(1.0))
    }

    /// Returns a lower bound of the usable bytes of the sampled blocks themselves: the larger one
    /// of two that hold with equality for blocks of equal size.
    fn own_bytes(&self, mean: u64) -> f64 {
        let excess = self.excess();
        if excess <= 0.0 {
            return self.bytes;
        }
        let of_equal = self.sampled * mean as f64 * self.means();
        of_equal.max(self.bytes - of_equal * excess)
    }

    /// Returns the estimate of usable bytes.
    pub(crate) fn of_bytes(&self, mean: u64) -> Cell {
        Cell {
            value: self.bytes,
            variance: self.effective() * (mean as f64).powi(2),
            least: self.own_bytes(mean).round() as u64,
            most: u64::MAX,
        }
    }

    /// Returns the estimate of the number of blocks.
    pub(crate) fn of_blocks(&self) -> Cell {
        let excess = self.excess();
        Cell {
            value: self.blocks,
            variance: self.sampled * excess * (1.0 + excess),
            least: self.sampled.round() as u64,
            most: u64::MAX,
        }
    }

    /// Returns blocks and bytes as whole numbers.
    pub(crate) fn rounded(&self) -> (u64, u64) {
        (self.blocks.round() as u64, self.bytes.round() as u64)
    }
}

/// What the sampled blocks of a site represent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weighted {
    /// All blocks, including those that labels moved here.
    pub(crate) allocated: Part,
    pub(crate) live: Part,
    /// Those that were freed, or that labels moved to another site.
    pub(crate) freed: Part,
    pub(crate) at_peak: Part,
    /// Those that labels moved here.
    pub(crate) moved: Part,
    /// Requested bytes, including those moved here.
    pub(crate) requested: f64,
    pub(crate) moved_requested: f64,
    /// Numbers of blocks.
    pub(crate) temporary: f64,
    pub(crate) reallocations: f64,
    pub(crate) cross_thread_frees: f64,
}

impl Weighted {
    /// Returns what a site of a sampled profile represents; `epoch` is the number of the current
    /// peak.
    pub(crate) fn of_site(site: &parsed::Site, mean: u64, epoch: u32) -> Weighted {
        let sampled = if site.is_weighted { site.lent_bytes.max(0) as u64 } else { site.moved[0] };
        Weighted::of(site.record(), mean, epoch).with_moved(
            MovedHere { sums: site.moved, sampled },
            site.record(),
            mean,
        )
    }

    /// Returns the same for a record, as if labels had moved no blocks.
    pub(crate) fn of(record: SiteRecord<'_>, mean: u64, epoch: u32) -> Weighted {
        match sampled_site(record) {
            Some(site) => Weighted::of_weighted(&site, epoch),
            None => Weighted::of_counted(record.counters, mean, epoch),
        }
    }

    /// Sets the blocks that labels moved to the site of a record.
    pub(crate) fn with_moved(
        mut self,
        moved: MovedHere,
        record: SiteRecord<'_>,
        mean: u64,
    ) -> Weighted {
        let [blocks, usable_bytes, requested_bytes] = moved.sums;
        let (part, requested) = if record.is_weighted {
            (Part::of_weighted(moved.sampled, blocks, usable_bytes), requested_bytes as f64)
        } else {
            let weight = weight_of(record.counters, mean);
            let part = counted(weight, blocks.min(record.counters.allocations), usable_bytes);
            (part, requested_bytes as f64 * weight)
        };
        self.moved = part.within(self.allocated);
        self.moved_requested = requested.min(self.requested);
        self
    }

    fn of_weighted(site: &format::SampledSite, epoch: u32) -> Weighted {
        let blocks = |n: u64| not_negative(n) as f64 / format::SAMPLE_UNIT as f64;
        let allocated = Part::of_weighted(site.sampled, site.blocks, site.usable_bytes);
        let freed = Part::of_weighted(
            not_negative(site.sampled_freed),
            not_negative(site.freed_blocks),
            not_negative(site.freed_bytes),
        );
        // These counters are read later than the allocations and can be higher.
        let freed = freed.within(allocated);
        let live = allocated.without(freed);
        let at_peak = if site.epoch >= epoch {
            Part::of_weighted(
                not_negative(site.sampled_at_peak),
                not_negative(site.peak_blocks),
                not_negative(site.peak_bytes),
            )
        } else {
            live
        };
        Weighted {
            allocated,
            live,
            freed,
            at_peak,
            requested: site.requested_bytes as f64,
            temporary: blocks(site.temporary),
            reallocations: blocks(site.reallocations),
            cross_thread_frees: blocks(site.remote_frees),
            ..Weighted::default()
        }
    }

    /// Weights the counters of a site of an older recorder, whose blocks have one class of sizes.
    fn of_counted(record: &format::Site, mean: u64, epoch: u32) -> Weighted {
        let weight = weight_of(record, mean);
        let LiveOfSite { live, at_peak } = live_of_site(record, epoch);
        let part = |(blocks, bytes)| counted(weight, blocks, bytes);
        let all = (record.allocations, record.usable_bytes);
        Weighted {
            allocated: part(all),
            live: part(live),
            freed: part((all.0.saturating_sub(live.0), all.1.saturating_sub(live.1))),
            at_peak: part(at_peak),
            requested: record.requested_bytes as f64 * weight,
            temporary: record.temporary as f64 * weight,
            reallocations: record.reallocations as f64 * weight,
            cross_thread_frees: not_negative(record.remote_frees) as f64 * weight,
            ..Weighted::default()
        }
    }

    /// Returns the blocks that the site allocated, excluding those moved there by labels.
    pub(crate) fn own(&self) -> Part {
        self.allocated.without(self.moved)
    }

    /// Returns requested bytes of those.
    pub(crate) fn own_requested(&self) -> f64 {
        (self.requested - self.moved_requested).max(0.0)
    }

    /// Returns the blocks moved here, with requested bytes.
    pub(crate) fn moved_rounded(&self) -> Moved {
        let (blocks, usable_bytes) = self.moved.rounded();
        let requested_bytes = self.moved_requested.round() as u64;
        Moved { blocks, usable_bytes, requested_bytes }
    }

    /// Adds another site.
    pub(crate) fn add(&mut self, other: &Weighted) {
        self.allocated = self.allocated.plus(other.allocated);
        self.live = self.live.plus(other.live);
        self.freed = self.freed.plus(other.freed);
        self.at_peak = self.at_peak.plus(other.at_peak);
        self.moved = self.moved.plus(other.moved);
        self.requested += other.requested;
        self.moved_requested += other.moved_requested;
        self.temporary += other.temporary;
        self.reallocations += other.reallocations;
        self.cross_thread_frees += other.cross_thread_frees;
    }

    /// Subtracts the earlier counters of the site. What is live, and was at the peak, stays.
    pub(crate) fn take_off(&mut self, before: &Weighted) {
        let less = |now: &mut f64, before: f64| *now = (*now - before).max(0.0);
        self.allocated = self.allocated.without(before.allocated);
        self.freed = self.freed.without(before.freed);
        self.moved = self.moved.without(before.moved);
        less(&mut self.requested, before.requested);
        less(&mut self.moved_requested, before.moved_requested);
        less(&mut self.temporary, before.temporary);
        less(&mut self.reallocations, before.reallocations);
        less(&mut self.cross_thread_frees, before.cross_thread_frees);
    }

    /// Sets the metrics of a row to the estimates, which are not adjusted to any total.
    pub(crate) fn set(&self, measures: &mut Measures) {
        let whole = |n: f64| n.round() as u64;
        (measures.allocations, measures.usable_bytes) = self.allocated.rounded();
        (measures.frees, measures.freed_bytes) = self.freed.rounded();
        (measures.live_blocks, measures.live_bytes) = self.live.rounded();
        (measures.at_peak_blocks, measures.at_peak_bytes) = self.at_peak.rounded();
        measures.requested_bytes = whole(self.requested);
        measures.temporary = whole(self.temporary);
        measures.reallocations = whole(self.reallocations);
        measures.cross_thread_frees = whole(self.cross_thread_frees);
    }
}

/// Returns the metrics of a weighted record that no weight applies to.
pub(crate) fn unweighted_measures(record: &format::Site) -> Measures {
    let mut measures = Measures::default();
    Measure::Failed.set(&mut measures, record.failed.into());
    measures.largest_bytes = record.largest_bytes;
    measures
}

fn sampled_site(record: SiteRecord<'_>) -> Option<format::SampledSite> {
    let bytes = record.counters.as_bytes();
    format::SampledSite::read_from_bytes(bytes).ok().filter(|_| record.is_weighted)
}

/// Returns the number of blocks that a sampled block represents, from the average size.
fn weight_of(record: &format::Site, mean: u64) -> f64 {
    let bytes = record.usable_bytes as f64 / record.allocations.max(1) as f64;
    -1.0 / (-bytes.max(1.0) / mean.max(1) as f64).exp_m1()
}

fn counted(weight: f64, blocks: u64, bytes: u64) -> Part {
    let (sampled, bytes) = (blocks as f64, bytes as f64 * weight);
    Part { sampled, blocks: sampled * weight, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    const MEAN: u64 = 1000;

    /// Returns the exact part and the exact effective number and bytes of sampled blocks.
    fn exact(sizes: &[u64]) -> (Part, f64, f64) {
        let (mut part, mut effective, mut own) = (Part::default(), 0.0, 0.0);
        for &size in sizes {
            let x = size as f64 / MEAN as f64;
            let weight = -1.0 / (-x).exp_m1();
            let bytes = weight * size as f64;
            part = part.plus(Part { sampled: 1.0, blocks: weight, bytes });
            effective += x * x * weight * (weight - 1.0);
            own += size as f64;
        }
        (part, effective, own)
    }

    #[test]
    fn blocks_of_equal_size_have_exact_bounds() {
        for size in [1, 100, 1000, 5000, 20_000] {
            let (part, effective, own) = exact(&[size; 7]);
            assert!((part.effective() - effective).abs() < 1e-4 * effective + 1e-6, "{size}");
            assert_eq!(part.of_bytes(MEAN).least, own as u64, "{size}");
            assert!((part.block_bytes().unwrap_or(0.0) - size as f64).abs() < 1e-6);
        }
    }

    #[test]
    fn blocks_of_mixed_sizes_have_bounds_that_hold() {
        for sizes in [&[10, 100_000][..], &[10, 10, 10, 2000], &[500, 700, 3000], &[1, 9999, 9999]]
        {
            let (part, effective, own) = exact(sizes);
            assert!(part.effective() >= effective - 1e-9, "{sizes:?}");
            assert!(part.effective() <= sizes.len() as f64, "{sizes:?}");
            let cell = part.of_bytes(MEAN);
            assert!(cell.least as f64 <= own + 0.5, "{sizes:?}");
            // A large block is certain, whatever else was sampled.
            assert!(cell.least as f64 > own - 3.0 * MEAN as f64, "{sizes:?} {}", cell.least);
        }
    }

    #[test]
    fn a_weighted_record_is_read_as_it_was_written() {
        let site = format::SampledSite {
            sampled: 3,
            blocks: 31 * format::SAMPLE_UNIT,
            usable_bytes: 3_100,
            sampled_freed: 1,
            freed_blocks: 10 * format::SAMPLE_UNIT,
            freed_bytes: 1_000,
            remote_frees: 1u64.wrapping_neg(),
            epoch: 2,
            sampled_at_peak: 1,
            peak_blocks: 11 * format::SAMPLE_UNIT,
            peak_bytes: 1_100,
            ..format::SampledSite::new_zeroed()
        };
        let counters = format::Site::read_from_bytes(site.as_bytes()).expect("of equal size");
        let record = SiteRecord { counters: &counters, is_weighted: true };
        let read = Weighted::of(record, MEAN, 2);
        assert_eq!(read.live, Part { sampled: 2.0, blocks: 21.0, bytes: 2_100.0 });
        assert_eq!(read.at_peak, Part { sampled: 1.0, blocks: 11.0, bytes: 1_100.0 });
        assert_eq!(read.cross_thread_frees, 0.0, "a label moved a block back");
        let later = Weighted::of(record, MEAN, 3);
        assert_eq!(later.at_peak, later.live, "unchanged since the peak");
    }
}
