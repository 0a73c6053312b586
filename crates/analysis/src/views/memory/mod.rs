//! Explains an account of resident memory by rows that add up to it.
//!
//! The kernel knows which pages are resident, the allocator how many bytes it has, and the recorder
//! how many of them are live. No source knows which of the allocator's pages were never touched, so
//! the rows of the heap are computed: see [`heap`].

mod heap;
mod mappings;
mod own_mappings;
pub mod parts;
mod row;
pub mod runtime_heap;
mod runtimes;

use std::cmp::Reverse;

use crate::model::{Account, AccountCause, End, Mode, Process, PythonObjects};
use crate::selection::kind::MemoryKind;
use heaptide_format::ACCOUNT_HELD_PART;
use mappings::{Class, History};
pub use own_mappings::OwnMappings;
use own_mappings::resident_bytes;
use row::with_largest;

pub use row::Row;
pub use runtimes::Runtime;

/// Selects an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// For a running process the last one; else the one nearest to peak usage.
    Usual,
    /// The one nearest to peak usage.
    Peak,
    /// The last one.
    End,
    /// The one nearest to this time, nanoseconds from the start.
    Time(u64),
}

/// The resident memory of a process at one time, explained.
#[derive(Clone, Debug)]
pub struct Memory<'a> {
    /// The account.
    pub account: &'a Account,
    /// Its parts, in a fixed order. Together with the unexplained bytes they add up to the resident
    /// memory.
    pub rows: Vec<Row>,
    /// Resident bytes that are not in any row.
    pub unexplained_bytes: u64,
    /// Resident bytes of private mappings that have no name, were not recorded and do not belong to
    /// the heap.
    pub unrecorded_bytes: u64,
}

impl Memory<'_> {
    /// Returns the memory of a process at a time; `None` without a usable account.
    pub fn of(process: &Process, at: At) -> Option<Memory<'_>> {
        let account = choose(process, at)?;
        Some(Memory::explain(process, account, &History::of(process)))
    }

    /// Explains all accounts of a process, in order of time.
    pub fn over_time(process: &Process) -> impl Iterator<Item = Memory<'_>> {
        let history = History::of(process);
        usable(process).map(move |account| Memory::explain(process, account, &history))
    }

    fn explain<'a>(process: &Process, account: &'a Account, history: &History) -> Memory<'a> {
        let sorted = mappings::sort(process, account, history);
        let heap = heap::Heap::of(account, &sorted);
        let mut rows = vec![heap.row(slack_part(process, account))];
        let anonymous = heap.other_anonymous();
        let unrecorded = sorted.of(Class::Anonymous).filter(|range| range.mapping.is_none());
        let unrecorded = unrecorded.map(|range| range.resident_bytes).fold(0, u64::saturating_add);
        let unrecorded_bytes = unrecorded.min(anonymous.resident_bytes);
        rows.push(sorted.mappings(anonymous));
        let named = [("stacks", Class::Stack), ("modules", Class::Module)];
        rows.extend(named.map(|(name, class)| with_largest(sorted.by_name(name, class))));
        rows.push(Row { children: Vec::new(), ..sorted.by_name("recorder", Class::Recorder) });
        rows.retain(|row| row.resident_bytes > 0 || row.swap_bytes > 0);
        let explained = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.resident_bytes));
        let unexplained_bytes = account.resident_bytes.saturating_sub(explained);
        Memory { account, rows, unexplained_bytes, unrecorded_bytes }
    }

    /// Returns the bytes explained by rows.
    pub fn accounted_bytes(&self) -> u64 {
        self.account.resident_bytes.saturating_sub(self.unexplained_bytes)
    }

    /// Returns the row with this name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// What the kernel's highest resident memory may differ from the sum of all mappings, beside a
/// sixteenth of it: each thread counts up to 64 pages late.
const UNCERTAIN_BYTES: u64 = 1 << 20;

/// Returns the kind of memory that views for people show: that of the program, unless at no time
/// half of what it mapped was resident. Such mappings are address space, as those of runtimes with
/// heaps of their own. Memory that was resident between accounts counts as far as nothing else can
/// explain the highest resident memory of the process. Without accounts, that is a bound. Must be
/// called before a kind is selected.
pub fn usual_kind(process: &Process) -> MemoryKind {
    let has_objects = process.completeness.python_objects == Some(PythonObjects::Blocks);
    if process.mode != Mode::Stacks && has_objects {
        return MemoryKind::Heap; // without stacks, mappings may be the arenas of these objects
    }
    let unexplained = |account: &Account| {
        let others = account.resident_bytes.saturating_sub(resident_bytes(account));
        let beside_heap = others.saturating_sub(account.live_bytes);
        let explained = beside_heap.saturating_add(process.totals.peak_bytes);
        let most = account.most_resident_bytes;
        most.saturating_sub(explained.saturating_add(most / 16 + UNCERTAIN_BYTES))
    };
    let accounted =
        usable(process).map(|account| resident_bytes(account).max(unexplained(account))).max();
    match accounted.or_else(|| highest_resident(process)) {
        Some(resident) if resident < process.program_mapped_peak() / 2 => MemoryKind::Heap,
        _ => MemoryKind::Program,
    }
}

/// Returns the highest resident memory in samples.
fn highest_resident(process: &Process) -> Option<u64> {
    let of_mappings = process.mappings.iter().flat_map(|mapped| &mapped.samples);
    let samples = process.time.samples.iter().chain(of_mappings);
    samples.map(|sample| sample.resident_bytes).max().filter(|bytes| *bytes > 0)
}

/// Returns the accounts with numbers.
fn usable(process: &Process) -> impl Iterator<Item = &Account> {
    process.time.accounts.iter().filter(|account| account.missing.is_none())
}

/// Returns the account for a time.
fn choose(process: &Process, at: At) -> Option<&Account> {
    let away = |account: &&Account, time: u64| account.time_ns.abs_diff(time);
    let at = match at {
        At::Usual if process.lifetime.end == End::Running => At::End,
        At::Usual => At::Peak,
        at => at,
    };
    match at {
        At::End => usable(process).last(),
        At::Time(time) => usable(process).min_by_key(|account| away(account, time)),
        At::Usual | At::Peak => at_peak(process),
    }
}

/// Returns the account of peak usage: the one with the most live and mapped bytes; of several, the
/// nearest to the peak of the heap. If memory that is about as high was clearly more resident at
/// another time, the program wrote to it later, and that account is returned.
fn at_peak(process: &Process) -> Option<&Account> {
    let held = |account: &Account| account.live_bytes.saturating_add(account.mapped_bytes);
    let highest = usable(process).min_by_key(|account| {
        (Reverse(held(account)), account.time_ns.abs_diff(process.peak_time_ns))
    })?;
    let lowest = held(highest) - held(highest) / ACCOUNT_HELD_PART;
    let about = usable(process).filter(|account| held(account) >= lowest);
    let fullest = about.max_by_key(|account| account.resident_bytes)?;
    let more = fullest.resident_bytes.saturating_sub(highest.resident_bytes);
    Some(if more > highest.resident_bytes / 8 { fullest } else { highest })
}

/// Returns the part of live bytes that was not requested: for the end or the peak, that of the live
/// blocks, estimated from the averages of their sites; for other times, that of all blocks so far.
fn slack_part(process: &Process, account: &Account) -> f64 {
    let at_peak = account.live_bytes == process.totals.peak_bytes;
    let so_far = || part(account.requested_bytes, account.usable_bytes);
    if !at_peak && !matches!(account.cause, AccountCause::End | AccountCause::Now) {
        return so_far();
    }
    let (mut live, mut slack) = (0.0, 0.0);
    for site in &process.tables.sites {
        let measures = &site.measures;
        let bytes = if at_peak { measures.at_peak_bytes } else { measures.live_bytes };
        if bytes == 0 {
            continue; // most sites; avoids a cache miss for their other metrics
        }
        let bytes = bytes as f64;
        live += bytes;
        slack += bytes * part(measures.requested_bytes, measures.usable_bytes);
    }
    if live > 0.0 { slack / live } else { so_far() }
}

/// Returns the part of usable bytes that was not requested.
fn part(requested: u64, usable: u64) -> f64 {
    usable.saturating_sub(requested) as f64 / usable.max(1) as f64
}
