//! Bounds of the most bytes that several processes had live at the same time, from the bounds of
//! each over time: samples miss changes that are faster than they are.

use crate::model::{Bounds, Process};

/// A peak is reached within this of its time, which the recorder notes once per millisecond.
const STAMP_NS: u64 = 1_000_000;
/// Bounds agree if they differ by at most one part in this: two percent.
const AGREE_PART: u64 = 50;

/// Bounds of the most bytes at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AtOnce {
    /// A time at which at least `at_least` bytes were live, nanoseconds since 1970.
    pub(super) time_ns: u64,
    /// What each process had live at that time, at least.
    pub(super) held: Vec<u64>,
    /// The sum of what they had.
    pub(super) at_least: u64,
    /// At no time were more bytes live.
    pub(super) at_most: u64,
    /// Whether both are the same to two percent, as far as threads have published their changes.
    pub(super) agrees: bool,
}

impl AtOnce {
    pub(super) fn contains(&self, bytes: u64) -> bool {
        (self.at_least..=self.at_most).contains(&bytes)
    }
}

/// A change of the bounds of one process.
#[derive(Clone, Copy)]
struct Step {
    process: u32,
    bounds: Bounds,
}

/// Adds up the bounds of processes. `None` if one of them has none.
pub(super) fn at_once(processes: &[&Process]) -> Option<AtOnce> {
    if processes.iter().any(|process| process.time.bounds.is_empty()) {
        return None;
    }
    let last_ns = processes.iter().map(|process| end_ns(process)).max()?;
    let mut steps: Vec<Step> = Vec::new();
    for (process, index) in processes.iter().zip(0..) {
        let of = bounds(process, end_ns(process) < last_ns);
        steps.extend(of.into_iter().map(|bounds| Step { process: index, bounds }));
    }
    steps.sort_by_key(|step| step.bounds.time_ns);
    let sums = sums(&steps, processes.len());
    let highest = sums.iter().map(|sum| sum.highest).max().unwrap_or(0);
    let (at_least, (time_ns, peak)) = lowest(processes, &steps, &sums);
    let mut held = vec![0; processes.len()];
    for step in steps.iter().take_while(|step| step.bounds.time_ns <= time_ns) {
        held[step.process as usize] = step.bounds.lowest;
    }
    if let Some(process) = peak {
        held[process] = processes[process].totals.peak_bytes;
    }
    let held_back = processes
        .iter()
        .map(|process| process.completeness.peak_bound_bytes.max(heaptide_format::PEAK_BATCH));
    let at_most = held_back.fold(highest, u64::saturating_add);
    let sum = sum_of_peaks(processes);
    let highest = highest.max(at_least);
    Some(AtOnce {
        time_ns,
        held,
        at_least,
        at_most: at_most.min(sum).max(at_least),
        agrees: highest - at_least <= highest / AGREE_PART,
    })
}

/// Returns the sum of the peaks, which is a bound at all times.
pub(super) fn sum_of_peaks(processes: &[&Process]) -> u64 {
    processes.iter().fold(0, |sum, process| sum.saturating_add(process.totals.peak_bytes))
}

/// Returns the bounds of a process by wall clock, up to its end.
fn bounds(process: &Process, has_ended: bool) -> Vec<Bounds> {
    let start_ns = process.lifetime.start_realtime_ns;
    let at =
        |bounds: &Bounds| Bounds { time_ns: bounds.time_ns.saturating_add(start_ns), ..*bounds };
    let mut all: Vec<Bounds> = process.time.bounds.iter().map(at).collect();
    let last_ns = all.last().map_or(0, |last| last.time_ns);
    if has_ended {
        let time_ns = end_ns(process).max(last_ns);
        all.push(Bounds { time_ns, lowest: 0, highest: 0 });
    }
    all
}

fn end_ns(process: &Process) -> u64 {
    process.lifetime.start_realtime_ns.saturating_add(process.lifetime.duration_ns)
}

/// Returns the sums of all bounds after each step.
fn sums(steps: &[Step], processes: usize) -> Vec<Bounds> {
    let mut now = vec![Bounds::default(); processes];
    let mut sum = Bounds::default();
    let add = |sum: u64, is: u64, was: u64| sum.wrapping_sub(was).wrapping_add(is);
    let after = |step: &Step| {
        let Bounds { time_ns, lowest, highest } = step.bounds;
        let was = std::mem::replace(&mut now[step.process as usize], step.bounds);
        let (lowest, highest) =
            (add(sum.lowest, lowest, was.lowest), add(sum.highest, highest, was.highest));
        sum = Bounds { time_ns, lowest, highest };
        sum
    };
    steps.iter().map(after).collect()
}

/// Returns the most bytes that were certainly live at one time, with the time and the process, if
/// any, that had its peak then.
fn lowest(processes: &[&Process], steps: &[Step], sums: &[Bounds]) -> (u64, (u64, Option<usize>)) {
    // Of steps at the same time, the last one holds longer than no time.
    let lasts = sums
        .iter()
        .enumerate()
        .filter(|(at, sum)| sums.get(at + 1).is_none_or(|next| next.time_ns > sum.time_ns));
    let mut best = (0, (0, None));
    for (_, sum) in lasts {
        if sum.lowest > best.0 {
            best = (sum.lowest, (sum.time_ns, None));
        }
    }
    for (index, process) in processes.iter().enumerate() {
        let others = others_at_peak(index, process, steps, sums);
        let at_peak = others.saturating_add(process.totals.peak_bytes);
        if at_peak > best.0 {
            best = (at_peak, (peak_ns(process), Some(index)));
        }
    }
    best
}

fn peak_ns(process: &Process) -> u64 {
    process.lifetime.start_realtime_ns.saturating_add(process.peak_time_ns)
}

/// Returns what the other processes had live, at least, while a process had its peak.
fn others_at_peak(index: usize, process: &Process, steps: &[Step], sums: &[Bounds]) -> u64 {
    let from_ns = peak_ns(process);
    let first = sums.partition_point(|sum| sum.time_ns <= from_ns);
    let is_own = |step: &&Step| step.process as usize == index;
    let mut own = steps[..first].iter().rev().find(is_own).map_or(0, |step| step.bounds.lowest);
    let mut least = first.checked_sub(1).map_or(0, |at| sums[at].lowest.wrapping_sub(own));
    for (step, sum) in steps.iter().zip(sums).skip(first) {
        if sum.time_ns > from_ns.saturating_add(STAMP_NS) {
            break;
        }
        if step.process as usize == index {
            own = step.bounds.lowest;
        }
        least = least.min(sum.lowest.wrapping_sub(own));
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a process of one second with a peak and bounds over time.
    fn process(peak: (u64, u64), bounds: &[(u64, u64, u64)]) -> Process {
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(b"HEAPTIDE");
        (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
        let mut process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
        process.lifetime.duration_ns = 1_000_000_000;
        (process.peak_time_ns, process.totals.peak_bytes) = peak;
        let of =
            |&(time_ns, lowest, highest): &(u64, u64, u64)| Bounds { time_ns, lowest, highest };
        process.time.bounds = bounds.iter().map(of).collect();
        process
    }

    const MB: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn without_fast_changes_both_bounds_are_the_same() {
        let first = process((0, 8 * MB), &[(0, 8 * MB, 8 * MB), (SECOND / 4, 0, 0)]);
        let second = process((SECOND / 2, 6 * MB), &[(SECOND / 2, 6 * MB, 6 * MB)]);
        let found = at_once(&[&first, &second]).unwrap();
        assert!(found.agrees);
        assert_eq!((found.at_least, found.time_ns, found.held), (8 * MB, 0, vec![8 * MB, 0]));
        // With what threads may hold back.
        assert_eq!(found.at_most, 8 * MB + 2 * heaptide_format::PEAK_BATCH);
    }

    #[test]
    fn fast_changes_of_one_are_a_bound() {
        let first = process((5 * MB, 8 * MB), &[(5 * MB, 8 * MB, 8 * MB)]);
        // It flickers between 0 and 1 MB; its peak was before the other process held anything.
        let second = process((0, 2 * MB), &[(0, 0, 2 * MB), (10, 0, 0), (SECOND / 2, 0, MB)]);
        let found = at_once(&[&first, &second]).unwrap();
        assert!(!found.agrees);
        let held_back = 2 * heaptide_format::PEAK_BATCH;
        assert_eq!((found.at_least, found.at_most), (8 * MB, 9 * MB + held_back));
    }

    #[test]
    fn the_peak_of_a_process_is_exact() {
        // Between 0 and 50 MB many times, beside a constant 3 MB.
        let first = process((SECOND / 2, 50 * MB), &[(0, 0, 50 * MB)]);
        let second = process((0, 3 * MB), &[(0, 3 * MB, 3 * MB)]);
        let found = at_once(&[&first, &second]).unwrap();
        assert!(found.agrees);
        assert_eq!((found.at_least, found.at_most), (53 * MB, 53 * MB));
        assert_eq!((found.time_ns, found.held), (SECOND / 2, vec![50 * MB, 3 * MB]));
        // The other process frees within the time to which that of the peak is exact.
        let second = process((0, 3 * MB), &[(0, 3 * MB, 3 * MB), (SECOND / 2 + 1000, MB, MB)]);
        assert_eq!(at_once(&[&first, &second]).unwrap().at_least, 51 * MB);
    }

    #[test]
    fn without_bounds_nothing_is_known() {
        let first = process((0, MB), &[(0, MB, MB)]);
        assert_eq!(at_once(&[&first, &process((0, MB), &[])]), None);
    }
}
