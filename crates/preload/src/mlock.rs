//! mlockall for the program's memory without the recorder's: most of that is reserved and never
//! touched, and locking would fill it with pages.

use crate::next_symbol::{call_real, real};
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::event::process;
use heaptide_recorder::store::shared::{Store, store};
use heaptide_recorder::sys::maps::each_mapping;
use heaptide_recorder::sys::range::Range;
use heaptide_recorder::sys::{confined, kernel, memory, own_stack};

const MCL_CURRENT: i32 = 1;
const MCL_ONFAULT: i32 = 4;

/// Locks each mapping of the program individually. The kernel locks later mappings (`MCL_FUTURE`);
/// the recorder's memory is reserved already.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: i32) -> i32 {
    real! {
        static REAL = "mlockall", extern "C" fn(i32) -> i32;
    }
    let real = |flags| call_real!(REAL, (flags), -1);
    let may = flags & MCL_CURRENT != 0
        && process::is_own()
        && confined::may_call()
        && memory::is_reserved();
    if !may || !fits(store()) {
        return real(flags); // reports what is wrong, if anything
    }
    let future = flags & !MCL_CURRENT;
    if future & !MCL_ONFAULT != 0 {
        let status = real(future);
        if status != 0 {
            return status;
        }
    }
    let on_fault = flags & MCL_ONFAULT != 0;
    if own_stack::call(|| lock_each(store(), on_fault)).is_none() {
        return real(flags);
    }
    0
}

/// Returns whether the program's memory alone is within the limit of locked memory.
fn fits(p: &Store) -> bool {
    let all = kernel::memory_size().map_or(u64::MAX, |size| size.all);
    let own = memory::reserved() + p.reserved.load(Relaxed);
    kernel::may_lock_all() || all.saturating_sub(own) <= kernel::limit(kernel::RLIMIT_MEMLOCK)
}

/// Locks all mappings except the recorder's. Like mlockall, it skips mappings that cannot be locked
/// or filled.
fn lock_each(p: &Store, on_fault: bool) {
    let mut buffer = [0u8; 16 << 10];
    let low = p.base.load(Relaxed) as u64;
    let profile = Range { low, high: low + p.reserved.load(Relaxed) };
    let [own, zeros, copies] = memory::ranges();
    let own = [own, zeros, copies, profile];
    each_mapping(&mut buffer, |mapping| {
        let range = mapping.range;
        if !own.iter().any(|own| own.holds(range.low)) {
            kernel::lock(range.low, range.high - range.low, on_fault);
        }
        true
    });
}
