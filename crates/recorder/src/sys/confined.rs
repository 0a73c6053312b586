//! What the program has forbidden itself by seccomp or prctl, and the recorder with it. Children
//! inherit that.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// The program confined itself (seccomp): 1 = mmap is still allowed, 2 = nothing is.
pub static CONFINED: AtomicU32 = AtomicU32::new(0);

/// The program may not read the time stamp counter, as the vDSO does.
pub static NO_COUNTER: AtomicBool = AtomicBool::new(false);

/// Whether the recorder may make a system call other than those that the program's malloc makes.
#[inline(always)]
pub fn may_call() -> bool {
    CONFINED.load(Relaxed) == 0
}

/// Whether the recorder may map memory.
pub fn may_map() -> bool {
    CONFINED.load(Relaxed) < 2
}
