//! Windows: named intervals of the whole process, each with its own peak. They nest and overlap as
//! they like.
//!
//! A window costs nothing while it is open but what the process's own peak costs: threads look up
//! when live rises above the lowest peak of an open window, or when they publish.

use crate::event::lane::LaneState;
use crate::event::peak::BATCH;
use crate::event::process::{Process, process};
use crate::event::stats::{self, Figures};
use crate::store::profile::{self, Cursor};
use crate::sys::locked::Locked;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64};
use heaptide_format::{FileHeader, Kind, Loss, Window};

/// Windows that may be open at once.
const OPEN_MAX: usize = 64;
/// The low bits of a window's number are its place, the rest counts.
const PLACE_BITS: u32 = 6;

/// The open windows.
pub struct Windows {
    records: Locked<Cursor>,
    open: [AtomicPtr<Window>; OPEN_MAX],
    numbers: [AtomicU32; OPEN_MAX],
    count: AtomicU32,
    opened: AtomicU32,
    /// The lowest peak of an open window; only with `count` > 0.
    lowest: AtomicI64,
}

impl Windows {
    /// Live above this is a new peak of some window.
    #[inline(always)]
    pub fn bound(&self) -> i64 {
        if self.count.load(Relaxed) == 0 { i64::MAX } else { self.lowest.load(Relaxed) }
    }

    /// Live has come to `bytes`.
    #[inline(always)]
    pub fn rise(&self, bytes: i64, header: *mut FileHeader, alone: bool) {
        if bytes > self.bound() {
            self.rise_above(bytes, header, alone);
        }
    }

    #[inline(never)]
    fn rise_above(&self, bytes: i64, header: *mut FileHeader, alone: bool) {
        let mut lowest = i64::MAX;
        for window in &self.open {
            let window = window.load(Acquire);
            if window.is_null() {
                continue;
            }
            // SAFETY: records stay mapped; with threads these fields are used atomically.
            unsafe {
                let peak = AtomicU64::from_ptr(&raw mut (*window).peak_bytes);
                let before = peak.fetch_max(bytes as u64, AcqRel);
                lowest = lowest.min(before.max(bytes as u64) as i64);
                if !alone {
                    let bound = (*header).lanes_at_once as u64 * BATCH as u64;
                    let exact = AtomicU64::from_ptr(&raw mut (*window).peak_bound_bytes);
                    exact.fetch_max(bound, Relaxed);
                }
            }
        }
        self.lowest.store(lowest, Relaxed);
    }

    fn place(&self, number: u32) -> Option<usize> {
        let place = number as usize & (OPEN_MAX - 1);
        let open = number != 0 && self.numbers[place].load(Acquire) == number;
        open.then_some(place)
    }
}

/// Opens a window; its number, or 0.
pub fn begin(lane: &mut LaneState, name: &[u8]) -> u32 {
    let p = process();
    let windows = &p.windows;
    let Some(mut records) = windows.records.acquire() else {
        return 0;
    };
    let free = windows.numbers.iter().position(|number| number.load(Relaxed) == 0);
    let record = match free {
        Some(_) => records.take(Kind::Windows, lane.index, size_of::<Window>()) as *mut Window,
        None => core::ptr::null_mut(),
    };
    let (Some(place), false) = (free, record.is_null()) else {
        p.lost(Loss::NoSample);
        return 0;
    };
    lane.live.publish(p, lane.header);
    let live = lane.live.seen().max(0);
    // SAFETY: fresh zeroed room for a window.
    unsafe {
        (*record).name = profile::string(p, name);
        (*record).open = 1;
        (*record).begin_time_ns = p.now();
        (*record).begin = stats::sums(p);
        (*record).peak_bytes = live as u64;
        if p.threaded.load(Relaxed) {
            (*record).peak_bound_bytes = (*lane.header).lanes_at_once as u64 * BATCH as u64;
        }
    }
    records.commit(size_of::<Window>());
    let turn = windows.opened.fetch_add(1, Relaxed) + 1;
    let number = turn << PLACE_BITS | place as u32;
    windows.open[place].store(record, Release);
    windows.numbers[place].store(number, Release);
    let lowest = windows.bound().min(live);
    windows.lowest.store(lowest, Relaxed);
    windows.count.fetch_add(1, Release);
    lane.live.look_again(p, lane.header);
    number
}

/// Closes a window and says what was in it; none if it is not open.
pub fn end(lane: &mut LaneState, number: u32) -> Option<Figures> {
    let p = process();
    let windows = &p.windows;
    let _held = windows.records.acquire()?;
    let place = windows.place(number)?;
    let figures = so_far(p, lane, place);
    let record = windows.open[place].load(Acquire);
    // SAFETY: records stay mapped; under the lock nobody else closes it.
    unsafe {
        (*record).end = stats::sums(p);
        (*record).end_time_ns = p.now();
        (*record).open = 0;
    }
    windows.open[place].store(core::ptr::null_mut(), Release);
    windows.numbers[place].store(0, Release);
    windows.count.fetch_sub(1, Release);
    // Too low is safe: whoever rises above it next sets it right.
    lane.live.look_again(p, lane.header);
    Some(figures)
}

/// What is in an open window so far.
pub fn figures(lane: &mut LaneState, number: u32) -> Option<Figures> {
    let p = process();
    let _held = p.windows.records.acquire()?;
    let place = p.windows.place(number)?;
    Some(so_far(p, lane, place))
}

fn so_far(p: &Process, lane: &mut LaneState, place: usize) -> Figures {
    lane.live.publish(p, lane.header);
    let record = p.windows.open[place].load(Acquire);
    // SAFETY: an open window's record stays mapped.
    let (begin, peak) = unsafe { (&(*record).begin, (*record).peak_bytes) };
    let mut figures = Figures::of(&stats::between(begin, &stats::sums(p)));
    figures.peak_bytes = peak;
    figures
}
