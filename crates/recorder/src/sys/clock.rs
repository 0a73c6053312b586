//! Clocks, as far as the program may read them.

use crate::sys::arch;
use crate::sys::confined::NO_COUNTER;
use crate::sys::kernel::{self, Path};
use crate::sys::libc::Function;
use crate::sys::loader;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

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

/// The first word of a file, the time in nanoseconds, which a test sets; null: the time is that of
/// the system.
static SET: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Takes the time from the first word of a file from now on, which a test sets. Leaves the clock as
/// it is if the file cannot be mapped.
pub fn take_time_from(file: Path<'_>) {
    const BYTES: usize = size_of::<u64>();
    if !SET.load(Relaxed).is_null() {
        return; // in a forked child
    }
    let Ok(fd) = kernel::open(file, kernel::O_RDWR) else { return };
    let is_whole = kernel::file_size(fd).is_some_and(|bytes| bytes >= BYTES as u64);
    let map = if is_whole { kernel::map_shared(fd, BYTES) } else { core::ptr::null_mut() };
    kernel::close(fd);
    if !map.is_null() {
        SET.store(map.cast(), Relaxed);
        NO_COUNTER.store(true, Relaxed); // it runs on while the test's time stands still
    }
}

/// Returns the time of the recording's clock: that which a test has set, or the system's.
pub fn monotonic_ns() -> u64 {
    set_ns().unwrap_or_else(system_ns)
}

/// Reads the system's monotonic clock, without a system call if possible.
pub fn system_ns() -> u64 {
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

/// Returns the nanoseconds since 1970-01-01 UTC. A time that a test has set is that, too.
pub fn realtime_ns() -> u64 {
    set_ns().unwrap_or_else(|| kernel::clock_ns(kernel::CLOCK_REALTIME))
}

/// Returns the time that a test has set, if one has.
fn set_ns() -> Option<u64> {
    // SAFETY: null, or a word of a mapping that stays.
    unsafe { SET.load(Relaxed).as_ref() }.map(|time| time.load(Relaxed))
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
