//! Resident memory of the allocator that contains no live blocks.

use heaptide_analysis::model::Sample;
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
/// The final part of the run for which this must hold, in percent: a program that needs the memory
/// again, or that ends soon, has a reason to keep it.
const TIME_PERCENT_MIN: u64 = 50;
/// Samples have the resident memory of the process, but not that of the heap. If a sample has at
/// least the resident memory of an account minus this percentage, its state counts as equal.
const RESIDENT_PERCENT_LESS: u64 = 10;

/// The heap at an account.
struct State {
    /// Resident bytes of the process.
    resident: u64,
    live: u64,
    free: u64,
    heap: u64,
}

fn judge(material: &Material) -> Judged {
    let process = material.process;
    let states: Vec<State> = Memory::over_time(process).filter_map(|m| State::of(&m)).collect();
    if states.is_empty() || process.time.samples.len() < 2 {
        return Judged::Needs("accounts of resident memory and samples: record a longer run");
    }
    Judged::Found(finding(material, &states).into_iter().collect())
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

    fn is_mostly_free(&self) -> bool {
        self.free >= FREE_MIN
            && self.free > self.heap / 100 * FREE_PERCENT_MIN
            && self.free > self.resident / 100 * RESIDENT_PERCENT_MIN
    }

    /// Returns whether a sample is in this state: as much resident memory, and as little live
    /// memory.
    fn is_at(&self, sample: &Sample) -> bool {
        sample.resident_bytes >= self.resident / 100 * (100 - RESIDENT_PERCENT_LESS)
            && sample.live_bytes <= self.heap / 100 * (100 - FREE_PERCENT_MIN)
    }
}

fn finding(material: &Material, states: &[State]) -> Option<Finding> {
    let process = material.process;
    let run_ns = process.lifetime.duration_ns;
    let free = states.iter().filter(|state| state.is_mostly_free());
    let state = free.min_by_key(|state| state.free)?;
    let samples = process.time.samples.iter().rev();
    let since = samples.take_while(|sample| state.is_at(sample)).last()?;
    let lasted_ns = run_ns.saturating_sub(since.time_ns);
    if lasted_ns < run_ns / 100 * TIME_PERCENT_MIN {
        return None;
    }
    Some(Finding {
        rule: RULE.name,
        place: None,
        what: format!("keeps {} resident that no block needs", bytes(state.free)),
        evidence: vec![format!(
            "for the last {} of {}, {} of {} of the resident heap were live",
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
