//! The allocators' statistics about their memory: `mallinfo2` or `mallinfo` of glibc, `stats.*` of
//! jemalloc, `mi_process_info` of mimalloc. Called only while the thread is not in the allocator;
//! see DESIGN.md.

use crate::allocator::is_glibc;
use crate::next_symbol::{self, call_real, real};
use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::sys::front::{Asked, HeapSource, HeapState};
use heaptide_recorder::sys::loader::look_up;

real! {
    static MALLINFO2 = "mallinfo2", extern "C" fn() -> Mallinfo<u64>;
    static MALLINFO = "mallinfo", extern "C" fn() -> Mallinfo<u32>;
}

/// A statistics function of an allocator that stays loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Statistics {
    /// `mallctl` of jemalloc.
    Jemalloc,
    /// `mi_process_info` of mimalloc.
    Mimalloc,
}

/// The functions of an allocator with its own function names in the executable; 0: none.
static IN_EXECUTABLE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Stores a function of an intercepted allocator in the executable.
pub fn note(statistics: Statistics, address: u64) {
    IN_EXECUTABLE[statistics as usize].store(address as usize, Relaxed);
}

/// Returns the statistics of the process's allocator.
pub fn of_process(asked: Asked) -> HeapState {
    // A thread that maps may belong to the allocator and hold its locks; glibc has no such threads.
    let may_ask_others = asked == Asked::AtRest;
    let found = if may_ask_others { find() } else { None };
    match found {
        Some((Statistics::Jemalloc, address)) => {
            // SAFETY: jemalloc's function with this name.
            jemalloc(unsafe { transmute::<usize, Mallctl>(address) })
        }
        Some((Statistics::Mimalloc, address)) => {
            // SAFETY: mimalloc's function with this name.
            mimalloc(unsafe { transmute::<usize, ProcessInfo>(address) })
        }
        None if is_glibc() && !has_other() => glibc(),
        None => HeapState::default(),
    }
}

/// Returns whether the executable has its own allocator, which has most of the memory.
fn has_other() -> bool {
    IN_EXECUTABLE.iter().any(|address| address.load(Relaxed) != 0)
}

/// Returns the function of the executable's allocator, or of the one that defines `malloc`.
fn find() -> Option<(Statistics, usize)> {
    let all = [Statistics::Jemalloc, Statistics::Mimalloc];
    let noted = all.map(|which| (which, IN_EXECUTABLE[which as usize].load(Relaxed)));
    if let Some(found) = noted.into_iter().find(|(_, address)| *address != 0) {
        return Some(found);
    }
    if is_glibc() {
        return None;
    }
    let malloc = next_symbol::find(b"malloc\0")?;
    // SAFETY: an entry of the loader's list; the allocator of the process is not unloaded.
    let object = unsafe { malloc.object.as_ref() }?;
    let names: [&[u8]; 2] = [b"mallctl\0", b"mi_process_info\0"];
    all.into_iter()
        .zip(names)
        .find_map(|(which, name)| look_up(object, name).map(|(address, _)| (which, address)))
}

/// glibc's `struct mallinfo2`, or `struct mallinfo` with numbers of 32 bits.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Mallinfo<T> {
    arena: T,
    free_chunks: T,
    fast_chunks: T,
    mapped_chunks: T,
    mapped: T,
    unused: T,
    fast_bytes: T,
    used: T,
    free: T,
    releasable: T,
}

impl<T: Into<u64>> Mallinfo<T> {
    fn state(self) -> HeapState {
        HeapState {
            source: HeapSource::Glibc,
            wraps: size_of::<T>() < size_of::<u64>(),
            arena: self.arena.into(),
            used: self.used.into(),
            free: self.free.into(),
            mapped: self.mapped.into(),
        }
    }
}

/// glibc before 2.33 has only `mallinfo`.
fn glibc() -> HeapState {
    let old = || call_real!(MALLINFO, (), Mallinfo::default()).state();
    MALLINFO2.function().map_or_else(old, |mallinfo2| mallinfo2().state())
}

/// `mallctl(name, old, old_length, new, new_length)`
type Mallctl = extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> i32;

/// Statistics are those of the last refresh, which writing `epoch` triggers.
fn jemalloc(mallctl: Mallctl) -> HeapState {
    let mut epoch = 1u64;
    let new = (&raw mut epoch).cast();
    let (old, length) = (core::ptr::null_mut(), core::ptr::null_mut());
    if mallctl(c"epoch".as_ptr(), old, length, new, size_of::<u64>()) != 0 {
        return HeapState::default();
    }
    let read = |name: &CStr| {
        let (mut value, mut length) = (0usize, size_of::<usize>());
        let old = (&raw mut value).cast();
        let status = mallctl(name.as_ptr(), old, &raw mut length, core::ptr::null_mut(), 0);
        (status == 0).then_some(value as u64)
    };
    let [used, resident, metadata] =
        [c"stats.allocated", c"stats.resident", c"stats.metadata"].map(read);
    // jemalloc may have been built without statistics.
    let (Some(used), Some(arena), Some(metadata)) = (used, resident, metadata) else {
        return HeapState::default();
    };
    let free = arena.saturating_sub(used).saturating_sub(metadata);
    HeapState { source: HeapSource::Jemalloc, arena, used, free, ..HeapState::default() }
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

fn mimalloc(info: ProcessInfo) -> HeapState {
    let (mut commit, none) = (0usize, core::ptr::null_mut());
    info(none, none, none, none, none, &raw mut commit, none, none);
    if commit == 0 {
        return HeapState::default();
    }
    let arena = commit as u64;
    HeapState { source: HeapSource::Mimalloc, arena, ..HeapState::default() }
}
