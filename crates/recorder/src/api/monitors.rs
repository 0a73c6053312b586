//! Monitors: code of others that is called on every allocation and free.
//!
//! A thread that calls monitors says so in its lane before it looks at their table, by a plain
//! store. Whoever takes a monitor away has the kernel make every other thread's stores visible
//! (membarrier), and then waits for those that are inside: so the calling side needs no fence.

use crate::event::lane::{self, Inside, LaneState};
use crate::event::process::{Process, process};
use crate::event::stacks::here;
use crate::store::modules;
use crate::sys::front::Front;
use crate::sys::libc::Function;
use crate::sys::locked::Lock;
use crate::sys::range::Range;
use crate::sys::{confined, kernel};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, compiler_fence, fence};
use heaptide_format::CONTROL_MONITORS;

/// Monitors that may be registered at once.
const MONITORS_MAX: usize = 32;
/// The version of [`Monitor`].
const VERSION: u32 = 1;
/// Turns that a deregistration waits for callbacks to return: some seconds.
const WAIT_TURNS: u32 = 4_000_000;

/// As the C interface has it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Monitor {
    version: u32,
    size: u32,
    name: *const c_char,
    context: *mut c_void,
    allocated: Option<extern "C" fn(*mut c_void, *mut u8, usize, usize)>,
    freed: Option<extern "C" fn(*mut c_void, *mut u8, usize)>,
    destroy: Option<extern "C" fn(*mut c_void)>,
}

/// Free → Live → Leaving → Free; Live → Held → Live or Free, while its library may be unloaded;
/// Held → Leaving, for the library's own destructors.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Slot {
    Free = 0,
    Live = 1,
    Held = 2,
    Leaving = 3,
}

struct Entry {
    state: AtomicU32,
    /// Counts uses of the slot; part of the id.
    turn: AtomicU32,
    /// Written while the state is Free, under the lock.
    monitor: UnsafeCell<Monitor>,
    /// The mapping of its code, and whether a dlclose may take it away.
    code: UnsafeCell<Range>,
    late: AtomicBool,
}

/// The table of them. A forked child has the monitors of its parent, so it lies in memory that is
/// not wiped.
struct Monitors {
    entries: [Entry; MONITORS_MAX],
    /// Entries ever used.
    used: AtomicU32,
}

// SAFETY: what is not atomic is written under the lock, in entries that nobody reads.
unsafe impl Sync for Monitors {}

static MONITORS: Monitors =
    Monitors { entries: [const { Entry::none() }; MONITORS_MAX], used: AtomicU32::new(0) };

/// What is each process's own.
pub struct Watch {
    lock: Lock,
    /// The kernel fences other threads on demand; 0 unknown, 1 yes, 2 no.
    asymmetric: AtomicU32,
    /// Blocks that are being moved by realloc.
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

/// Goes on with the monitors of the process that this one is a fork of.
pub fn resume(p: &Process) {
    if MONITORS.entries.iter().any(|entry| entry.state.load(Acquire) == Slot::Live as u32) {
        crate::api::control::set(p, CONTROL_MONITORS);
    }
}

impl Monitors {
    fn entry(&self, id: u64) -> Option<&Entry> {
        let entry = self.entries.get((id as u32).checked_sub(1)? as usize)?;
        let current = entry.turn.load(Relaxed) == (id >> 32) as u32;
        (current && entry.state.load(Acquire) != Slot::Free as u32).then_some(entry)
    }
}

/// Registers a monitor; its id, or 0. The caller is inside the recorder.
///
/// # Safety
/// `monitor` points at a monitor of the C interface, or at one of an older version.
pub unsafe fn register(lane: &mut LaneState, monitor: *const Monitor) -> u64 {
    let p = process();
    let monitors = &MONITORS;
    // SAFETY: as promised; the first two words are those of every version.
    let known = unsafe {
        !monitor.is_null()
            && (*monitor).version == VERSION
            && (*monitor).size as usize >= size_of::<Monitor>()
    };
    let Some(_held) = known.then(|| p.watch.lock.acquire()).flatten() else {
        return 0;
    };
    prepare_fences(p);
    let free = |entry: &Entry| entry.state.load(Acquire) == Slot::Free as u32;
    let Some(place) = monitors.entries.iter().position(free) else {
        return 0;
    };
    let entry = &monitors.entries[place];
    // SAFETY: the slot is free and the lock is held; nobody reads it.
    unsafe {
        let monitor = *monitor;
        let code = monitor.allocated.map(|f| f as *const () as u64);
        let code = code.or(monitor.freed.map(|f| f as *const () as u64)).unwrap_or(0);
        *entry.monitor.get() = monitor;
        *entry.code.get() = modules::mapping_of(code, lane.buffer()).unwrap_or(Range::EMPTY);
    }
    // Libraries that came with the program stay as long as it does.
    entry.late.store(p.modules.loads.load(Relaxed) != 0, Relaxed);
    let turn = entry.turn.fetch_add(1, Relaxed) + 1;
    monitors.used.fetch_max(place as u32 + 1, Release);
    entry.state.store(Slot::Live as u32, Release);
    crate::api::control::set(p, CONTROL_MONITORS);
    let id = (turn as u64) << 32 | (place as u64 + 1);
    leave_at_exit(id);
    id
}

/// Takes a monitor away. When this returns true no thread is in its callbacks, but for the calling
/// one, and `destroy` was called.
pub fn deregister(lane: &LaneState, id: u64) -> bool {
    let p = process();
    let Some(entry) = MONITORS.entry(id) else {
        return false;
    };
    let leaves = |state: Slot| {
        let leaving = Slot::Leaving as u32;
        entry.state.compare_exchange(state as u32, leaving, SeqCst, Relaxed).is_ok()
    };
    if !leaves(Slot::Live) && !leaves(Slot::Held) {
        return false;
    }
    let quiet = wait_for_others(p, lane);
    if quiet {
        destroy(entry);
    }
    entry.state.store(Slot::Free as u32, Release);
    let any = MONITORS.entries.iter().any(|e| e.state.load(Relaxed) != Slot::Free as u32);
    if !any {
        crate::api::control::clear(p, CONTROL_MONITORS);
    }
    quiet
}

fn destroy(entry: &Entry) {
    // SAFETY: the caller has made the entry Leaving: nobody writes it.
    let Monitor { destroy, context, .. } = unsafe { *entry.monitor.get() };
    if let Some(destroy) = destroy {
        destroy(context);
    }
}

/// Waits until every other thread that may have seen a monitor's old state has left its callbacks.
fn wait_for_others(p: &Process, lane: &LaneState) -> bool {
    fence(SeqCst);
    if p.watch.asymmetric.load(Relaxed) == 1 {
        kernel::membarrier(kernel::MEMBARRIER_PRIVATE_EXPEDITED);
    }
    for &other in lane::all(p) {
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

fn prepare_fences(p: &Process) {
    let asymmetric = &p.watch.asymmetric;
    if asymmetric.load(Relaxed) == 0 {
        let allowed = confined::may_call()
            && kernel::membarrier(kernel::MEMBARRIER_REGISTER_PRIVATE_EXPEDITED);
        asymmetric.store(if allowed { 1 } else { 2 }, Release);
    }
}

/// Tells all monitors, on the calling thread, which is inside the recorder.
#[inline(always)]
fn each(lane: &LaneState, call: impl Fn(&Monitor)) {
    let turn = lane.calling.load(Relaxed);
    if turn & 1 != 0 {
        return;
    }
    lane.calling.store(turn.wrapping_add(1), Relaxed);
    compiler_fence(SeqCst);
    if process().watch.asymmetric.load(Relaxed) != 1 {
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

/// Whether the thread is in a callback.
pub fn is_calling(lane: &LaneState) -> bool {
    lane.calling.load(Relaxed) & 1 != 0
}

/// The same for a block whose header says how large it is.
#[inline(never)]
pub fn tell_allocated<F: Front>(lane: &LaneState, block: *mut u8, requested: u64) {
    allocated(lane, block, requested, F::usable(block));
}

/// A block whose header says how large it is is about to be freed.
#[inline(never)]
pub fn tell_freed<F: Front>(lane: &LaneState, block: *mut u8) {
    freed(lane, block, F::usable(block));
}

/// A block may be moved now: another thread that gets its memory tells nobody of it before this one
/// has told that the block is gone. So a monitor that goes by addresses is never wrong.
pub fn moving(lane: &LaneState, block: *mut u8) {
    lane.moving.store(block as u64, Release);
    process().watch.moving.fetch_add(1, AcqRel);
}

/// It was, or was not, and that was told.
pub fn moved(lane: &LaneState) {
    if lane.moving.load(Relaxed) != 0 && lane.moving.swap(0, AcqRel) != 0 {
        process().watch.moving.fetch_sub(1, AcqRel);
    }
}

#[cold]
#[inline(never)]
fn wait_for_its_end(lane: &LaneState, block: *mut u8) {
    for &other in lane::all(process()) {
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

/// A block was allocated.
#[inline(always)]
pub fn allocated(lane: &LaneState, block: *mut u8, requested: u64, usable: u64) {
    if process().watch.moving.load(Acquire) != 0 {
        wait_for_its_end(lane, block);
    }
    each(lane, |monitor| {
        if let Some(allocated) = monitor.allocated {
            allocated(monitor.context, block, requested as usize, usable as usize);
        }
    });
}

/// A block is about to be freed.
#[inline(always)]
pub fn freed(lane: &LaneState, block: *mut u8, usable: u64) {
    each(lane, |monitor| {
        if let Some(freed) = monitor.freed {
            freed(monitor.context, block, usable as usize);
        }
    });
}

/// A library may be unloaded now: monitors in libraries that came late are not called until it is
/// known that they are still there.
pub fn before_unloading(lane: &LaneState) {
    let p = process();
    let mut held = false;
    for entry in &MONITORS.entries[..MONITORS.used.load(Acquire) as usize] {
        if entry.late.load(Relaxed) {
            let (live, hold) = (Slot::Live as u32, Slot::Held as u32);
            held |= entry.state.compare_exchange(live, hold, SeqCst, Relaxed).is_ok();
        }
    }
    if held {
        wait_for_others(p, lane);
    }
}

/// It was, or was not.
pub fn after_unloading(lane: &mut LaneState) {
    for entry in &MONITORS.entries[..MONITORS.used.load(Acquire) as usize] {
        if !entry.late.load(Relaxed) || entry.state.load(Acquire) != Slot::Held as u32 {
            continue;
        }
        // SAFETY: a held entry is not written.
        let code = unsafe { *entry.code.get() };
        let now = modules::mapping_of(code.low, lane.buffer()).unwrap_or(Range::EMPTY);
        let there = now == code && code != Range::EMPTY;
        let next = if there { Slot::Live } else { Slot::Free };
        entry.state.store(next as u32, Release);
    }
}

static ATEXIT: Function = Function::new(b"__cxa_atexit\0");

/// Has libc take the monitor away at exit, before whatever was made before it is destroyed.
fn leave_at_exit(id: u64) {
    if ATEXIT.get() == 0 {
        return;
    }
    type Handler = extern "C" fn(u64);
    // SAFETY: libc's function: a handler, its argument, and no library to belong to.
    unsafe {
        let atexit: extern "C" fn(Handler, u64, *mut u8) -> i32 =
            core::mem::transmute(ATEXIT.get());
        atexit(exits, id, core::ptr::null_mut());
    }
}

extern "C" fn exits(id: u64) {
    if let Some(mut inside) = Inside::enter_again(here()) {
        deregister(inside.lane(), id);
    }
}

/// The options of a monitor library, from `HEAPTIDE_MONITORS`; the bytes copied and one more, or 0.
///
/// # Safety
/// `buffer` has room for `size` bytes.
pub unsafe fn options(all: &[u8], library: &[u8], buffer: *mut u8, size: usize) -> usize {
    for one in all.split(|&b| b == b';') {
        let colon = one.iter().position(|&b| b == b':').unwrap_or(one.len());
        let (name, options) = (&one[..colon], one.get(colon + 1..).unwrap_or(b""));
        let name = name.rsplit(|&b| b == b'/').next().unwrap_or(name);
        if name != library || name.is_empty() {
            continue;
        }
        if size > 0 && !buffer.is_null() {
            let length = options.len().min(size - 1);
            // SAFETY: as promised; one byte is left for the zero.
            unsafe {
                core::ptr::copy_nonoverlapping(options.as_ptr(), buffer, length);
                *buffer.add(length) = 0;
            }
        }
        return options.len() + 1;
    }
    0
}
