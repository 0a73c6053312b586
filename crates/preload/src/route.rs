//! The routes on which the entries of malloc, free and the operators of C++ runtimes continue: one
//! function per mode for threads whose events may take the fast path, and one for all others.
//! Entries pass the thread's lane ([`heaptide_recorder::sys::front::Route`]).

use crate::Preload;
use crate::allocator::{Address, NULL, REAL_FREE, is_aligned};
use crate::calls::{expect_retry, record_allocation, release_inside};
use core::hint::black_box;
use core::ptr::NonNull;
use heaptide_format::Mode;
use heaptide_recorder::event::fast_path::{self, is_unobserved};
use heaptide_recorder::event::inside::Inside;
use heaptide_recorder::event::lane::LaneState;
use heaptide_recorder::event::sampling;
use heaptide_recorder::event::stacks::Same;
use heaptide_recorder::sys::front::Route;

const COUNTERS: u32 = Mode::Counters as u32;
const SCOPES: u32 = Mode::Scopes as u32;
const STACKS: u32 = Mode::Stacks as u32;
const SAMPLED: u32 = Mode::Sampled as u32;

/// Returns the route of a thread whose events may take the fast path of this mode, or of no mode
/// (0).
pub fn of_mode(mode: u32) -> Route {
    let (allocated, free): (After, Before) = match mode {
        COUNTERS => (after_counters, free_counters),
        SCOPES => (after_scopes, free_of_site),
        STACKS => (after_stacks, free_of_site),
        SAMPLED => (after_counters, free_sampled),
        _ => (after_any, free_any),
    };
    Route { allocated: Some(allocated), free: Some(free) }
}

type After = extern "C" fn(Address, usize, *mut u8) -> Address;
type Before = extern "C" fn(Address, *mut u8, u64, u64);

/// Converts the lane that an entry passed.
#[inline(always)]
fn state<'a>(lane: *mut u8) -> &'a mut LaneState {
    // SAFETY: an entry passes its thread's lane, which nothing else refers to: the entry has
    // entered the recorder, or the thread is outside of it.
    unsafe { &mut *lane.cast() }
}

extern "C" fn after_counters(block: Address, requested: usize, lane: *mut u8) -> Address {
    after(block, requested, lane, fast_path::try_alloc_in_counters::<Preload>)
}

extern "C" fn after_scopes(block: Address, requested: usize, lane: *mut u8) -> Address {
    after(block, requested, lane, fast_path::try_alloc_in_scope::<Preload>)
}

/// Continues after an allocation, which `count` counts unless it returns false.
#[inline(always)]
fn after(
    block: Address,
    requested: usize,
    lane: *mut u8,
    count: impl FnOnce(&mut LaneState, Address, u64) -> bool,
) -> Address {
    let state = state(lane);
    if !block.is_null() && is_unobserved(state) && count(state, block, requested as u64) {
        state.gate.leave();
        return block;
    }
    after_any(block, requested, lane)
}

extern "C" fn after_stacks(block: Address, requested: usize, lane: *mut u8) -> Address {
    let state = state(lane);
    if block.is_null() || !is_unobserved(state) {
        return after_any(block, requested, lane);
    }
    match fast_path::try_alloc_in_last_stack::<Preload>(state, block, requested as u64) {
        Ok(()) => {
            state.gate.leave();
            block
        }
        Err(seen) => after_other_stack(block, requested, lane, seen),
    }
}

#[inline(never)]
fn after_other_stack(block: Address, requested: usize, lane: *mut u8, seen: Same) -> Address {
    fast_path::alloc_in_stack_inline::<Preload>(&mut entered(lane), block, requested as u64, seen);
    black_box(block)
}

#[inline(never)]
extern "C" fn after_any(block: Address, requested: usize, lane: *mut u8) -> Address {
    let state = state(lane);
    // Usually only the cached limit was reached, and the actual limit is higher.
    if state.quick != 0
        && state.renew_limits()
        && let Some(allocated) = state.route.allocated
    {
        return allocated(block, requested, lane);
    }
    record_allocation(&mut entered(lane), block, requested as u64);
    // If callers knew that the result is the block, the compiler would emit a call instead of a
    // jump.
    black_box(block)
}

/// Returns the guard for an entry that has already entered the recorder.
#[inline(always)]
fn entered(lane: *mut u8) -> Inside {
    // SAFETY: not null, because the entry found the gate open; an entry continues only once.
    unsafe { Inside::by_entry(NonNull::new_unchecked(lane.cast())) }
}

/// Calls the real free, by a jump, because nothing is left to do.
#[inline(always)]
fn free_real(block: Address) {
    // SAFETY: a thread has a lane, so the allocator was found.
    let free = unsafe { REAL_FREE.known() };
    free(block)
}

extern "C" fn free_counters(block: Address, lane: *mut u8, sp: u64, bp: u64) {
    free_counted(block, lane, sp, bp, fast_path::try_free_in_counters::<Preload>)
}

extern "C" fn free_sampled(block: Address, lane: *mut u8, sp: u64, bp: u64) {
    if sampling::may_be_sampled(state(lane), block) {
        return free_near_sampled(block, lane, sp, bp);
    }
    free_counted(block, lane, sp, bp, fast_path::try_free_in_counters::<Preload>)
}

/// The same of a block that may be sampled. By a jump: a call would have others save registers.
#[inline(never)]
extern "C" fn free_near_sampled(block: Address, lane: *mut u8, sp: u64, bp: u64) {
    free_counted(block, lane, sp, bp, fast_path::try_free_in_sampled::<Preload>)
}

/// Frees a block where the lane alone counts, and `count` counts it or returns false.
#[inline(always)]
fn free_counted(
    block: Address,
    lane: *mut u8,
    sp: u64,
    bp: u64,
    count: impl FnOnce(&mut LaneState, Address) -> bool,
) {
    if block.is_null() {
        return free_nothing(lane);
    }
    let state = state(lane);
    // No shadow word identifies an address inside of a block here.
    let is_common = is_aligned(block) && is_unobserved(state);
    if is_common && count(state, block) {
        return free_real(block);
    }
    free_any(block, lane, sp, bp)
}

/// Frees a null pointer, which is no event.
#[cold]
#[inline(never)]
fn free_nothing(lane: *mut u8) {
    state(lane).count_free_of_nothing();
    free_real(NULL)
}

/// Leaves the recorder before the real call: no free calls another interposed one for the same
/// block, and if it did, the block would be unknown by then.
extern "C" fn free_of_site(block: Address, lane: *mut u8, sp: u64, bp: u64) {
    if block.is_null() {
        return free_nothing(lane);
    }
    let state = state(lane);
    state.gate.enter(sp, bp);
    if is_unobserved(state) && fast_path::try_free_in_site::<Preload>(state, block) {
        state.gate.leave();
        return free_real(block);
    }
    free_inside(block, lane)
}

extern "C" fn free_any(block: Address, lane: *mut u8, sp: u64, bp: u64) {
    if block.is_null() {
        return free_nothing(lane);
    }
    state(lane).gate.enter(sp, bp);
    free_inside(block, lane)
}

#[inline(never)]
fn free_inside(block: Address, lane: *mut u8) {
    release_inside(entered(lane), block);
    free_real(block)
}

/// Counts a failure of a C++ runtime's operator new, unless it is the retry of a request whose
/// failure was counted.
pub extern "C" fn new_failed(lane: *mut u8) {
    record_allocation(&mut entered(lane), NULL, 0);
}

/// Like `new_failed`, for new[], whose real form calls our operator new.
pub extern "C" fn new_array_failed(lane: *mut u8) {
    let mut inside = entered(lane);
    record_allocation(&mut inside, NULL, 0);
    expect_retry(inside.entry().sp);
}
