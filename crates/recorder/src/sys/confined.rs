//! What the program has forbidden itself by seccomp or prctl; it holds for the recorder, too.
//! Children inherit it.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// Set when the program has confined itself (seccomp): 1 if mmap is still allowed, 2 if nothing is.
pub static CONFINED: AtomicU32 = AtomicU32::new(0);

/// Set if the program may not read the time stamp counter, which the vDSO reads.
pub static NO_COUNTER: AtomicBool = AtomicBool::new(false);

/// Returns whether the recorder may make system calls other than those of the program's malloc.
#[inline(always)]
pub fn may_call() -> bool {
    CONFINED.load(Relaxed) == 0
}

/// Returns whether the recorder may map memory.
pub fn may_map() -> bool {
    CONFINED.load(Relaxed) < 2
}
