//! Live memory over time, from the samples that every recording has.
//!
//! Samples are a step function: a value holds from its sample to the next one.

use heaptide_analysis::model::{MarkKind, Process, Sample};

/// Returns an upper bound of the blocks that were live at the same time; `None` for joined
/// processes, whose samples are sums.
///
/// Between two samples, at most as many blocks became live as were allocated.
pub(crate) fn live_blocks_max(process: &Process) -> Option<u64> {
    if process.identity.images != 1 {
        return None;
    }
    let is_reset = process.time.marks.iter().any(|mark| mark.kind == MarkKind::Reset);
    let (mut most, mut before) = (0u64, Sample::default());
    for sample in &process.time.samples {
        most = most.max(between(&before, sample.allocations));
        before = *sample;
    }
    let end = process.totals.allocations;
    // After a reset, totals count from there, samples from the start.
    let end = if is_reset { before.allocations.saturating_add(end) } else { end };
    Some(most.max(between(&before, end)))
}

/// Returns an upper bound of the live blocks from a sample until a number of allocations.
fn between(sample: &Sample, allocations: u64) -> u64 {
    let live = sample.allocations.saturating_sub(sample.frees);
    live.saturating_add(allocations.saturating_sub(sample.allocations))
}

/// Returns the last time at which at least this many bytes were live; `None` if they never were.
pub(crate) fn last_time_above(process: &Process, bytes: u64) -> Option<u64> {
    let samples = &process.time.samples;
    let last = samples.iter().rposition(|sample| sample.live_bytes >= bytes)?;
    let next = samples.get(last + 1).map(|sample| sample.time_ns);
    Some(next.unwrap_or(process.lifetime.duration_ns.max(samples[last].time_ns)))
}

/// Returns the least live bytes in each of `N` equal parts of the time until `end_ns`: memory that
/// is allocated and freed within a part does not count.
pub(crate) fn floors<const N: usize>(samples: &[Sample], end_ns: u64) -> [u64; N] {
    let mut floors = [0; N];
    let mut live = 0;
    let mut rest = samples;
    for (part, floor) in (1u128..).zip(&mut floors) {
        let until = (u128::from(end_ns) * part / N as u128) as u64;
        let count = rest.partition_point(|sample| sample.time_ns < until);
        let (inside, later) = rest.split_at(count);
        *floor = inside.iter().map(|sample| sample.live_bytes).fold(live, u64::min);
        live = inside.last().map_or(live, |sample| sample.live_bytes);
        rest = later;
    }
    floors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_ns: u64, live_bytes: u64) -> Sample {
        Sample { time_ns, live_bytes, ..Sample::default() }
    }

    #[test]
    fn floors_are_the_least_values_of_a_step_function() {
        let samples = [sample(5, 10), sample(12, 90), sample(15, 20), sample(35, 70)];
        assert_eq!(floors(&samples, 40), [0, 10, 20, 20]);
        assert_eq!(floors(&samples, 80), [0, 70]);
        assert_eq!(floors::<3>(&[], 40), [0; 3]);
    }

    #[test]
    fn live_blocks_between_samples_are_bounded_by_allocations() {
        let sample = Sample { allocations: 100, frees: 90, ..Sample::default() };
        assert_eq!(between(&sample, 150), 60);
        assert_eq!(between(&sample, 100), 10);
        assert_eq!(between(&Sample::default(), 7), 7);
    }
}
