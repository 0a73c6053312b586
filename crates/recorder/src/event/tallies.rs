//! Counters per scope and thread, for programs that use the interface of malloc-tag.
//!
//! An event costs nothing more: when a thread changes its scope, the change of the lane's totals
//! since the last change is added to the scope that it leaves. Bytes are usable bytes. As in
//! malloc-tag, a reallocation counts as an allocation of the whole new block and not as a free.

use crate::event::lane::{self, LaneState};
use crate::event::process::process;
use crate::store::ids::ScopeId;
use crate::store::index::Index;
use crate::store::sites::own_word;
use crate::sys::memory::{self, InChild};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, fence};
use heaptide_format::shared::{Scope, Word};
use heaptide_format::{Call, Loss};

/// Indices of the counters: usable bytes allocated, allocations by any call, those by realloc,
/// those by calloc and aligned functions, frees, and their bytes.
pub const ALLOCATED: usize = 0;
pub const ALLOCATIONS: usize = 1;
pub const REALLOCATIONS: usize = 2;
pub const ZEROED: usize = 3;
pub const FREES: usize = 4;
pub const FREED: usize = 5;
pub const COUNTERS: usize = 6;

pub type Counts = [u64; COUNTERS];

/// The counters of a scope of a lane.
struct Tally {
    scope: AtomicU32,
    counts: [AtomicU64; COUNTERS],
}

/// Tallies in the first chunk of a lane; each further one has twice as many.
const FIRST_CHUNK: usize = 64;
/// Number of chunks: more tallies than a profile can have scopes.
const CHUNKS: usize = 20;

/// A lane's tallies. Other threads read what is atomic. All zeros: off.
#[repr(C)]
pub struct Tallies {
    is_on: AtomicU32,
    /// Odd while the lane's thread changes `at` and a tally.
    version: AtomicU32,
    /// The lane's totals when they were last added to a tally.
    at: [AtomicU64; COUNTERS],
    /// Counters that a lane's record lacks: calls that return zeroed or aligned blocks, calls of
    /// realloc without a block, blocks that realloc freed, and their bytes.
    zeroed: AtomicU64,
    resized_nothing: AtomicU64,
    moved_blocks: AtomicU64,
    moved_bytes: AtomicU64,
    /// Words of the lane that show whether anything happened since.
    seen: [u64; 3],
    /// The number of a scope's tally, plus one.
    index: Index<1>,
    chunks: [AtomicPtr<Tally>; CHUNKS],
    count: AtomicU32,
}

/// Set once the program has requested tallies; forked children inherit it.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Begins to count by scope, in all threads. What happened before is not counted.
pub fn begin_all() {
    if IS_WANTED.swap(true, Relaxed) {
        return;
    }
    for &lane in lane::all() {
        // SAFETY: lanes stay mapped. Only atomic fields are written.
        begin(unsafe { &*lane });
    }
}

/// Begins to count by scope in a lane that a thread takes.
pub fn begin_if_wanted(lane: &LaneState) {
    if IS_WANTED.load(Relaxed) && lane.tallies.is_on.load(Relaxed) == 0 {
        begin(lane);
    }
}

fn begin(lane: &LaneState) {
    let now = totals(lane, Word::get);
    lane.tallies.at.iter().zip(now).for_each(|(at, now)| at.store(now, Relaxed));
    lane.tallies.is_on.store(1, Release);
}

/// Adds what the thread did since its last change of scope to the scope that it is in.
#[inline(always)]
pub fn settle(lane: &mut LaneState) {
    if lane.tallies.is_on.load(Relaxed) != 0 {
        settle_changes(lane);
    }
}

#[inline(never)]
fn settle_changes(lane: &mut LaneState) {
    // Allocators whose smallest blocks have no bytes change only the last word.
    let seen = [lane.allocated(), lane.live.freed(), own_word(&lane.record.requested_classes[0])];
    if seen == lane.tallies.seen {
        return;
    }
    lane.tallies.seen = seen;
    let now = totals(lane, own_word);
    let scope = ScopeId::of(lane.place.scope);
    let Some(tally) = lane.tallies.of(scope) else {
        return process().lost(Loss::NoScope);
    };
    let tallies = &lane.tallies;
    let version = tallies.version.load(Relaxed);
    tallies.version.store(version.wrapping_add(1), Relaxed);
    fence(Release);
    for ((count, at), now) in tally.counts.iter().zip(&tallies.at).zip(now) {
        count.add(now.saturating_sub(at.load(Relaxed)));
        at.store(now, Relaxed);
    }
    tallies.version.store(version.wrapping_add(2), Release);
}

/// Returns the totals of a lane in the terms of malloc-tag.
fn totals(lane: &LaneState, read: impl Fn(&AtomicU64) -> u64) -> Counts {
    let (record, tallies) = (lane.record, &lane.tallies);
    let (allocated, freed) = lane.live.moment(&record.usable_bytes);
    let sum = |classes: &[AtomicU64]| classes.iter().map(&read).sum::<u64>();
    let [zeroed, resized_nothing, blocks, bytes] =
        [&tallies.zeroed, &tallies.resized_nothing, &tallies.moved_blocks, &tallies.moved_bytes]
            .map(|counter| counter.load(Relaxed));
    [
        allocated,
        sum(&record.requested_classes),
        record.reallocations.get().wrapping_add(resized_nothing),
        zeroed,
        sum(&record.freed_classes).saturating_sub(blocks),
        freed.saturating_sub(bytes),
    ]
}

impl Tallies {
    /// Returns the tally of a scope, created if it is new; none without memory.
    fn of(&mut self, scope: ScopeId) -> Option<&'static Tally> {
        match self.index.get([scope.number()]) {
            0 => self.create(scope),
            number => self.get(number as usize - 1),
        }
    }

    #[cold]
    fn create(&mut self, scope: ScopeId) -> Option<&'static Tally> {
        let count = self.count.load(Relaxed);
        let (chunk, _) = position(count as usize);
        let place = self.chunks.get(chunk)?;
        if place.load(Relaxed).is_null() {
            let bytes = (FIRST_CHUNK << chunk) * size_of::<Tally>();
            let memory = memory::take(bytes, InChild::Nothing) as *mut Tally;
            place.store(memory, Release);
        }
        let tally = self.get(count as usize)?;
        tally.scope.store(scope.number(), Relaxed);
        if !self.index.insert([scope.number()], count + 1) {
            return None;
        }
        self.count.store(count + 1, Release);
        Some(tally)
    }

    fn get(&self, number: usize) -> Option<&'static Tally> {
        let (chunk, at) = position(number);
        let memory = self.chunks.get(chunk)?.load(Acquire);
        // SAFETY: null, or memory for that many tallies, which is never released; all zeros is a
        // valid value.
        (!memory.is_null()).then(|| unsafe { &*memory.add(at) })
    }
}

/// Returns the chunk of a tally, and the position in it.
fn position(number: usize) -> (usize, usize) {
    let chunk = (number / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, number - FIRST_CHUNK * ((1 << chunk) - 1))
}

/// Calls `visit` with the counters of each scope of a lane in which something happened, also on
/// other threads and in signal handlers. A scope may be visited several times, with counters that
/// replace the earlier ones.
pub fn read(lane: &LaneState, mut visit: impl FnMut(ScopeId, Counts)) {
    /// A thread changes a tally in some ns. More tries only help if it is interrupted there.
    const TRIES: usize = 64;
    let tallies = &lane.tallies;
    if tallies.is_on.load(Acquire) == 0 {
        return;
    }
    for attempt in 1..=TRIES {
        let version = tallies.version.load(Acquire);
        if version & 1 != 0 && attempt < TRIES {
            core::hint::spin_loop();
            continue;
        }
        let (scope, pending) = pending(lane);
        let mut is_scope_tallied = false;
        for number in 0..tallies.count.load(Acquire) as usize {
            let Some(tally) = tallies.get(number) else {
                break;
            };
            let of = ScopeId::new(tally.scope.load(Relaxed));
            let mut counts = [0; COUNTERS];
            for (sum, count) in counts.iter_mut().zip(&tally.counts) {
                *sum = count.load(Relaxed);
            }
            if of == scope {
                is_scope_tallied = true;
                counts.iter_mut().zip(pending).for_each(|(sum, more)| *sum += more);
            }
            visit(of, counts);
        }
        if !is_scope_tallied {
            visit(scope, pending);
        }
        fence(Acquire);
        if tallies.version.load(Relaxed) == version {
            return;
        }
    }
}

/// Returns the scope that a lane's thread is in, and what it did there since the last change.
fn pending(lane: &LaneState) -> (ScopeId, Counts) {
    // SAFETY: the field always refers to a record of the profile; another thread may change it.
    let scope: &'static Scope = unsafe { (&raw const lane.place.scope).read_volatile() };
    let mut counts = totals(lane, Word::get);
    for (now, at) in counts.iter_mut().zip(&lane.tallies.at) {
        *now = now.saturating_sub(at.load(Relaxed));
    }
    (ScopeId::of(scope), counts)
}

impl LaneState {
    /// Counts a successful call that lanes do not distinguish from malloc.
    #[inline(always)]
    pub fn count_call(&self, call: Call) {
        let counter = match call {
            Call::Calloc | Call::Aligned => &self.tallies.zeroed,
            Call::Realloc => &self.tallies.resized_nothing,
            Call::Malloc | Call::New | Call::Other => return,
        };
        if !self.is_off() {
            counter.add(1);
        }
    }

    /// Counts a block that realloc freed.
    #[inline(always)]
    pub fn count_moved(&self, usable: u64) {
        self.tallies.moved_blocks.add(1);
        self.tallies.moved_bytes.add(usable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for number in 0..10_000 {
            assert_eq!(position(number), expected, "{number}");
            expected.1 += 1;
            if expected.1 == FIRST_CHUNK << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn each_scope_has_a_tally_of_its_own() {
        // SAFETY: all zeros is a valid value.
        let mut tallies = unsafe { std::boxed::Box::<Tallies>::new_zeroed().assume_init() };
        let scopes = 1..500u32;
        for scope in scopes.clone() {
            tallies.of(ScopeId::new(scope)).expect("memory").counts[ALLOCATED].add(scope as u64);
        }
        for scope in scopes {
            let tally = tallies.of(ScopeId::new(scope)).expect("memory");
            assert_eq!(tally.counts[ALLOCATED].load(Relaxed), scope as u64);
        }
        assert_eq!(tallies.count.load(Relaxed), 499);
    }
}
