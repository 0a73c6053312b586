//! Counters per scope and thread, for programs that use the interface of malloc-tag.
//!
//! An event costs nothing more: when a thread changes its scope, the change of the lane's totals
//! since the last change is added to the scope that it leaves. Bytes are usable bytes. As in
//! malloc-tag, a reallocation counts as an allocation of the whole new block and not as a free.

use crate::event::lane::{self, LaneState};
use crate::event::tally::{COUNTERS, Counts};
use crate::store::ids::ScopeId;
use crate::store::shared::store;
use crate::store::sites::own_word;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, fence};
use heaptide_format::shared::{Scope, Word};
use heaptide_format::{Call, Loss};

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
    let seen = [
        lane.allocated(),
        lane.live.freed(),
        own_word(&lane.tallies.freed_nothing),
        own_word(&lane.record.requested_classes[0]),
    ];
    if seen == lane.tallies.seen {
        return;
    }
    lane.tallies.seen = seen;
    let now = totals(lane, own_word);
    let scope = ScopeId::of(lane.place.scope);
    let Some(tally) = lane.tallies.of(scope) else {
        return store().lost(Loss::NoScope);
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
    let counters = [
        &tallies.zeroed,
        &tallies.resized_nothing,
        &tallies.moved_blocks,
        &tallies.moved_bytes,
        &tallies.freed_nothing,
    ];
    let [zeroed, resized_nothing, blocks, bytes, nothing] =
        counters.map(|counter| counter.load(Relaxed));
    [
        allocated,
        sum(&record.requested_classes),
        record.reallocations.get().wrapping_add(resized_nothing),
        zeroed,
        sum(&record.freed_classes).saturating_sub(blocks) + nothing,
        freed.saturating_sub(bytes),
    ]
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

    /// Counts a free of a null pointer. In a forked child, the lane may be its parent's, wiped.
    pub fn count_free_of_nothing(&self) {
        if !self.gate.is_stale() && !self.is_off() {
            self.tallies.freed_nothing.add(1);
        }
    }

    /// Counts a block that realloc freed.
    #[inline(always)]
    pub fn count_moved(&self, usable: u64) {
        self.tallies.moved_blocks.add(1);
        self.tallies.moved_bytes.add(usable);
    }
}
