//! The timeline of the process: a sample after each change of live bytes by one percent of their
//! peak, up or down, and after a number of allocated bytes, which grows during the run.

use crate::event::accounts;
use crate::event::lane::LaneState;
use crate::event::marks;
use crate::event::process::{Process, process};
use crate::event::stats;
use crate::event::windows::bound_bytes;
use crate::store::samples::{PER_DOUBLING, Samples};
use crate::store::shared::{Store, store};
use crate::store::spans::spans;
use crate::sys::front;
use crate::sys::locked::Guarded;
use crate::sys::wiped::Wiped;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64};
use heaptide_format::shared::{FileHeader, Word};
use heaptide_format::{Kind, Loss, Sample};

/// Usable bytes that a lane allocates between the first samples.
const INTERVAL: u64 = 256 << 10;
/// Number of samples that a thread takes in a row for others that found the timeline locked.
const TURNS_MAX: usize = 4;
/// The state of samples that lanes share. All zeros: none yet.
struct Timeline {
    /// Used under the timeline's lock in the header.
    samples: Guarded<Samples>,
    /// Usable bytes between samples.
    interval: AtomicU64,
    /// Set if live bytes have changed since the holder of the lock read them: it reads them again.
    missed: AtomicBool,
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static TIMELINE: Wiped<Timeline> = unsafe { Wiped::new() };

/// Makes forked children start without samples.
pub fn wipe_in_children() {
    TIMELINE.wipe_in_children();
}

/// Takes a sample, and sets when the lane takes the next.
#[cold]
#[inline(never)]
pub fn sample(lane: &mut LaneState) {
    front::python_runs();
    let p = store();
    lane.publish_rest(); // so that a thread that then waits hides nothing
    let allocated = lane.allocated();
    lane.live.sample_at(allocated + TIMELINE.get().interval.load(Relaxed).max(INTERVAL));
    lane.live.set_limits(allocated);
    let lock = &p.header().timeline_lock;
    let missed = &TIMELINE.get().missed;
    missed.store(true, SeqCst);
    for _ in 0..TURNS_MAX {
        if !missed.load(SeqCst) || lock.compare_exchange(0, 1, SeqCst, Relaxed).is_err() {
            return;
        }
        missed.store(false, SeqCst);
        let now = p.now();
        // SAFETY: the samples are used under the timeline's lock.
        let is_appended =
            note_live(process(), lane, unsafe { &mut *TIMELINE.get().samples.0.get() }, now);
        lock.store(0, SeqCst);
        if is_appended {
            marks::snapshot_if_due(now, lane.index());
            accounts::take_if_due(now);
        }
    }
}

/// Makes live bytes those of the last sample. Returns whether another sample was appended.
fn note_live(p: &Process, lane: &mut LaneState, samples: &mut Samples, now: u64) -> bool {
    let header = store().header();
    let live = header.published_live.get();
    p.sampled_live.store(live, Relaxed);
    let live = live.max(0) as u64;
    if samples.overwrite(now, live, header.peak_bytes.get().max(live)) {
        spans().settle(now, live);
        return false;
    }
    append(store(), lane, samples, now);
    true
}

fn append(p: &Store, lane: &mut LaneState, samples: &mut Samples, now: u64) {
    lane.follow_renaming();
    lane.publish_work();
    p.note_time(now);
    let state = state(p, now);
    lane.live.note_sum(process(), p.header(), lane.record.usable_bytes.get(), state.live_bytes);
    let Some(count) = samples.append(Kind::Timeline, lane.index(), state) else {
        return p.lost(Loss::NoSample);
    };
    if !spans().begin(now, state.live_bytes) {
        p.lost(Loss::NoSample);
    }
    if count.is_multiple_of(PER_DOUBLING) {
        let interval = &TIMELINE.get().interval;
        interval.store(interval.load(Relaxed).max(INTERVAL) * 2, Relaxed);
    }
}

/// Returns the state of the process.
fn state(p: &Store, now: u64) -> Sample {
    let (resident_bytes, virtual_bytes) = p.memory_of_process();
    let sums = stats::sums(process());
    let live = live_of_lanes(p.header(), sums.usable_bytes.wrapping_sub(sums.freed_bytes) as i64);
    Sample {
        time_ns: now,
        live_bytes: live,
        // Live bytes are summed over lanes, the peak is known in batches.
        peak_bytes: p.header().peak_bytes.get().max(live),
        allocations: sums.allocations,
        frees: sums.frees,
        usable_bytes: sums.usable_bytes,
        resident_bytes,
        virtual_bytes,
    }
}

/// Returns the live bytes of all lanes, which are summed one after another: if threads take turns
/// to hold a block, the sum can contain it twice. What lanes have published bounds that error.
fn live_of_lanes(header: &FileHeader, summed: i64) -> u64 {
    let published = header.published_live.get();
    let bound = bound_bytes(header) as i64;
    summed.clamp(published - bound, published + bound).max(0) as u64
}
