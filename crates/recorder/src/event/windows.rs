//! The open windows: each has its own peak, which rises with live bytes.
//!
//! An open window costs no more than the process's own peak: threads check it when live bytes rise
//! above the lowest peak of an open window, or when they publish.

use crate::store::profile::Cursor;
use crate::sys::locked::Locked;
use crate::sys::wiped::Wiped;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32};
use heaptide_format::PEAK_BATCH;
use heaptide_format::shared::{FileHeader, Window, Word};

/// Maximum number of windows that are open at once.
const OPEN_MAX: usize = 64;
/// Number of low bits of a window's number that hold its place; the upper bits count windows.
pub const PLACE_BITS: u32 = 6;

/// The open windows.
pub struct Windows {
    pub records: Locked<Cursor>,
    pub open: [AtomicPtr<Window>; OPEN_MAX],
    pub numbers: [AtomicU32; OPEN_MAX],
    pub count: AtomicU32,
    pub opened: AtomicU32,
    /// The lowest peak of an open window; only valid if `count` > 0.
    pub lowest: AtomicI64,
}

// SAFETY: all zeros is a valid value: no window is open.
#[unsafe(link_section = ".bss.wiped")]
static WINDOWS: Wiped<Windows> = unsafe { Wiped::new() };

/// Returns the open windows of this process.
#[inline(always)]
pub fn open() -> &'static Windows {
    WINDOWS.get()
}

/// Makes forked children start without open windows.
pub fn wipe_in_children() {
    WINDOWS.wipe_in_children();
}

impl Windows {
    /// Returns the live bytes above which some window has a new peak.
    #[inline(always)]
    pub fn bound(&self) -> i64 {
        if self.count.load(Relaxed) == 0 { i64::MAX } else { self.lowest.load(Relaxed) }
    }

    /// Raises peaks to live bytes of `bytes`.
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

    /// Returns the place of an open window with this number.
    pub fn place(&self, number: u32) -> Option<usize> {
        let place = number as usize & (OPEN_MAX - 1);
        let open = number != 0 && self.numbers[place].load(Acquire) == number;
        open.then_some(place)
    }
}

/// Returns the bound of a peak's error, for the number of threads that there were at once.
pub fn bound_bytes(header: &FileHeader) -> u64 {
    header.lanes_at_once.get() as u64 * PEAK_BATCH
}

/// Returns the record of an open window.
pub fn opened(place: &AtomicPtr<Window>) -> Option<&'static Window> {
    // SAFETY: null, or a record, which stays mapped.
    unsafe { place.load(Acquire).as_ref() }
}
