//! Windows that are open: each has its own peak, which rises with live bytes.
//!
//! A window costs nothing while it is open but what the process's own peak costs: threads look up
//! when live rises above the lowest peak of an open window, or when they publish.

use crate::store::profile::Cursor;
use crate::sys::kernel::Errno;
use crate::sys::locked::Locked;
use crate::sys::wiped::Wiped;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32};
use heaptide_format::PEAK_BATCH;
use heaptide_format::shared::{FileHeader, Window, Word};

/// Windows that may be open at once.
const OPEN_MAX: usize = 64;
/// The low bits of a window's number are its place, the rest counts.
pub const PLACE_BITS: u32 = 6;

/// The open windows.
pub struct Windows {
    pub records: Locked<Cursor>,
    pub open: [AtomicPtr<Window>; OPEN_MAX],
    pub numbers: [AtomicU32; OPEN_MAX],
    pub count: AtomicU32,
    pub opened: AtomicU32,
    /// The lowest peak of an open window; only with `count` > 0.
    pub lowest: AtomicI64,
}

// SAFETY: zero is a valid value of every field: no window is open.
static WINDOWS: Wiped<Windows> = unsafe { Wiped::new() };

/// The open windows of this process.
#[inline(always)]
pub fn open() -> &'static Windows {
    WINDOWS.get()
}

/// Has a forked child find none open.
///
/// Errors: the kernel's.
pub fn wipe_in_children() -> Result<(), Errno> {
    WINDOWS.wipe_in_children()
}

impl Windows {
    /// Live above this is a new peak of some window.
    #[inline(always)]
    pub fn bound(&self) -> i64 {
        if self.count.load(Relaxed) == 0 { i64::MAX } else { self.lowest.load(Relaxed) }
    }

    /// Live has come to `bytes`.
    #[inline(always)]
    pub fn rise(&self, bytes: i64, header: &FileHeader, alone: bool) {
        if bytes > self.bound() {
            self.rise_above(bytes, header, alone);
        }
    }

    #[inline(never)]
    fn rise_above(&self, bytes: i64, header: &FileHeader, alone: bool) {
        let mut lowest = i64::MAX;
        for window in &self.open {
            let Some(window) = opened(window) else {
                continue;
            };
            let before = window.peak_bytes.fetch_max(bytes as u64, AcqRel);
            lowest = lowest.min(before.max(bytes as u64) as i64);
            if !alone {
                window.peak_bound_bytes.fetch_max(bound_bytes(header), Relaxed);
            }
        }
        self.lowest.store(lowest, Relaxed);
    }

    /// The place of an open window, by its number.
    pub fn place(&self, number: u32) -> Option<usize> {
        let place = number as usize & (OPEN_MAX - 1);
        let open = number != 0 && self.numbers[place].load(Acquire) == number;
        open.then_some(place)
    }
}

/// How exact a peak is of as many threads as there were at once.
pub fn bound_bytes(header: &FileHeader) -> u64 {
    header.lanes_at_once.get() as u64 * PEAK_BATCH
}

/// The record of an open window.
pub fn opened(place: &AtomicPtr<Window>) -> Option<&'static Window> {
    // SAFETY: null, or a record, which stays mapped.
    unsafe { place.load(Acquire).as_ref() }
}
