//! Joins timelines, windows and marks of several processes on a common clock, from the first start.
//!
//! The live bytes of a process are a step function: the value of its last sample, its peak at the
//! time of its peak only, and 0 after its end. The joined timeline is the sum of these functions.

use std::sync::Arc;

use super::at_once::{self, AtOnce};
use super::origin::{self, Origin};
use crate::model::{Highest, LaneId, Mark, NOTHING, Process, Sample, Window, steps};

/// Maximum number of samples of a joined timeline: if there are more, those with most live bytes
/// are kept.
const SAMPLES_MAX: usize = 1 << 15;

/// The joined timeline while processes are added.
pub(crate) struct Joining {
    start_ns: u64,
    end_ns: u64,
    images: usize,
    /// Whether the timelines cover the same events as the totals.
    covers_totals: bool,
    /// Bounds of the most bytes at one time, if they are known.
    at_once: Option<AtOnce>,
    /// Name of each process, if there are several.
    names: Vec<Option<Arc<str>>>,
    /// Samples, each with the index of its process.
    steps: Vec<(u32, Sample)>,
    windows: Vec<Window>,
    marks: Vec<Mark>,
    /// Names of the marks that traces refer to.
    mark_names: Vec<Arc<str>>,
}

impl Joining {
    pub(crate) fn of(processes: &[Process]) -> Joining {
        let start = processes.iter().map(|p| p.lifetime.start_realtime_ns).min();
        let mut names = vec![None; processes.len()];
        let ranked = processes.iter().all(|p| p.identity.rank.is_some());
        let by = if ranked { Origin::Rank } else { Origin::Process };
        let groups = match processes {
            [_] => Vec::new(),
            _ => origin::groups(processes, by),
        };
        for group in groups {
            group.members.iter().for_each(|&member| names[member] = Some(group.name.clone()));
        }
        Joining {
            start_ns: start.unwrap_or(0),
            end_ns: processes.iter().map(end_ns).max().unwrap_or(0),
            images: processes.len(),
            covers_totals: processes.iter().all(Process::has_timeline_of_totals),
            at_once: at_once::at_once(&processes.iter().collect::<Vec<_>>()),
            names,
            steps: Vec::new(),
            windows: Vec::new(),
            marks: Vec::new(),
            mark_names: Vec::new(),
        }
    }

    /// Moves the times of a process here; `lanes` maps its lanes to the joined ones.
    pub(crate) fn add(&mut self, index: usize, process: &mut Process, lanes: &[LaneId]) {
        let after_ns = process.lifetime.start_realtime_ns.saturating_sub(self.start_ns);
        let name = self.names[index].clone();
        let named = |own: &Arc<str>| match &name {
            Some(process) if own.is_empty() => Arc::from(format!("[{process}]")),
            Some(process) => Arc::from(format!("{own} [{process}]")),
            None => own.clone(),
        };
        self.windows.extend(std::mem::take(&mut process.time.windows).into_iter().map(|window| {
            let end_time_ns =
                if window.open { 0 } else { window.end_time_ns.saturating_add(after_ns) };
            let begin_time_ns = window.begin_time_ns.saturating_add(after_ns);
            Window { name: named(&window.name), begin_time_ns, end_time_ns, ..window }
        }));
        self.marks.extend(std::mem::take(&mut process.time.marks).into_iter().map(|mark| Mark {
            time_ns: mark.time_ns.saturating_add(after_ns),
            name: named(&mark.name),
            lane: mark.lane.map(|lane| lanes[lane.0 as usize]),
            ..mark
        }));
        for trace in &mut process.time.traces {
            trace.after_ns = trace.after_ns.saturating_add(after_ns);
            trace.marks.0 = trace.marks.0.saturating_add(self.mark_names.len() as u32);
        }
        self.mark_names.append(&mut process.time.mark_names);
        let ended = end_ns(process) < self.end_ns;
        let timeline = std::mem::take(&mut process.time.samples);
        let steps = match self.images {
            1 => timeline,
            _ => steps(process, timeline, ended),
        };
        self.steps.extend(steps.into_iter().map(|sample| {
            let time_ns = sample.time_ns.saturating_add(after_ns);
            (index as u32, Sample { time_ns, ..sample })
        }));
    }

    /// Stores the times in the joined process.
    pub(crate) fn finish(mut self, joined: &mut Process) {
        joined.lifetime.start_realtime_ns = self.start_ns;
        joined.lifetime.duration_ns = self.end_ns.saturating_sub(self.start_ns);
        self.windows.sort_by_key(|window| window.begin_time_ns);
        self.marks.sort_by_key(|mark| mark.time_ns);
        joined.time.windows = std::mem::take(&mut self.windows);
        joined.time.marks = std::mem::take(&mut self.marks);
        joined.time.mark_names = std::mem::take(&mut self.mark_names);
        self.steps.sort_by_key(|(_, sample)| sample.time_ns);
        let timeline = sums(&self.steps, self.images);
        if self.images > 1 {
            joined.time.accounts.clear();
            joined.time.bounds.clear();
            let highest = self.bounded(self.highest(&timeline));
            joined.peak_time_ns = highest.time_ns;
            joined.completeness.part = Some(if self.covers_totals {
                joined.time.highest = Some(highest);
                "tables of the peak add up each image's own peak".to_owned()
            } else {
                "the peak is at most this sum of each image's own".to_owned()
            });
        }
        joined.time.samples = thinned(timeline);
        joined.time.samples_have_more = !self.covers_totals;
    }
}

impl Joining {
    /// Returns the highest moment of the joined timeline; of several, the first one.
    fn highest(&self, timeline: &[Sample]) -> Highest {
        let most = timeline.iter().rev().max_by_key(|sample| sample.live_bytes).unwrap_or(&NOTHING);
        let mut live = vec![0; self.images];
        let mut at_most = live.clone();
        let mut sum = 0u64;
        for (index, step) in self.steps.iter().take_while(|(_, s)| s.time_ns <= most.time_ns) {
            let was = std::mem::replace(&mut live[*index as usize], step.live_bytes);
            sum = sum.wrapping_sub(was).wrapping_add(step.live_bytes);
            if step.time_ns == most.time_ns && sum == most.live_bytes {
                at_most.copy_from_slice(&live);
            }
        }
        let holders = self.holders(&at_most);
        let live_bytes = most.live_bytes;
        Highest { time_ns: most.time_ns, live_bytes, at_most_bytes: None, holders }
    }

    /// Returns the names of processes that held some bytes, in decreasing order of these.
    fn holders(&self, held: &[u64]) -> Vec<(Arc<str>, u64)> {
        let held = self.names.iter().zip(held).filter(|(_, held)| **held > 0);
        let mut holders: Vec<(Arc<str>, u64)> =
            held.filter_map(|(name, held)| Some((name.clone()?, *held))).collect();
        holders.sort_by_key(|&(_, held)| std::cmp::Reverse(held));
        holders
    }

    /// Replaces a moment that samples show by one with known bounds, if it is outside of them or
    /// the bounds disagree.
    fn bounded(&self, by_samples: Highest) -> Highest {
        let Some(at_once) = &self.at_once else { return by_samples };
        if at_once.agrees && at_once.contains(by_samples.live_bytes) {
            return by_samples;
        }
        Highest {
            time_ns: at_once.time_ns.saturating_sub(self.start_ns),
            live_bytes: at_once.at_least,
            at_most_bytes: (!at_once.agrees).then_some(at_once.at_most),
            holders: self.holders(&at_once.held),
        }
    }
}

/// The most bytes that several processes had live at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Most {
    /// To two percent.
    Known(u64),
    /// At most this, since changes of live bytes were faster than samples.
    Fast(u64),
    /// At most this, the sum of the peaks, since the timeline covers more than the totals, as after
    /// a filter.
    Sum(u64),
}

impl Most {
    /// Returns the bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Most::Known(bytes) | Most::Fast(bytes) | Most::Sum(bytes) => bytes,
        }
    }
}

/// Returns the most bytes that the processes had live at the same time, according to samples and
/// peaks; for a single process, its peak.
///
/// ```
/// use heaptide_analysis::recording::join_timeline::{Most, most_at_once};
/// # let mut bytes = vec![0; 4096];
/// # bytes[..8].copy_from_slice(b"HEAPTIDE");
/// # (bytes[8], bytes[12], bytes[65], bytes[72]) = (1, 2, 16, 5);
/// # let process = heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
/// assert_eq!(most_at_once(&[&process]), Most::Known(process.totals.peak_bytes));
/// ```
pub fn most_at_once(processes: &[&Process]) -> Most {
    if let [process] = processes {
        return Most::Known(process.totals.peak_bytes);
    }
    if !processes.iter().all(|process| process.has_timeline_of_totals()) {
        return Most::Sum(at_once::sum_of_peaks(processes));
    }
    let at_once = at_once::at_once(processes);
    if let Some(at_once) = at_once.as_ref().filter(|at_once| !at_once.agrees) {
        return Most::Fast(at_once.at_most);
    }
    let last_ns = processes.iter().map(|p| end_ns(p)).max().unwrap_or(0);
    let mut all: Vec<(u32, Sample)> = Vec::new();
    for (process, index) in processes.iter().zip(0..) {
        let start_ns = process.lifetime.start_realtime_ns;
        let steps = steps(process, process.time.samples.clone(), end_ns(process) < last_ns);
        all.extend(steps.into_iter().map(|sample| {
            (index, Sample { time_ns: sample.time_ns.saturating_add(start_ns), ..sample })
        }));
    }
    all.sort_by_key(|(_, sample)| sample.time_ns);
    let sums = sums(&all, processes.len());
    let most = sums.iter().map(|sum| sum.live_bytes).max().unwrap_or(0);
    let is_outside = |at_once: &AtOnce| !at_once.contains(most);
    Most::Known(at_once.filter(is_outside).map_or(most, |at_once| at_once.at_least))
}

fn end_ns(process: &Process) -> u64 {
    process.lifetime.start_realtime_ns.saturating_add(process.lifetime.duration_ns)
}

/// Returns the sum of all step functions after each step.
fn sums(steps: &[(u32, Sample)], images: usize) -> Vec<Sample> {
    let mut now = vec![NOTHING; images];
    let mut sum = NOTHING;
    let mut sums: Vec<Sample> = Vec::with_capacity(steps.len());
    for &(index, step) in steps {
        let was = std::mem::replace(&mut now[index as usize], step);
        let change = |sum: u64, is: u64, was: u64| sum.wrapping_sub(was).wrapping_add(is);
        sum = Sample {
            time_ns: step.time_ns,
            live_bytes: change(sum.live_bytes, step.live_bytes, was.live_bytes),
            peak_bytes: change(sum.peak_bytes, step.peak_bytes, was.peak_bytes),
            allocations: change(sum.allocations, step.allocations, was.allocations),
            frees: change(sum.frees, step.frees, was.frees),
            usable_bytes: change(sum.usable_bytes, step.usable_bytes, was.usable_bytes),
            resident_bytes: change(sum.resident_bytes, step.resident_bytes, was.resident_bytes),
            virtual_bytes: change(sum.virtual_bytes, step.virtual_bytes, was.virtual_bytes),
        };
        match sums.last_mut() {
            Some(last) if last.time_ns == sum.time_ns && last.live_bytes <= sum.live_bytes => {
                *last = sum;
            }
            _ => sums.push(sum),
        }
    }
    sums
}

/// Reduces samples to the highest of each group, and the last one.
fn thinned(samples: Vec<Sample>) -> Vec<Sample> {
    let Some(last) = samples.last().copied().filter(|_| samples.len() > SAMPLES_MAX) else {
        return samples;
    };
    let few = samples.len().div_ceil(SAMPLES_MAX - 1);
    let highest = |few: &[Sample]| few.iter().max_by_key(|sample| sample.live_bytes).copied();
    samples.chunks(few).filter_map(highest).chain([last]).collect()
}
