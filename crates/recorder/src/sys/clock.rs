//! Clocks, as far as the program may read them.

use crate::sys::confined::NO_COUNTER;
use crate::sys::kernel;
use crate::sys::libc::Function;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::Ordering::Relaxed;

/// The time stamp counter; 0 where it may not be read.
#[inline(always)]
pub fn counter() -> u64 {
    if cfg!(miri) || NO_COUNTER.load(Relaxed) {
        return 0;
    }
    // SAFETY: every x86-64 processor has it, and nobody has forbidden it.
    unsafe { _rdtsc() }
}

static CLOCK_GETTIME: Function = Function::new(b"clock_gettime\0");

/// The monotonic clock, by the vDSO if libc is there.
pub fn monotonic_ns() -> u64 {
    let address = CLOCK_GETTIME.get();
    if address == 0 || NO_COUNTER.load(Relaxed) {
        return kernel::clock_ns(kernel::CLOCK_MONOTONIC);
    }
    let mut time = [0u64; 2];
    // SAFETY: libc's clock_gettime; it fills a timespec and cannot fail for this clock.
    unsafe {
        let clock_gettime: extern "C" fn(i32, *mut [u64; 2]) -> i32 = core::mem::transmute(address);
        clock_gettime(kernel::CLOCK_MONOTONIC as i32, &mut time);
    }
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}
