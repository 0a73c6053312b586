//! Estimates the counters of a sampled profile. Live bytes, and those at peak, are calibrated to
//! the exact totals of lanes; allocated bytes are not, so that they never decrease.

use heaptide_format as format;

use super::counts::Counts;
use crate::tables::calibrate::{Cell, Lacking, calibrate};
use crate::tables::sampled::{Sampled, Weight, correct, surplus};

/// Replaces counters of sampled blocks by estimates for all blocks; does nothing unless the profile
/// was sampled.
pub(super) fn estimate(
    counts: &mut [Counts],
    header: &format::FileHeader,
    lanes: impl Iterator<Item = format::Lane>,
) {
    if header.mode != format::Mode::Sampled as u32 {
        return;
    }
    let mean = header.sample_mean_bytes;
    let weight = |counts: &Counts| {
        Weight::of_size(counts.allocated_bytes as f64 / counts.allocations.max(1) as f64, mean)
    };
    let weights: Vec<Weight> = counts.iter().map(weight).collect();
    let (mut live, mut freed) = live_and_freed(lanes);
    let rows = || {
        weights.iter().zip(counts.iter()).map(|(weight, of)| Sampled {
            weight,
            live: (of.live_blocks, of.live_bytes),
            freed: (
                of.allocations.saturating_sub(of.live_blocks),
                of.allocated_bytes.saturating_sub(of.live_bytes),
            ),
            moved: (of.moved_blocks, of.moved_bytes),
        })
    };
    correct(rows, mean, &mut live, &mut freed);
    let column = |total, cell: &dyn Fn(&Weight, &Counts) -> Cell| {
        let cells = weights.iter().zip(counts.iter()).map(|(weight, counts)| cell(weight, counts));
        calibrate(&cells.collect::<Vec<_>>(), total, Lacking::MayBeUnseen)
    };
    let bytes = column(live.1, &|weight, of| weight.cell(of.live_blocks, of.live_bytes));
    let blocks = column(live.0, &|weight, of| weight.count(of.live_blocks));
    let at_peak = |weight: &Weight, of: &Counts| {
        // The number of these blocks is not stored, so it is estimated here.
        ((of.at_peak_bytes as f64 / weight.bytes()).round() as u64, of.at_peak_bytes)
    };
    let rows = weights.iter().zip(counts.iter()).map(|(weight, of)| (weight, at_peak(weight, of)));
    let more = surplus(rows, mean, (0, header.peak_bytes)).map_or(0, |(_, bytes)| bytes);
    let at_peak = column(header.peak_bytes.saturating_add(more), &|weight, of| {
        let (blocks, bytes) = at_peak(weight, of);
        weight.cell(blocks, bytes)
    });
    for (index, (counts, weight)) in counts.iter_mut().zip(&weights).enumerate() {
        (counts.live_bytes, counts.live_blocks) = (bytes[index], blocks[index]);
        counts.at_peak_bytes = at_peak[index];
        for count in [
            &mut counts.allocations,
            &mut counts.allocated_bytes,
            &mut counts.moved_blocks,
            &mut counts.moved_bytes,
        ] {
            *count = weight.estimate(*count);
        }
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
        let mut counts = [sampled];
        estimate(&mut counts, &header, [lane].into_iter());
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
