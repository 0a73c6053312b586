//! The process over time: a sample every so many allocated bytes, fewer as the program goes on.

use crate::api::marks;
use crate::event::lane::LaneState;
use crate::event::process::{Process, process};
use crate::event::stats;
use crate::sys::{confined, kernel, memory};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heaptide_format::{Kind, Loss, Sample};

/// Usable bytes allocated between the first samples, by one lane.
const INTERVAL: u64 = 256 << 10;
/// After this many samples the interval doubles, and again after as many more.
const PER_DOUBLING: u32 = 1024;

/// Takes a sample, and sets the lane's way to the next.
#[cold]
#[inline(never)]
pub fn sample(lane: &mut LaneState) {
    let p = process();
    lane.follow_renaming();
    lane.tell_work();
    // SAFETY: the lane's own record.
    let allocated = unsafe { (*lane.record).usable_bytes };
    lane.next_sample = allocated + p.sample_interval.load(Relaxed).max(INTERVAL);
    let header = p.header();
    // SAFETY: the header is mapped; the lock is only used atomically.
    let lock = unsafe { core::sync::atomic::AtomicU32::from_ptr(&raw mut (*header).timeline_lock) };
    if lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return;
    }
    write(p, lane);
    let count = p.sample_count.fetch_add(1, Relaxed) + 1;
    if count.is_multiple_of(PER_DOUBLING) {
        p.sample_interval.store(p.sample_interval.load(Relaxed).max(INTERVAL) * 2, Relaxed);
    }
    lock.store(0, Release);
    marks::snapshot_if_due(p, p.now(), lane.index);
}

fn write(p: &Process, lane: &LaneState) {
    let header = p.header();
    let now = p.now();
    let (resident, address_space) = memory_of_process(p);
    let sums = stats::sums(p);
    let live = sums.usable_bytes.wrapping_sub(sums.freed_bytes);
    p.note_time(now);
    // SAFETY: the cursor is used under the timeline's lock; `take` gives room for a sample.
    unsafe {
        let cursor = &mut *p.timeline.0.get();
        let record = cursor.take(Kind::Timeline, lane.index, size_of::<Sample>()) as *mut Sample;
        if record.is_null() {
            p.lost(Loss::NoSample);
            return;
        }
        let live = (live as i64).max(0) as u64;
        *record = Sample {
            time_ns: now,
            live_bytes: live,
            // Live is summed over lanes, the peak known in batches.
            peak_bytes: (*header).peak_bytes.max(live),
            allocations: sums.allocations,
            frees: sums.frees,
            usable_bytes: sums.usable_bytes,
            resident_bytes: resident,
            virtual_bytes: address_space,
        };
        cursor.commit(size_of::<Sample>());
    }
}

/// Resident and virtual bytes of the process, what the recorder has reserved taken off; 0 if
/// unknown.
fn memory_of_process(p: &Process) -> (u64, u64) {
    let size = if confined::may_call() { kernel::memory_size() } else { None };
    let own = memory::reserved() + p.reserved.load(Relaxed);
    size.map_or((0, 0), |(all, resident)| (resident, all.saturating_sub(own)))
}
