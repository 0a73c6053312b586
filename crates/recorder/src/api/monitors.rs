//! Registration and removal of monitors: by calls of the program, with their libraries, and at its
//! exit.

use crate::event::inside::{Inside, here};
use crate::event::lane::LaneState;
use crate::event::monitors::{
    self, Entry, MONITORS, Monitor, Monitors, Slot, VERSION, prepare_fences, wait_for_others,
};
use crate::store::{control_words, modules};
use crate::sys::libc::Function;
use crate::sys::maps;
use crate::sys::range::Range;
use crate::sys::text::file_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use heaptide_format::CONTROL_MONITORS;

impl Monitors {
    fn entry(&self, id: u64) -> Option<&Entry> {
        let entry = self.entries.get((id as u32).checked_sub(1)? as usize)?;
        let current = entry.turn.load(Relaxed) == (id >> 32) as u32;
        (current && entry.state.load(Acquire) != Slot::Free as u32).then_some(entry)
    }
}

/// Registers a monitor. Returns its id, or 0. The calling thread is inside the recorder.
///
/// # Safety
/// `monitor` points to a monitor of the C interface, of this or an older version.
pub unsafe fn register(lane: &mut LaneState, monitor: *const Monitor) -> u64 {
    let table = &MONITORS;
    // SAFETY: promised by the caller; the first two words are the same in each version.
    let known = unsafe {
        !monitor.is_null()
            && (*monitor).version == VERSION
            && (*monitor).size as usize >= size_of::<Monitor>()
    };
    let Some(_held) = known.then(monitors::acquire).flatten() else {
        return 0;
    };
    prepare_fences();
    let free = |entry: &Entry| entry.state.load(Acquire) == Slot::Free as u32;
    let Some(place) = table.entries.iter().position(free) else {
        return 0;
    };
    let entry = &table.entries[place];
    // SAFETY: the slot is free and the lock is held; no thread reads it.
    unsafe {
        let monitor = *monitor;
        let code = monitor.allocated.map(|f| f as *const () as u64);
        let code = code.or(monitor.freed.map(|f| f as *const () as u64)).unwrap_or(0);
        *entry.monitor.get() = monitor;
        *entry.code.get() = maps::mapping_of(code, lane.buffer()).unwrap_or(Range::EMPTY);
    }
    // Libraries that were loaded with the program stay as long as it runs.
    entry.late.store(modules::modules().loads.load(Relaxed) != 0, Relaxed);
    let turn = entry.turn.fetch_add(1, Relaxed) + 1;
    table.used.fetch_max(place as u32 + 1, Release);
    entry.state.store(Slot::Live as u32, Release);
    control_words::set(CONTROL_MONITORS);
    let id = (turn as u64) << 32 | (place as u64 + 1);
    leave_at_exit(id);
    id
}

/// Removes a monitor. If this returns true, no thread except possibly the calling one is in its
/// callbacks, and `destroy` was called.
pub fn deregister(lane: &LaneState, id: u64) -> bool {
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
    let quiet = wait_for_others(lane);
    if quiet {
        destroy(entry);
    }
    entry.state.store(Slot::Free as u32, Release);
    let any = MONITORS.entries.iter().any(|e| e.state.load(Relaxed) != Slot::Free as u32);
    if !any {
        control_words::clear(CONTROL_MONITORS);
    }
    quiet
}

fn destroy(entry: &Entry) {
    // SAFETY: the caller has set the entry to Leaving: no thread writes it.
    let Monitor { destroy, context, .. } = unsafe { *entry.monitor.get() };
    if let Some(destroy) = destroy {
        destroy(context);
    }
}

/// Suspends monitors in libraries that were loaded late, since a library may be unloaded now.
pub fn before_unloading(lane: &LaneState) {
    let mut held = false;
    for entry in &MONITORS.entries[..MONITORS.used.load(Acquire) as usize] {
        if entry.late.load(Relaxed) {
            let (live, hold) = (Slot::Live as u32, Slot::Held as u32);
            held |= entry.state.compare_exchange(live, hold, SeqCst, Relaxed).is_ok();
        }
    }
    if held {
        wait_for_others(lane);
    }
}

/// Resumes suspended monitors whose code is still mapped, and removes the others.
pub fn after_unloading(lane: &mut LaneState) {
    for entry in &MONITORS.entries[..MONITORS.used.load(Acquire) as usize] {
        if !entry.late.load(Relaxed) || entry.state.load(Acquire) != Slot::Held as u32 {
            continue;
        }
        // SAFETY: a held entry is not written.
        let code = unsafe { *entry.code.get() };
        let now = maps::mapping_of(code.low, lane.buffer()).unwrap_or(Range::EMPTY);
        let there = now == code && code != Range::EMPTY;
        let next = if there { Slot::Live } else { Slot::Free };
        entry.state.store(next as u32, Release);
    }
}

static ATEXIT: Function = Function::new(b"__cxa_atexit\0");

/// Registers the removal of the monitor at exit with libc. It runs before the destruction of
/// objects that were created before the monitor.
fn leave_at_exit(id: u64) {
    if ATEXIT.get() == 0 {
        return;
    }
    type Handler = extern "C" fn(u64);
    // SAFETY: libc's function: a handler, its argument, and no library to which it belongs.
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

/// Returns the options of a monitor library in the value of `HEAPTIDE_MONITORS`; none if the
/// library is not named there.
pub fn options_of<'a>(all: &'a [u8], library: &[u8]) -> Option<&'a [u8]> {
    let mut libraries = all.split(|&b| b == b';').map(|one| {
        let colon = one.iter().position(|&b| b == b':').unwrap_or(one.len());
        (file_of(&one[..colon]), one.get(colon + 1..).unwrap_or(b""))
    });
    let (_, options) = libraries.find(|(name, _)| *name == library && !name.is_empty())?;
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_library_by_its_file() {
        let all = b"/m/libmine.so:a=1,b=2;libother.so;libmine.so:c";
        assert_eq!(options_of(all, b"libmine.so"), Some(&b"a=1,b=2"[..]));
        assert_eq!(options_of(all, b"libother.so"), Some(&b""[..]));
        assert_eq!(options_of(all, b"libno.so"), None);
        assert_eq!(options_of(b"", b""), None);
    }
}
