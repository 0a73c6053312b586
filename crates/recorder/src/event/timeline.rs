//! The timeline of the process: a sample after a number of allocated bytes, which grows during the
//! run.

use crate::event::accounts;
use crate::event::lane::LaneState;
use crate::event::marks;
use crate::event::process::{Process, process};
use crate::event::stats;
use crate::store::profile::Cursor;
use crate::sys::kernel::Errno;
use crate::sys::locked::Guarded;
use crate::sys::wiped::Wiped;
use crate::sys::{confined, kernel, memory};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use heaptide_format::shared::Word;
use heaptide_format::{Kind, Loss, Sample};

/// Usable bytes that a lane allocates between the first samples.
const INTERVAL: u64 = 256 << 10;
/// Number of samples after which the interval doubles.
const PER_DOUBLING: u32 = 1024;

/// The state of samples that lanes share. All zeros: none yet.
struct Timeline {
    /// The cursor of samples; used under the timeline's lock in the header.
    cursor: Guarded<Cursor>,
    /// Usable bytes between samples.
    interval: AtomicU64,
    samples: AtomicU32,
}

// SAFETY: all zeros is a valid value.
static TIMELINE: Wiped<Timeline> = unsafe { Wiped::new() };

/// Makes forked children start without samples.
///
/// Errors: those of the kernel.
pub fn wipe_in_children() -> Result<(), Errno> {
    TIMELINE.wipe_in_children()
}

/// Takes a sample, and sets when the lane takes the next.
#[cold]
#[inline(never)]
pub fn sample(lane: &mut LaneState) {
    let p = process();
    lane.follow_renaming();
    lane.publish_work();
    let allocated = lane.allocated();
    lane.live.sample_at(allocated + TIMELINE.get().interval.load(Relaxed).max(INTERVAL));
    lane.live.set_limits(allocated);
    let lock = &p.header().timeline_lock;
    if lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return;
    }
    write(p, lane);
    let count = TIMELINE.get().samples.fetch_add(1, Relaxed) + 1;
    if count.is_multiple_of(PER_DOUBLING) {
        TIMELINE
            .get()
            .interval
            .store(TIMELINE.get().interval.load(Relaxed).max(INTERVAL) * 2, Relaxed);
    }
    lock.store(0, Release);
    let now = p.now();
    marks::snapshot_if_due(now, lane.index());
    accounts::take_if_due(p, now);
}

fn write(p: &Process, lane: &LaneState) {
    let header = p.header();
    let now = p.now();
    let (resident, address_space) = memory_of_process(p);
    let sums = stats::sums(p);
    let live = sums.usable_bytes.wrapping_sub(sums.freed_bytes);
    p.note_time(now);
    let live = (live as i64).max(0) as u64;
    let sample = Sample {
        time_ns: now,
        live_bytes: live,
        // Live bytes are summed over lanes, the peak is known in batches.
        peak_bytes: header.peak_bytes.get().max(live),
        allocations: sums.allocations,
        frees: sums.frees,
        usable_bytes: sums.usable_bytes,
        resident_bytes: resident,
        virtual_bytes: address_space,
    };
    // SAFETY: the cursor is used under the timeline's lock.
    let cursor = unsafe { &mut *TIMELINE.get().cursor.0.get() };
    if cursor.write(Kind::Timeline, lane.index(), sample).is_none() {
        p.lost(Loss::NoSample);
    }
}

/// Returns resident bytes, and virtual bytes without those that the recorder has reserved; 0 if
/// unknown.
pub fn memory_of_process(p: &Process) -> (u64, u64) {
    let size = if confined::may_call() { kernel::memory_size() } else { None };
    let own = memory::reserved() + p.reserved.load(Relaxed);
    size.map_or((0, 0), |(all, resident)| (resident, all.saturating_sub(own)))
}
