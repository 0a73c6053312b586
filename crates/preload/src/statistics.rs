//! The allocators' statistics about their memory: the arenas of glibc, `mi_process_info` of
//! mimalloc. Nothing here waits for a lock of the allocator; see
//! `docs/design/resident-memory.md`.

use crate::allocator::{self, is_glibc};
use crate::family::Statistics;
use crate::glibc_heap;
use core::mem::transmute;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::sys::front::{HeapSource, HeapState};
use heaptide_recorder::sys::loader::look_up;

/// The functions of an allocator with its own function names in the executable; 0: none.
static IN_EXECUTABLE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Stores a function of an intercepted allocator in the executable.
pub fn note(statistics: Statistics, address: u64) {
    IN_EXECUTABLE[statistics as usize].store(address as usize, Relaxed);
}

/// Returns the statistics of the process's allocator, without waiting for its locks. The thread's
/// signals must be blocked.
pub fn of_process() -> HeapState {
    let [jemalloc, mimalloc] = [Statistics::Jemalloc, Statistics::Mimalloc]
        .map(|which| IN_EXECUTABLE[which as usize].load(Relaxed));
    if mimalloc != 0 {
        return of_mimalloc(mimalloc);
    }
    // An allocator in the executable has most of the memory.
    let Some(object) = allocator::object().filter(|_| jemalloc == 0) else {
        return HeapState::default();
    };
    if is_glibc() {
        return glibc_heap::state(object);
    }
    look_up(object, b"mi_process_info\0")
        .map_or_else(HeapState::default, |(address, _)| of_mimalloc(address))
}

/// `mi_process_info(elapsed, user, system, rss, peak_rss, commit, peak_commit, faults)`; all
/// unneeded arguments may be null.
type ProcessInfo = extern "C" fn(
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
);

/// Calls `mi_process_info`, which takes no lock.
fn of_mimalloc(address: usize) -> HeapState {
    // SAFETY: mimalloc's function with this name.
    let info: ProcessInfo = unsafe { transmute(address) };
    let (mut commit, none) = (0usize, core::ptr::null_mut());
    info(none, none, none, none, none, &raw mut commit, none, none);
    if commit == 0 {
        return HeapState::default();
    }
    let arena = commit as u64;
    HeapState { source: HeapSource::Mimalloc, arena, ..HeapState::default() }
}
