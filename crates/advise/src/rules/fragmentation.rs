//! Resident memory of the allocator that contains no live blocks.
//!
//! The saving is the least free resident memory while this state lasts. A part of it may stay
//! resident for another reason, so it is an upper bound.

use heaptide_analysis::model::{Process, Sample};
use heaptide_analysis::quantity::{bytes, duration};
use heaptide_analysis::views::memory::Memory;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::Material;
use crate::rule::{Judged, Rule};

pub(super) const RULE: Rule = Rule {
    name: "fragmentation",
    title: "Resident memory that no live block needs",
    about: "In the last part of the run, the allocator has much more resident memory than the live \
            blocks need. After a peak, free blocks lie between live ones and cannot be returned to \
            the system, or the allocator keeps them for later. Allocate long-lived blocks before \
            short-lived ones, or separately from them; `malloc_trim`, fewer arenas \
            (`MALLOC_ARENA_MAX`) or another allocator return memory to the system.",
    judge,
};

/// Free memory worth a finding, in percent of the heap's resident memory …
const FREE_PERCENT_MIN: u64 = 50;
/// … and in percent of the process's resident memory.
const RESIDENT_PERCENT_MIN: u64 = 25;
/// Allocators usually keep less than this, in bytes.
const FREE_MIN: u64 = 16 << 20;
/// The part of the run for which this must hold, in percent: a program that needs the memory again,
/// or that ends soon, has a reason to keep it.
const TIME_PERCENT_MIN: u64 = 50;
/// A shorter part suffices if live memory stays at a level, which it does not while a program frees
/// its data at its end: in percent of the run, and in nanoseconds.
const LEVEL_TIME_PERCENT_MIN: u64 = 25;
const LEVEL_TIME_MIN_NS: u64 = 500_000_000;
/// The range of a level, in percent of the heap.
const LEVEL_PERCENT: u64 = 10;
/// Samples have the resident memory of the process, but not that of the heap. If a sample has at
/// least the resident memory of an account minus this percentage, its state counts as equal.
const RESIDENT_PERCENT_LESS: u64 = 10;

/// The heap at an account or a sample.
#[derive(Clone, Copy)]
struct State {
    /// Resident bytes of the process.
    resident: u64,
    live: u64,
    free: u64,
    heap: u64,
}

fn judge(material: &Material) -> Judged {
    let process = material.process;
    let accounts: Vec<State> = Memory::over_time(process).filter_map(|m| State::of(&m)).collect();
    if accounts.is_empty() || process.time.samples.len() < 2 {
        return Judged::Needs(match process.identity.images {
            1 => "accounts of resident memory and samples: record a longer run",
            _ => "accounts of one process: choose it with `--process`",
        });
    }
    let least = |states: &[State]| {
        states.iter().copied().filter(State::is_mostly_free).min_by_key(|state| state.free)
    };
    let state = least(&accounts);
    // Without the allocator's own numbers, what is resident beside live blocks is free.
    if state.is_none() && !process.knows_all_blocks() {
        return Judged::Needs("all blocks of the heap: record the program from its start");
    }
    let state = state.or_else(|| least(&after_peak(&process.time.samples, &accounts)));
    Judged::Found(state.and_then(|state| finding(process, &state)).into_iter().collect())
}

/// Returns the states at the samples after the one with most live bytes, which may be more recent
/// than the last account of a program that works.
///
/// Resident memory outside of the heap is at most as much as at any account and at the peak.
fn after_peak(samples: &[Sample], accounts: &[State]) -> Vec<State> {
    let highest = (0..samples.len()).max_by_key(|&index| samples[index].live_bytes);
    let Some((peak, after)) = highest.and_then(|index| samples[index..].split_first()) else {
        return Vec::new();
    };
    let at_peak = peak.resident_bytes.saturating_sub(peak.live_bytes);
    let others = accounts.iter().map(|state| state.resident.saturating_sub(state.heap));
    let others = others.fold(at_peak, u64::max);
    // Resident memory that grows after the peak can be of other mappings.
    let own = after.iter().filter(|sample| sample.resident_bytes <= peak.resident_bytes);
    own.map(|sample| State::at(sample, others)).collect()
}

impl State {
    fn of(memory: &Memory) -> Option<State> {
        let heap = memory.row("heap")?;
        let free = heap.children.iter().find(|child| child.name == "free")?;
        Some(State {
            resident: memory.account.resident_bytes,
            live: memory.account.live_bytes,
            free: free.resident_bytes,
            heap: heap.resident_bytes,
        })
    }

    /// Returns the state at a sample of a process with `others` resident bytes outside of the heap.
    fn at(sample: &Sample, others: u64) -> State {
        let heap = sample.resident_bytes.saturating_sub(others);
        let (resident, live) = (sample.resident_bytes, sample.live_bytes);
        State { resident, live, free: heap.saturating_sub(live), heap }
    }

    fn is_mostly_free(&self) -> bool {
        self.free >= FREE_MIN
            && self.free > self.heap / 100 * FREE_PERCENT_MIN
            && self.free > self.resident / 100 * RESIDENT_PERCENT_MIN
    }

    /// Returns whether at most as much of the heap is live as in this state.
    fn has_little_live(&self, sample: &Sample) -> bool {
        sample.live_bytes <= self.heap / 100 * (100 - FREE_PERCENT_MIN)
    }

    /// Returns whether a sample is in this state: as much resident memory, and as little live
    /// memory.
    fn is_at(&self, sample: &Sample) -> bool {
        sample.resident_bytes >= self.resident / 100 * (100 - RESIDENT_PERCENT_LESS)
            && self.has_little_live(sample)
    }
}

/// Returns the samples in a state after the last one with much live memory: their live bytes, and
/// how long each lasted.
fn lasting(process: &Process, state: &State) -> Vec<(u64, u64)> {
    let samples = &process.time.samples;
    let is_high = |sample: &Sample| !state.has_little_live(sample);
    let since = samples.iter().rposition(is_high).map_or(0, |index| index + 1);
    let ends = samples.iter().skip(since + 1).map(|sample| sample.time_ns);
    let ends = ends.chain([process.lifetime.duration_ns]);
    let each = samples[since..].iter().zip(ends).filter(|(sample, _)| state.is_at(sample));
    each.map(|(sample, end)| (sample.live_bytes, end.saturating_sub(sample.time_ns))).collect()
}

fn sum(durations: &[(u64, u64)]) -> u64 {
    durations.iter().fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
}

/// Returns the longest time for which live bytes stay within `range` bytes.
fn longest_level(mut durations: Vec<(u64, u64)>, range: u64) -> u64 {
    durations.sort_unstable();
    let (mut from, mut longest, mut time) = (0, 0u64, 0u64);
    for &(live, ns) in &durations {
        time = time.saturating_add(ns);
        while live.saturating_sub(durations[from].0) > range {
            time = time.saturating_sub(durations[from].1);
            from += 1;
        }
        longest = longest.max(time);
    }
    longest
}

fn finding(process: &Process, state: &State) -> Option<Finding> {
    let run_ns = process.lifetime.duration_ns;
    let durations = lasting(process, state);
    let lasted_ns = sum(&durations);
    let level_ns = longest_level(durations, state.heap / 100 * LEVEL_PERCENT);
    let level_min_ns = LEVEL_TIME_MIN_NS.max(run_ns / 100 * LEVEL_TIME_PERCENT_MIN);
    if lasted_ns < run_ns / 100 * TIME_PERCENT_MIN && level_ns < level_min_ns {
        return None;
    }
    Some(Finding {
        rule: RULE.name,
        place: None,
        what: format!("keeps {} resident that no block needs", bytes(state.free)),
        evidence: vec![format!(
            "for {} of {}, after the last time that more was live, {} of {} of the resident heap \
             were live",
            duration(lasted_ns),
            duration(run_ns),
            bytes(state.live),
            bytes(state.heap)
        )],
        advice: "Allocate long-lived blocks before short-lived ones, or call `malloc_trim` after \
                 the peak; `heaptide memory` shows the account."
            .to_owned(),
        saves: Saves { resident_bytes: state.free, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_level_is_the_longest_time_within_a_range() {
        assert_eq!(longest_level(vec![(100, 5), (20, 7), (10, 8), (55, 1)], 10), 15);
        assert_eq!(longest_level(vec![(50, 1), (40, 1), (30, 1), (20, 1)], 10), 2);
        assert_eq!(longest_level(Vec::new(), 10), 0);
    }

    #[test]
    fn free_memory_of_samples_excludes_other_mappings() {
        let sample = |live_bytes: u64, resident_bytes: u64| Sample {
            live_bytes: live_bytes << 20,
            resident_bytes: resident_bytes << 20,
            ..Sample::default()
        };
        let account = State { resident: 60 << 20, live: 40 << 20, free: 0, heap: 40 << 20 };
        let samples = [sample(10, 40), sample(80, 110), sample(10, 105), sample(10, 300)];
        let states = after_peak(&samples, &[account]);
        // 30 MiB at the peak are outside of the heap; the last sample has other mappings.
        assert_eq!(states.len(), 1);
        assert_eq!((states[0].free >> 20, states[0].heap >> 20), (65, 75));
    }
}
