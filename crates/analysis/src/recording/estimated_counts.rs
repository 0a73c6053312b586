//! Estimates the counters of a sampled profile. Live bytes, and those at peak, are calibrated to
//! the exact totals of lanes; allocated bytes are not, so that they never decrease.

use heaptide_format as format;

use super::counts::Counts;
use crate::tables::calibrate::{Cell, Lacking, calibrate};
use crate::tables::sampled::{correct, surplus};
use crate::tables::weighted::Weighted;

/// Returns whether sites count only sampled blocks.
pub(super) fn is_sampled(header: &format::FileHeader) -> bool {
    header.mode == format::Mode::Sampled as u32
}

/// Replaces counters of sampled blocks, which represent `rows`, by estimates for all blocks; does
/// nothing unless the profile was sampled.
pub(super) fn estimate(
    counts: &mut [Counts],
    rows: &[Weighted],
    header: &format::FileHeader,
    lanes: impl Iterator<Item = format::Lane>,
) {
    if !is_sampled(header) {
        return;
    }
    let mean = header.sample_mean_bytes;
    let (mut live, mut freed) = live_and_freed(lanes);
    correct(rows, mean, &mut live, &mut freed);
    let column = |total, cell: &dyn Fn(&Weighted) -> Cell| {
        let cells: Vec<Cell> = rows.iter().map(cell).collect();
        calibrate(&cells, total, Lacking::MayBeUnseen)
    };
    let bytes = column(live.1, &|row| row.live.of_bytes(mean));
    let blocks = column(live.0, &|row| row.live.of_blocks());
    let parts = rows.iter().map(|row| row.at_peak);
    let more = surplus(parts, mean, (0, header.peak_bytes)).map_or(0, |(_, bytes)| bytes);
    let peak_bytes = header.peak_bytes.saturating_add(more);
    let at_peak = column(peak_bytes, &|row| row.at_peak.of_bytes(mean));
    for (index, (counts, row)) in counts.iter_mut().zip(rows).enumerate() {
        (counts.live_bytes, counts.live_blocks) = (bytes[index], blocks[index]);
        counts.at_peak_bytes = at_peak[index];
        (counts.allocations, counts.allocated_bytes) = row.allocated.rounded();
        (counts.moved_blocks, counts.moved_bytes) = row.moved.rounded();
    }
}

/// Returns blocks and bytes that are live, and those that were freed.
fn live_and_freed(lanes: impl Iterator<Item = format::Lane>) -> ((u64, u64), (u64, u64)) {
    let mut sums = [0u64; 4];
    for lane in lanes {
        let count = |classes: &[u64]| classes.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let (allocated, freed) = (count(&lane.requested_classes), count(&lane.freed_classes));
        let of_lane = [allocated, freed, lane.usable_bytes, lane.freed_here_bytes];
        sums.iter_mut().zip(of_lane).for_each(|(sum, n)| *sum = sum.saturating_add(n));
    }
    let [allocated, freed, bytes, freed_bytes] = sums;
    let live = (allocated.saturating_sub(freed), bytes.saturating_sub(freed_bytes));
    (live, (freed, freed_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::parsed::SiteRecord;
    use zerocopy::FromZeros;

    /// Returns the counters of a site with 20 sampled blocks, where the lane counted 200.
    fn counts(mode: format::Mode, freed: u64) -> Counts {
        let mut header = format::FileHeader::new_zeroed();
        (header.mode, header.sample_mean_bytes, header.peak_bytes) = (mode as u32, 1000, 20_000);
        let mut lane = format::Lane::new_zeroed();
        lane.requested_classes[6] = 200;
        lane.usable_bytes = 20_000;
        (lane.freed_classes[6], lane.freed_here_bytes) = (freed, 100 * freed);
        let sampled = Counts {
            live_bytes: 2_000,
            live_blocks: 20,
            at_peak_bytes: 2_000,
            allocations: 20,
            allocated_bytes: 2_000,
            ..Counts::default()
        };
        let mut site = format::Site::new_zeroed();
        (site.allocations, site.usable_bytes, site.peak_blocks) = (20, 2_000, 20);
        (site.peak_bytes, header.epoch) = (2_000, 1);
        let record = SiteRecord { counters: &site, is_weighted: false };
        let rows = [Weighted::of(record, header.sample_mean_bytes, header.epoch)];
        let mut counts = [sampled];
        estimate(&mut counts, &rows, &header, [lane].into_iter());
        counts[0]
    }

    #[test]
    fn live_bytes_add_up_to_those_of_lanes() {
        let found = counts(format::Mode::Sampled, 0);
        assert_eq!((found.live_bytes, found.live_blocks), (20_000, 200));
        assert_eq!(found.at_peak_bytes, 20_000);
        // 20 ÷ (1 − exp(−0.1)): independent of later events.
        assert_eq!((found.allocations, found.allocated_bytes), (210, 21_017));
        assert_eq!(counts(format::Mode::Sampled, 40).live_bytes, 16_000);
    }

    #[test]
    fn profiles_with_all_blocks_stay() {
        let found = counts(format::Mode::Stacks, 0);
        assert_eq!((found.live_bytes, found.allocations), (2_000, 20));
    }
}
