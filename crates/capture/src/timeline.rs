//! The process over time: a sample every so many allocated bytes, fewer as the program goes on.

use crate::figures;
use crate::lane::LaneState;
use crate::moments;
use crate::peak;
use crate::process::{Process, process};
use crate::sys::{self, Path};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heaptide_format::{Kind, Loss, PAGE, Sample};

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
    moments::snapshot_if_due(p, p.now(), lane.index);
}

fn write(p: &Process, lane: &LaneState) {
    let header = p.header();
    let now = p.now();
    let (resident, address_space) = memory(p);
    let sums = figures::sums(p);
    let live = sums.usable_bytes.wrapping_sub(sums.freed_bytes);
    peak::stamp(p, header);
    // SAFETY: the cursor is used under the timeline's lock; `take` gives room for a sample.
    unsafe {
        AtomicU64::from_ptr(&raw mut (*header).last_seen_ns).fetch_max(now, Relaxed);
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

/// Resident and virtual bytes of the process, the reserved part of the profile taken off; 0 if
/// unknown.
fn memory(p: &Process) -> (u64, u64) {
    let mut buffer = [0u8; 128];
    if !p.may_call() {
        return (0, 0);
    }
    let Some(Ok(text)) =
        Path::new(b"/proc/self/statm\0").map(|path| sys::read_file(path, &mut buffer))
    else {
        return (0, 0);
    };
    let mut pages = text.split(|&b| b == b' ').map(|field| {
        field.iter().fold(0u64, |n, &b| n.wrapping_mul(10).wrapping_add((b & 15) as u64))
    });
    let (all, resident) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    let own = p.reserved.load(Relaxed);
    (resident * PAGE, (all * PAGE).saturating_sub(own))
}
