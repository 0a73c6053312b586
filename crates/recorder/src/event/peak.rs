//! Live bytes and their peak, without a contended line in the normal path.
//!
//! A thread knows exactly what it has allocated minus freed (`own`), and roughly what all others
//! have (`others`): each publishes its change when it exceeds [`BATCH`]. Alone, a thread sees every
//! new high at once and the peak is exact; with others it is within lanes × BATCH, which is written
//! into the profile.
//!
//! Each new high after a fall begins a new *epoch*. A site keeps its live value when it first
//! changes after the high ([`crate::store::sites`]), so the live-at-peak of every site is known
//! without a trace.

use crate::event::process::Process;
use crate::event::windows::{self, bound_bytes};
use crate::sys::clock;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use heaptide_format::PEAK_BATCH;
use heaptide_format::shared::{FileHeader, Word};

/// Bytes that a thread's live may move before others are told.
pub const BATCH: i64 = PEAK_BATCH as i64;
/// The time of a peak stays that of one so many ticks of the time stamp counter before: half a
/// millisecond at 2 GHz.
const SAME_TIME: u64 = 1 << 20;

/// A lane's view of live bytes.
#[repr(C)]
pub struct Live {
    /// Usable bytes this lane's threads allocated minus freed; may be negative.
    own: i64,
    /// Above this, or below `low`, something is to be done.
    high: i64,
    low: i64,
    /// Live has fallen since the last new high.
    fallen: bool,
    /// What the other lanes had when last asked.
    others: i64,
    /// The part of `own` that the others know.
    published: i64,
    /// The time stamp counter when the time of a peak was last noted.
    stamped: u64,
}

impl Live {
    /// For a thread that takes the lane.
    pub fn begin(&mut self, p: &Process, header: &FileHeader) {
        self.others = header.published_live.get() - self.published;
        self.fallen = true;
        self.set_bounds(p, header);
    }

    /// Alone, the peak is a bound too.
    fn set_bounds(&mut self, p: &Process, header: &FileHeader) {
        self.high = self.published + BATCH;
        if !p.threaded.load(Relaxed) {
            let peak = header.peak_bytes.get() as i64;
            let peak = peak.min(windows::open().bound());
            self.high = self.high.min((peak - self.others).max(self.own));
        }
        self.low = self.published - BATCH;
    }

    /// Live changes by `bytes`. True if it was seen to be at a new high after that: then what
    /// changed is part of the peak.
    #[inline(always)]
    pub fn grow(&mut self, p: &Process, header: &FileHeader, bytes: i64) -> bool {
        self.own += bytes;
        self.own > self.high && self.rise(p, header)
    }

    /// The same for `bytes` ≤ 0: others may have grown.
    #[inline(always)]
    pub fn shrink(&mut self, p: &Process, header: &FileHeader, bytes: i64) -> bool {
        self.fallen = true;
        self.own += bytes;
        self.own < self.low && self.publish(p, header)
    }

    /// What this lane's threads allocated minus freed.
    #[inline(always)]
    pub fn own(&self) -> i64 {
        self.own
    }

    /// Up to this it may rise without a word to anybody.
    #[inline(always)]
    pub fn high(&self) -> i64 {
        self.high
    }

    /// Whether it may fall to this without one.
    #[inline(always)]
    pub fn may_fall_to(&self, own: i64) -> bool {
        self.fallen && own >= self.low
    }

    /// It rises or falls where that was found to be so.
    #[inline(always)]
    pub fn set_own(&mut self, own: i64) {
        self.own = own;
    }

    /// Something else than live has changed what a new high is.
    pub fn renew_bounds(&mut self, p: &Process, header: &FileHeader) {
        self.fallen = true;
        self.set_bounds(p, header);
    }

    /// Live as this lane sees it.
    pub fn seen(&self) -> i64 {
        self.own + self.others
    }

    #[inline(never)]
    fn rise(&mut self, p: &Process, header: &FileHeader) -> bool {
        if p.threaded.load(Relaxed) {
            return self.publish(p, header);
        }
        // Alone: nobody else writes these. Frees inside the recorder are taken off what all have
        // published.
        self.others = header.published_live.get() - self.published;
        let live = self.seen();
        windows::open().rise(live, header, true);
        let new_high = live > header.peak_bytes.get() as i64;
        if new_high {
            if self.fallen {
                header.epoch.add(1);
                self.fallen = false;
            }
            header.peak_bytes.set(live as u64);
            self.stamp(p, header);
        }
        if self.own - self.published > BATCH {
            self.share(header);
        }
        self.set_bounds(p, header);
        new_high
    }

    /// Tells the others, and learns of them. True if all together are at a new high.
    #[cold]
    #[inline(never)]
    pub fn publish(&mut self, p: &Process, header: &FileHeader) -> bool {
        let live = self.share(header);
        let shared = p.threaded.load(Relaxed) && live > 0;
        if shared {
            windows::open().rise(live, header, false);
        }
        let raised = shared && self.raise_shared(p, header, live as u64);
        self.set_bounds(p, header);
        raised
    }

    fn share(&mut self, header: &FileHeader) -> i64 {
        let change = self.own - self.published;
        let live = header.published_live.fetch_add(change, AcqRel) + change;
        self.published = self.own;
        self.others = live - self.own;
        live
    }

    fn raise_shared(&mut self, p: &Process, header: &FileHeader, live: u64) -> bool {
        self.fallen = true;
        let raised = header.peak_bytes.fetch_max(live, AcqRel) < live;
        if raised {
            header.epoch.fetch_add(1, AcqRel);
            self.stamp(p, header);
        }
        header.peak_bound_bytes.fetch_max(bound_bytes(header), Relaxed);
        raised
    }

    /// Notes that the peak is of this moment. The clock is asked only if the time stamp counter
    /// has moved on.
    fn stamp(&mut self, p: &Process, header: &FileHeader) {
        let ticks = clock::counter();
        if ticks != 0 && ticks.wrapping_sub(self.stamped) < SAME_TIME {
            return;
        }
        self.stamped = ticks;
        let now = p.now();
        header.peak_time_ns.set(now); // a race with another stamp of about this time does no harm
        p.note_time(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::process::unstarted;
    use std::boxed::Box;

    /// A process with a header, and the view of its only lane.
    fn alone() -> (Box<Process>, Box<FileHeader>, Live) {
        let p = unstarted();
        // SAFETY: zero is a valid value of every field.
        let header = unsafe { Box::<FileHeader>::new_zeroed().assume_init() };
        let mut live =
            Live { own: 0, high: 0, low: 0, fallen: false, others: 0, published: 0, stamped: 0 };
        live.begin(&p, &header);
        (p, header, live)
    }

    fn peak(header: &FileHeader) -> (u64, u32) {
        (header.peak_bytes.get(), header.epoch.get())
    }

    #[test]
    fn alone_every_new_high_is_seen() {
        let (p, header, mut live) = alone();
        assert!(live.grow(&p, &header, 100));
        assert_eq!(peak(&header), (100, 1));
        // Still rising: the same peak goes on.
        assert!(live.grow(&p, &header, 1));
        assert_eq!(peak(&header), (101, 1));
        assert!(!live.shrink(&p, &header, -51));
        assert!(!live.grow(&p, &header, 51));
        assert!(live.grow(&p, &header, 9));
        assert_eq!((peak(&header), live.seen()), ((110, 2), 110));
    }

    #[test]
    fn with_others_it_is_seen_within_a_batch() {
        let (p, header, mut live) = alone();
        p.threaded.store(true, Relaxed);
        live.renew_bounds(&p, &header);
        assert!(!live.grow(&p, &header, BATCH));
        assert_eq!(peak(&header), (0, 0));
        assert!(live.grow(&p, &header, 1));
        assert_eq!(peak(&header), (BATCH as u64 + 1, 1));
        // Another lane has published as much.
        header.published_live.add(BATCH);
        assert!(live.grow(&p, &header, BATCH + 1));
        assert_eq!(peak(&header), (3 * BATCH as u64 + 2, 2));
        assert_eq!((live.own(), live.seen()), (2 * BATCH + 2, 3 * BATCH + 2));
    }
}
