//! Windows: named intervals of the whole process, each with its own peak. They may nest and
//! overlap.

use crate::event::lane::LaneState;
use crate::event::process::{Process, process};
use crate::event::stats::{self, Figures};
use crate::event::windows::{self, PLACE_BITS, bound_bytes, opened};
use crate::store::budgets::WINDOWS_MAX;
use crate::store::profile;
use crate::store::shared::store;
use core::sync::atomic::Ordering::{Relaxed, Release};
use heaptide_format::shared::{Sums as SharedSums, Window, Word};
use heaptide_format::{Kind, Loss, Sums};

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

/// Opens a window. Returns its number, or 0.
pub fn begin(lane: &mut LaneState, name: &[u8]) -> u32 {
    let p = process();
    let windows = windows::open();
    let Some(mut records) = windows.records.acquire() else {
        return 0;
    };
    let may_open = (windows.opened.load(Relaxed) as usize) < WINDOWS_MAX;
    let free = windows.numbers.iter().position(|number| number.load(Relaxed) == 0);
    let free = free.filter(|_| may_open);
    let record = free.and_then(|_| records.record::<Window>(Kind::Windows, lane.index()));
    let (Some(place), Some(record)) = (free, record) else {
        store().lost(Loss::NoSample);
        return 0;
    };
    lane.publish_live();
    let live = lane.live.seen(lane.allocated()).max(0);
    record.name.set(profile::string(name).number());
    record.open.set(1);
    record.begin_time_ns.set(store().now());
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
    lane.renew_bounds();
    number
}

/// Closes a window. Returns its statistics, or none if it is not open.
pub fn end(lane: &mut LaneState, number: u32) -> Option<Figures> {
    let p = store();
    let windows = windows::open();
    let _held = windows.records.acquire()?;
    let place = windows.place(number)?;
    let figures = so_far(process(), lane, place);
    if let Some(record) = opened(&windows.open[place]) {
        set_sums(&record.end, &stats::sums(process()));
        record.end_time_ns.set(p.now());
        record.open.set(0);
    }
    windows.open[place].store(core::ptr::null_mut(), Release);
    windows.numbers[place].store(0, Release);
    windows.count.fetch_sub(1, Release);
    // A value that is too low is safe: the next thread that rises above it corrects it.
    lane.renew_bounds();
    Some(figures)
}

/// Returns the statistics of an open window so far.
pub fn figures(lane: &mut LaneState, number: u32) -> Option<Figures> {
    let p = process();
    let _held = windows::open().records.acquire()?;
    let place = windows::open().place(number)?;
    Some(so_far(p, lane, place))
}

fn so_far(p: &Process, lane: &mut LaneState, place: usize) -> Figures {
    lane.publish_live();
    let Some(record) = opened(&windows::open().open[place]) else {
        return Figures::default();
    };
    let mut figures = Figures::of(&stats::between(&sums_of(&record.begin), &stats::sums(p)));
    figures.peak_bytes = record.peak_bytes.get();
    figures
}
