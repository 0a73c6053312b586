//! Windows: named intervals of the whole process, each with its own peak. They nest and overlap as
//! they like.
//!
//! A window costs nothing while it is open but what the process's own peak costs: threads look up
//! when live rises above the lowest peak of an open window, or when they publish.

use crate::event::lane::LaneState;
use crate::event::peak::bound_bytes;
use crate::event::process::{Process, process};
use crate::event::stats::{self, Figures};
use crate::store::profile::{self, Cursor};
use crate::sys::locked::Locked;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32};
use heaptide_format::shared::{FileHeader, Sums as SharedSums, Window, Word};
use heaptide_format::{Kind, Loss, Sums};

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

    fn place(&self, number: u32) -> Option<usize> {
        let place = number as usize & (OPEN_MAX - 1);
        let open = number != 0 && self.numbers[place].load(Acquire) == number;
        open.then_some(place)
    }
}

/// The record of an open window.
fn opened(place: &AtomicPtr<Window>) -> Option<&'static Window> {
    // SAFETY: null, or a record, which stays mapped.
    unsafe { place.load(Acquire).as_ref() }
}

fn set_sums(record: &SharedSums, sums: &Sums) {
    record.allocations.set(sums.allocations);
    record.frees.set(sums.frees);
    record.reallocations.set(sums.reallocations);
    record.failed.set(sums.failed);
    record.requested_bytes.set(sums.requested_bytes);
    record.usable_bytes.set(sums.usable_bytes);
    record.freed_bytes.set(sums.freed_bytes);
}

fn sums_of(record: &SharedSums) -> Sums {
    Sums {
        allocations: record.allocations.get(),
        frees: record.frees.get(),
        reallocations: record.reallocations.get(),
        failed: record.failed.get(),
        requested_bytes: record.requested_bytes.get(),
        usable_bytes: record.usable_bytes.get(),
        freed_bytes: record.freed_bytes.get(),
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
    let record = free.and_then(|_| records.record::<Window>(Kind::Windows, lane.index()));
    let (Some(place), Some(record)) = (free, record) else {
        p.lost(Loss::NoSample);
        return 0;
    };
    lane.live.publish(p, lane.header);
    let live = lane.live.seen().max(0);
    record.name.set(profile::string(p, name).number());
    record.open.set(1);
    record.begin_time_ns.set(p.now());
    set_sums(&record.begin, &stats::sums(p));
    record.peak_bytes.set(live as u64);
    if p.threaded.load(Relaxed) {
        record.peak_bound_bytes.set(bound_bytes(lane.header));
    }
    records.commit_record(record);
    let turn = windows.opened.fetch_add(1, Relaxed) + 1;
    let number = turn << PLACE_BITS | place as u32;
    windows.open[place].store(core::ptr::from_ref(record).cast_mut(), Release);
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
    if let Some(record) = opened(&windows.open[place]) {
        set_sums(&record.end, &stats::sums(p));
        record.end_time_ns.set(p.now());
        record.open.set(0);
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
    let Some(record) = opened(&p.windows.open[place]) else {
        return Figures::default();
    };
    let mut figures = Figures::of(&stats::between(&sums_of(&record.begin), &stats::sums(p)));
    figures.peak_bytes = record.peak_bytes.get();
    figures
}
