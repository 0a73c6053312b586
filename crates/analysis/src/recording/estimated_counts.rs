//! Counters of a sampled profile as estimates. What is live, and was at the peak, adds up to what
//! lanes counted; what was allocated does not, so that it never falls.

use heaptide_format as format;

use super::live::Counts;
use crate::tables::calibrate::{Cell, Lacking, calibrate};
use crate::tables::sampled::Weight;

/// Turns counts of sampled blocks into estimates of all; nothing in a profile with all blocks.
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
    let live = live(lanes);
    let column = |total, cell: &dyn Fn(&Weight, &Counts) -> Cell| {
        let cells = weights.iter().zip(counts.iter()).map(|(weight, counts)| cell(weight, counts));
        calibrate(&cells.collect::<Vec<_>>(), total, Lacking::MayBeUnseen)
    };
    let bytes = column(live.1, &|weight, of| weight.cell(of.live_blocks, of.live_bytes));
    let blocks = column(live.0, &|weight, of| weight.count(of.live_blocks));
    let at_peak = column(header.peak_bytes, &|weight, of| {
        // How many blocks there were is not known here.
        weight.cell((of.at_peak_bytes as f64 / weight.bytes()).round() as u64, of.at_peak_bytes)
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

/// Blocks and bytes that are live.
fn live(lanes: impl Iterator<Item = format::Lane>) -> (u64, u64) {
    let mut sums = [0u64; 4];
    for lane in lanes {
        let count = |classes: &[u64]| classes.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let (allocated, freed) = (count(&lane.requested_classes), count(&lane.freed_classes));
        let of_lane = [allocated, freed, lane.usable_bytes, lane.freed_here_bytes];
        sums.iter_mut().zip(of_lane).for_each(|(sum, n)| *sum = sum.saturating_add(n));
    }
    let [allocated, freed, bytes, freed_bytes] = sums;
    (allocated.saturating_sub(freed), bytes.saturating_sub(freed_bytes))
}
