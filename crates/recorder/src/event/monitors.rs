//! Monitors: callbacks of the program or of plug-ins on every allocation and free.
//!
//! A thread that calls monitors notes that in its lane, by a plain store, before it reads their
//! table. A thread that removes a monitor has the kernel make the stores of all other threads
//! visible (membarrier), and then waits for those that are inside. So the calling side needs no
//! fence.

use crate::event::lane::{self, LaneState};
use crate::store::control_words;
use crate::sys::locked::{Held, Lock};
use crate::sys::range::Range;
use crate::sys::wiped::Wiped;
use crate::sys::{confined, kernel};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, compiler_fence, fence};
use heaptide_format::CONTROL_MONITORS;

/// Maximum number of monitors that are registered at once.
const MONITORS_MAX: usize = 32;
/// The version of [`Monitor`].
pub const VERSION: u32 = 1;
/// Number of turns that a deregistration waits for callbacks to return: some seconds.
const WAIT_TURNS: u32 = 4_000_000;

/// A monitor, as in the C interface.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Monitor {
    pub version: u32,
    pub size: u32,
    name: *const c_char,
    pub context: *mut c_void,
    pub allocated: Option<extern "C" fn(*mut c_void, *mut u8, usize, usize)>,
    pub freed: Option<extern "C" fn(*mut c_void, *mut u8, usize)>,
    pub destroy: Option<extern "C" fn(*mut c_void)>,
}

/// The state of a slot: Free → Live → Leaving → Free; Live → Held → Live or Free, while its library
/// may be unloaded; Held → Leaving, for the library's own destructors.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Slot {
    Free = 0,
    Live = 1,
    Held = 2,
    Leaving = 3,
}

pub struct Entry {
    pub state: AtomicU32,
    /// Number of uses of the slot; a part of the id.
    pub turn: AtomicU32,
    /// Written while the state is Free, under the lock.
    pub monitor: UnsafeCell<Monitor>,
    /// The mapping of its code, and whether a dlclose may unmap it.
    pub code: UnsafeCell<Range>,
    pub late: AtomicBool,
}

/// The table of monitors. A forked child has the monitors of its parent, so the table lies in
/// memory that is not wiped.
pub struct Monitors {
    pub entries: [Entry; MONITORS_MAX],
    /// Number of entries that were ever used.
    pub used: AtomicU32,
}

// SAFETY: fields that are not atomic are written under the lock, in entries that no thread reads.
unsafe impl Sync for Monitors {}

pub static MONITORS: Monitors =
    Monitors { entries: [const { Entry::none() }; MONITORS_MAX], used: AtomicU32::new(0) };

/// The state that is not shared with forked children.
struct Watch {
    lock: Lock,
    /// Whether the kernel fences other threads on demand: 0 unknown, 1 yes, 2 no.
    asymmetric: AtomicU32,
    /// Number of blocks that are being moved by realloc.
    moving: AtomicU32,
}

impl Entry {
    const fn none() -> Entry {
        Entry {
            state: AtomicU32::new(Slot::Free as u32),
            turn: AtomicU32::new(0),
            monitor: UnsafeCell::new(Monitor {
                version: 0,
                size: 0,
                name: core::ptr::null(),
                context: core::ptr::null_mut(),
                allocated: None,
                freed: None,
                destroy: None,
            }),
            code: UnsafeCell::new(Range::EMPTY),
            late: AtomicBool::new(false),
        }
    }
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static WATCH: Wiped<Watch> = unsafe { Wiped::new() };

/// Makes forked children start without a registration in progress.
pub fn wipe_in_children() {
    WATCH.wipe_in_children();
}

/// Acquires the lock of registrations.
pub fn acquire() -> Option<Held<'static, ()>> {
    WATCH.get().lock.acquire()
}

/// Continues with the monitors of the process from which this one was forked.
pub fn resume() {
    if MONITORS.entries.iter().any(|entry| entry.state.load(Acquire) == Slot::Live as u32) {
        control_words::set(CONTROL_MONITORS);
    }
}

/// Waits until every other thread that may have seen a monitor's old state has left its callbacks.
/// Returns false if one does not leave within some seconds.
pub fn wait_for_others(lane: &LaneState) -> bool {
    fence(SeqCst);
    if WATCH.get().asymmetric.load(Relaxed) == 1 {
        kernel::membarrier(kernel::MEMBARRIER_PRIVATE_EXPEDITED);
    }
    for &other in lane::all() {
        // SAFETY: lanes stay mapped; the field is atomic.
        let calling = unsafe { &(*other).calling };
        let seen = calling.load(Acquire);
        if core::ptr::eq(other, lane) || seen & 1 == 0 {
            continue;
        }
        let mut turns = 0;
        while calling.load(Acquire) == seen {
            turns += 1;
            if turns == WAIT_TURNS {
                return false;
            }
            kernel::sched_yield();
        }
    }
    true
}

/// Determines whether the kernel fences other threads on demand.
pub fn prepare_fences() {
    let asymmetric = &WATCH.get().asymmetric;
    if asymmetric.load(Relaxed) == 0 {
        let allowed = confined::may_call()
            && kernel::membarrier(kernel::MEMBARRIER_REGISTER_PRIVATE_EXPEDITED);
        asymmetric.store(if allowed { 1 } else { 2 }, Release);
    }
}

/// Calls all monitors on the calling thread, which is inside the recorder.
#[inline(always)]
fn each(lane: &LaneState, call: impl Fn(&Monitor)) {
    let turn = lane.calling.load(Relaxed);
    if turn & 1 != 0 {
        return;
    }
    lane.calling.store(turn.wrapping_add(1), Relaxed);
    compiler_fence(SeqCst);
    if WATCH.get().asymmetric.load(Relaxed) != 1 {
        fence(SeqCst);
    }
    for entry in &MONITORS.entries[..MONITORS.used.load(Acquire) as usize] {
        if entry.state.load(Acquire) == Slot::Live as u32 {
            // SAFETY: a live entry is not written.
            call(unsafe { &*entry.monitor.get() });
        }
    }
    lane.calling.store(turn.wrapping_add(2), Release);
}

/// Returns whether the thread is in a callback.
pub fn is_calling(lane: &LaneState) -> bool {
    lane.calling.load(Relaxed) & 1 != 0
}

/// Announces that a block may be moved. Another thread that gets its memory does not notify
/// monitors before this one has notified them that the block is gone. So monitors can rely on
/// addresses.
pub fn begin_move(lane: &LaneState, block: *mut u8) {
    lane.moving.store(block as u64, Release);
    WATCH.get().moving.fetch_add(1, AcqRel);
}

/// Ends the announced move, after monitors were notified if the block moved.
pub fn end_move(lane: &LaneState) {
    if lane.moving.load(Relaxed) != 0 && lane.moving.swap(0, AcqRel) != 0 {
        WATCH.get().moving.fetch_sub(1, AcqRel);
    }
}

#[cold]
#[inline(never)]
fn wait_for_move(lane: &LaneState, block: *mut u8) {
    for &other in lane::all() {
        // SAFETY: lanes stay mapped; the field is atomic.
        let moving = unsafe { &(*other).moving };
        let mut turns = 0;
        while moving.load(Acquire) == block as u64 && !core::ptr::eq(other, lane) {
            turns += 1;
            if turns == WAIT_TURNS {
                return;
            }
            kernel::sched_yield();
        }
    }
}

/// Notifies monitors that a block was allocated.
#[inline(always)]
pub fn notify_alloc(lane: &LaneState, block: *mut u8, requested: u64, usable: u64) {
    if WATCH.get().moving.load(Acquire) != 0 {
        wait_for_move(lane, block);
    }
    each(lane, |monitor| {
        if let Some(allocated) = monitor.allocated {
            allocated(monitor.context, block, requested as usize, usable as usize);
        }
    });
}

/// Notifies monitors that a block is about to be freed.
#[inline(always)]
pub fn notify_free(lane: &LaneState, block: *mut u8, usable: u64) {
    each(lane, |monitor| {
        if let Some(freed) = monitor.freed {
            freed(monitor.context, block, usable as usize);
        }
    });
}
