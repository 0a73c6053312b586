//! Clocks, as far as the program may read them.

use crate::sys::arch;
use crate::sys::confined::NO_COUNTER;
use crate::sys::kernel;
use crate::sys::libc::Function;
use crate::sys::loader;
use core::sync::atomic::AtomicUsize;
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
/// The address of the function that reads a clock; 0 if there is none.
static READ: AtomicUsize = AtomicUsize::new(0);

/// Finds the function that reads a clock: that of the vDSO, or in a static program, which has no
/// list of objects, that of libc.
///
/// Otherwise libc's is not used: before 2.31, glibc's crashes until libc is initialised, which may
/// be after the first allocation.
pub fn find() {
    if READ.load(Relaxed) != 0 {
        return; // in a forked child
    }
    let in_vdso = |map| Some(loader::look_up(map, arch::VDSO_CLOCK_GETTIME)?.0);
    let is_static = loader::objects().next().is_none();
    let found =
        if is_static { Some(CLOCK_GETTIME.get()) } else { loader::objects().find_map(in_vdso) };
    READ.store(found.unwrap_or(0), Relaxed);
}

/// Reads the monotonic clock, without a system call if possible.
pub fn monotonic_ns() -> u64 {
    let address = READ.load(Relaxed);
    if address == 0 || NO_COUNTER.load(Relaxed) {
        return kernel::clock_ns(kernel::CLOCK_MONOTONIC);
    }
    let mut time = [0u64; 2];
    // SAFETY: a function of this type; it fills a timespec and cannot fail for this clock.
    unsafe {
        let read: extern "C" fn(i32, *mut [u64; 2]) -> i32 = core::mem::transmute(address);
        read(kernel::CLOCK_MONOTONIC as i32, &mut time);
    }
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "there is no loader")]
    fn the_clock_is_read_through_the_vdso() {
        find();
        let [before, now, after] = [
            kernel::clock_ns(kernel::CLOCK_MONOTONIC),
            monotonic_ns(),
            kernel::clock_ns(kernel::CLOCK_MONOTONIC),
        ];
        assert!(before <= now && now <= after, "{before} {now} {after}");
        let vdso = loader::objects().find(|map| loader::file_name(map).starts_with(b"linux-vdso"));
        let found = loader::look_up(vdso.expect("the vDSO"), arch::VDSO_CLOCK_GETTIME);
        assert_eq!(READ.load(Relaxed), found.expect("its function").0);
    }
}
