//! Clocks, as far as the program may read them.

use crate::sys::arch;
use crate::sys::confined::NO_COUNTER;
use crate::sys::kernel;
use crate::sys::libc::Function;
use core::sync::atomic::Ordering::Relaxed;

/// Returns the processor's time counter; 0 if it may not be read.
#[inline(always)]
pub fn counter() -> u64 {
    if cfg!(miri) || NO_COUNTER.load(Relaxed) {
        return 0;
    }
    arch::counter()
}

/// Returns whether the counter is a clock: it may be read, has a constant rate, and is the same on
/// all cores according to the kernel's choice of a clock.
pub fn counter_is_a_clock() -> bool {
    let mut buffer = [0u8; 20];
    let path = b"/sys/devices/system/clocksource/clocksource0/current_clocksource\0";
    let chosen = kernel::Path::new(path).map(|path| kernel::read_file(path, &mut buffer));
    let is_chosen = matches!(chosen, Some(Ok(name)) if arch::COUNTER_CLOCKS.contains(&name));
    is_chosen && !NO_COUNTER.load(Relaxed) && arch::counter_is_steady()
}

static CLOCK_GETTIME: Function = Function::new(b"clock_gettime\0");

/// Reads the monotonic clock, through the vDSO if there is a libc.
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
