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
//!
//! The scope that a thread is in has a highest of its own: bytes above it are due, too, so that the
//! highest of a scope is as exact as the peak. What that costs is paid where a scope's highest
//! rises; entering and leaving a scope compares two numbers.

use crate::event::process::Process;
use crate::event::windows::{self, bound_bytes};
use crate::store::sites::own_word;
use crate::sys::clock;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use heaptide_format::PEAK_BATCH;
use heaptide_format::shared::{FileHeader, Scope, Word};

/// Bytes that a thread's live may move before others are told.
pub const BATCH: i64 = PEAK_BATCH as i64;
/// The time of a peak stays that of one so many ticks of the time stamp counter before: half a
/// millisecond at 2 GHz.
const SAME_TIME: u64 = 1 << 20;

/// A lane's view of live bytes. What the lane's threads allocated minus freed, its *own* bytes, is
/// the difference of two counters that only grow: `allocated`, which the lane's record has, and
/// `freed`. So one comparison of an event's counter shows that nothing is due.
#[repr(C)]
pub struct Live {
    /// Usable bytes that the lane's threads freed. Only they write it, each time by one
    /// instruction: a signal handler may come before or after.
    freed: AtomicU64,
    /// Up to this many bytes allocated, nothing is due: own bytes are not above `high`, and no
    /// sample is due. `freed` may have grown since, and the limit be higher in truth.
    allocated_limit: u64,
    /// Up to this many bytes freed, nothing is due: own bytes are not below `low`, and no new high
    /// came before. `allocated` may have grown since.
    freed_limit: u64,
    /// Own bytes above this, or below `low`, are for others to know.
    high: i64,
    low: i64,
    /// `high` with what the other lanes have.
    high_of_all: i64,
    /// Bytes allocated at which the next sample is due ([`crate::event::timeline`]).
    next_sample: u64,
    /// Bytes allocated with which the next block is sampled ([`crate::event::sampling`]).
    next_block: u64,
    /// What the other lanes had when last asked.
    others: i64,
    /// The part of own bytes that the others know.
    published: i64,
    /// The time stamp counter when the time of a peak was last noted.
    stamped: u64,
    /// The scope that the thread is in; null: none that has a highest.
    scope: *const Scope,
    /// Live has fallen since the last new high.
    fallen: bool,
}

impl Live {
    /// The thread is in this scope from here on. Own bytes are never above `high`: as long as that
    /// is not above the scope's highest, nothing is due.
    #[inline(always)]
    pub fn enter(&mut self, scope: &'static Scope, allocated: &AtomicU64) {
        self.scope = scope;
        if scope.highest.get() as i64 <= self.high_of_all {
            self.enter_slow(own_word(allocated));
        }
    }

    #[inline(never)]
    fn enter_slow(&mut self, allocated: u64) {
        let own = self.own(allocated);
        self.note(own + self.others);
        self.high = self.high.min(self.high_of_scope().max(own));
        self.high_of_all = self.high + self.others;
        self.set_limits(allocated);
    }

    /// The thread has left this scope.
    #[inline(always)]
    pub fn leave(&self, scope: &Scope, allocated: u64) {
        // What is cut off is known to be if the highest is so high.
        scope.left.set(((self.seen(allocated) + 8) as u64 >> 3) as u32);
    }

    /// Live has come to so much in the scope.
    #[inline(always)]
    fn note(&self, live: i64) {
        // SAFETY: null, or a record of the profile, which stays mapped.
        if let Some(scope) = unsafe { self.scope.as_ref() }
            && live >= scope.highest.get() as i64
        {
            scope.highest.set(live as u64 + 1);
        }
    }

    /// Own bytes above this are a new high of the scope.
    fn high_of_scope(&self) -> i64 {
        // SAFETY: as above.
        let scope = unsafe { self.scope.as_ref() };
        scope.map_or(i64::MAX, |scope| (scope.highest.get() as i64 - 1).saturating_sub(self.others))
    }

    /// For a thread that takes the lane, which has allocated so much.
    pub fn begin(&mut self, p: &Process, header: &FileHeader, allocated: u64) {
        self.others = header.published_live.get() - self.published;
        self.fallen = true;
        self.next_sample = 0;
        self.next_block = u64::MAX;
        self.set_bounds(p, header, allocated, 0);
    }

    /// What is left of so many bytes allocated.
    #[inline(always)]
    pub fn own(&self, allocated: u64) -> i64 {
        allocated.wrapping_sub(self.freed()) as i64
    }

    /// Usable bytes that the lane's threads freed.
    #[inline(always)]
    pub fn freed(&self) -> u64 {
        own_word(&self.freed)
    }

    /// Bytes allocated and freed at one moment, on any thread. After some tries, of two moments.
    pub fn moment(&self, allocated: &AtomicU64) -> (u64, u64) {
        const TRIES: usize = 8;
        let mut freed = self.freed.load(Acquire);
        for _ in 0..TRIES {
            let moment = (allocated.load(Acquire), freed);
            freed = self.freed.load(Acquire);
            if freed == moment.1 {
                return moment;
            }
        }
        (allocated.load(Relaxed), freed)
    }

    /// Whether nothing is due once so much was allocated in all.
    #[inline(always)]
    pub fn may_allocate(&self, allocated: u64) -> bool {
        allocated <= self.allocated_limit
    }

    /// So many bytes may be allocated in all before anything is due.
    #[inline(always)]
    pub fn allocated_limit(&self) -> u64 {
        self.allocated_limit
    }

    /// Whether nothing is due once so much was freed in all.
    #[inline(always)]
    pub fn may_free(&self, freed: u64) -> bool {
        freed <= self.freed_limit
    }

    /// So much was freed.
    #[inline(always)]
    pub fn count_free(&self, bytes: u64) {
        self.freed.add(bytes);
    }

    /// Whether a sample is due once so much was allocated.
    #[inline(always)]
    pub fn is_sample_due(&self, allocated: u64) -> bool {
        allocated >= self.next_sample
    }

    /// The next sample is due at so many bytes allocated.
    pub fn sample_at(&mut self, allocated: u64) {
        self.next_sample = allocated;
    }

    /// Whether the block with which so much was allocated is sampled.
    #[inline(always)]
    pub fn is_block_sampled(&self, allocated: u64) -> bool {
        allocated >= self.next_block
    }

    /// The next block that is sampled is the one with which so much, `next`, is allocated.
    pub fn sample_block_at(&mut self, next: u64, allocated: u64) {
        self.next_block = next;
        self.set_limits(allocated);
    }

    /// Finds the limits anew: the other counter has grown.
    pub fn set_limits(&mut self, allocated: u64) {
        let by_high = (self.freed() as i64).saturating_add(self.high).max(0) as u64;
        let next = self.next_sample.min(self.next_block);
        self.allocated_limit = by_high.min(next.saturating_sub(1));
        let by_low = (allocated as i64).saturating_sub(self.low).max(0) as u64;
        self.freed_limit = if self.fallen { by_low } else { self.freed() };
    }

    /// Alone, the peak is a bound too. `change`: of own bytes, not yet in the counters.
    fn set_bounds(&mut self, p: &Process, header: &FileHeader, allocated: u64, change: i64) {
        self.high = self.published + BATCH;
        if !p.threaded.load(Relaxed) {
            let peak = header.peak_bytes.get() as i64;
            let peak = peak.min(windows::open().bound());
            self.high = self.high.min((peak - self.others).max(self.own(allocated) + change));
        }
        let own = self.own(allocated) + change;
        self.high = self.high.min(self.high_of_scope().max(own));
        self.high_of_all = self.high + self.others;
        self.low = self.published - BATCH;
        self.set_limits(allocated);
    }

    /// Own bytes rise by `change`, where so much was allocated before. True if live was seen to be
    /// at a new high after that: then what changed is part of the peak.
    #[inline(always)]
    pub fn grow(&mut self, p: &Process, header: &FileHeader, allocated: u64, change: i64) -> bool {
        self.own(allocated) + change > self.high && self.rise(p, header, allocated, change)
    }

    /// The same for `change` ≤ 0: others may have grown.
    #[inline(always)]
    pub fn shrink(
        &mut self,
        p: &Process,
        header: &FileHeader,
        allocated: u64,
        change: i64,
    ) -> bool {
        self.fallen = true;
        self.own(allocated) + change < self.low && self.publish(p, header, allocated, change)
    }

    /// Something else than live has changed what a new high is.
    pub fn renew_bounds(&mut self, p: &Process, header: &FileHeader, allocated: u64) {
        self.fallen = true;
        self.set_bounds(p, header, allocated, 0);
    }

    /// Live as this lane sees it.
    pub fn seen(&self, allocated: u64) -> i64 {
        self.own(allocated) + self.others
    }

    #[inline(never)]
    fn rise(&mut self, p: &Process, header: &FileHeader, allocated: u64, change: i64) -> bool {
        if p.threaded.load(Relaxed) {
            let own = self.own(allocated) + change;
            if own > self.published + BATCH {
                return self.publish(p, header, allocated, change);
            }
            // Of no interest to others, and no peak that would be known: high of the scope alone.
            self.note(own + self.others);
            self.set_bounds(p, header, allocated, change);
            return false;
        }
        // Alone: nobody else writes these. Frees inside the recorder are taken off what all have
        // published.
        self.others = header.published_live.get() - self.published;
        let own = self.own(allocated) + change;
        let live = own + self.others;
        self.note(live);
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
        if own - self.published > BATCH {
            self.share(header, own);
        }
        self.set_bounds(p, header, allocated, change);
        new_high
    }

    /// Tells the others, and learns of them. True if all together are at a new high.
    #[cold]
    #[inline(never)]
    pub fn publish(
        &mut self,
        p: &Process,
        header: &FileHeader,
        allocated: u64,
        change: i64,
    ) -> bool {
        let live = self.share(header, self.own(allocated) + change);
        self.note(live);
        let shared = p.threaded.load(Relaxed) && live > 0;
        if shared {
            windows::open().rise(live, header, false);
        }
        let raised = shared && self.raise_shared(p, header, live as u64);
        self.set_bounds(p, header, allocated, change);
        raised
    }

    fn share(&mut self, header: &FileHeader, own: i64) -> i64 {
        let change = own - self.published;
        let live = header.published_live.fetch_add(change, AcqRel) + change;
        self.published = own;
        self.others = live - own;
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
        let mut live = Live {
            freed: AtomicU64::new(0),
            allocated_limit: 0,
            freed_limit: 0,
            high: 0,
            low: 0,
            high_of_all: 0,
            next_sample: 0,
            next_block: 0,
            others: 0,
            published: 0,
            stamped: 0,
            scope: core::ptr::null(),
            fallen: false,
        };
        live.begin(&p, &header, 0);
        (p, header, live)
    }

    /// Allocations and frees of one thread, as events count them.
    struct Thread(Box<Process>, Box<FileHeader>, Live, u64);

    impl Thread {
        fn allocate(&mut self, bytes: u64) -> bool {
            let Thread(p, header, live, allocated) = self;
            let rose = live.grow(p, header, *allocated, bytes as i64);
            *allocated += bytes;
            rose
        }

        fn free(&mut self, bytes: u64) -> bool {
            let Thread(p, header, live, allocated) = self;
            let rose = live.shrink(p, header, *allocated, -(bytes as i64));
            live.count_free(bytes);
            rose
        }

        fn peak(&self) -> (u64, u32) {
            (self.1.peak_bytes.get(), self.1.epoch.get())
        }
    }

    fn thread() -> Thread {
        let (p, header, live) = alone();
        Thread(p, header, live, 0)
    }

    #[test]
    fn alone_every_new_high_is_seen() {
        let mut thread = thread();
        assert!(thread.allocate(100));
        assert_eq!(thread.peak(), (100, 1));
        // Still rising: the same peak goes on.
        assert!(thread.allocate(1));
        assert_eq!(thread.peak(), (101, 1));
        assert!(!thread.free(51));
        assert!(!thread.allocate(51));
        assert!(thread.allocate(9));
        assert_eq!((thread.peak(), thread.2.seen(thread.3)), ((110, 2), 110));
    }

    #[test]
    fn with_others_it_is_seen_within_a_batch() {
        let mut thread = thread();
        thread.0.threaded.store(true, Relaxed);
        thread.2.renew_bounds(&thread.0, &thread.1, 0);
        assert!(!thread.allocate(BATCH as u64));
        assert_eq!(thread.peak(), (0, 0));
        assert!(thread.allocate(1));
        assert_eq!(thread.peak(), (BATCH as u64 + 1, 1));
        // Another lane has published as much.
        thread.1.published_live.add(BATCH);
        assert!(thread.allocate(BATCH as u64 + 1));
        assert_eq!(thread.peak(), (3 * BATCH as u64 + 2, 2));
        let own = thread.2.own(thread.3);
        assert_eq!((own, thread.2.seen(thread.3)), (2 * BATCH + 2, 3 * BATCH + 2));
    }

    #[test]
    fn below_the_limits_nothing_is_due() {
        let mut thread = thread();
        assert!(thread.allocate(1000));
        // The free that follows a new high is to be seen, for the next high begins another peak.
        assert!(!thread.2.may_free(1));
        thread.free(400);
        thread.2.sample_at(5000);
        thread.2.set_limits(thread.3);
        assert!(thread.2.may_allocate(1400) && !thread.2.may_allocate(1401), "the peak");
        assert!(thread.2.may_free(1000), "down to nothing");
        // Another free moves the true limit; the one that is known is only too low.
        thread.free(100);
        assert!(!thread.2.may_allocate(1401));
        thread.2.set_limits(thread.3);
        assert!(thread.2.may_allocate(1500) && !thread.2.may_allocate(1501));
        thread.2.sample_at(1200);
        thread.2.set_limits(thread.3);
        assert!(thread.2.may_allocate(1199) && !thread.2.may_allocate(1200), "the sample");
    }

    /// A scope of the profile.
    fn scope() -> &'static Scope {
        // SAFETY: zero is a valid value of every field.
        Box::leak(unsafe { Box::<Scope>::new_zeroed().assume_init() })
    }

    impl Thread {
        fn enter(&mut self, scope: &'static Scope) {
            let Thread(_, _, live, allocated) = self;
            live.enter(scope, &AtomicU64::new(*allocated));
        }
    }

    #[test]
    fn a_scope_has_a_highest_of_its_own() {
        let (mut thread, first, second) = (thread(), scope(), scope());
        thread.allocate(1000);
        thread.enter(first);
        assert_eq!(first.highest.get(), 1001, "what is live at its begin");
        thread.allocate(500);
        thread.free(700);
        assert_eq!(first.highest.get(), 1501);
        thread.2.leave(first, thread.3);
        assert_eq!(first.left.get(), 800 / 8 + 1);
        // Below the peak of the process, and below the highest of the other scope.
        thread.enter(second);
        thread.allocate(100);
        assert_eq!(second.highest.get(), 901);
        thread.free(100);
        assert!(!thread.allocate(60) && !thread.allocate(41));
        assert_eq!((second.highest.get(), first.highest.get()), (902, 1501));
        thread.enter(first);
        thread.allocate(700);
        assert_eq!((second.highest.get(), first.highest.get()), (902, 1602));
        assert_eq!(thread.peak().0, 1601);
    }

    #[test]
    fn with_others_a_scope_sees_its_own_thread() {
        let (mut thread, scope) = (thread(), scope());
        thread.0.threaded.store(true, Relaxed);
        thread.2.renew_bounds(&thread.0, &thread.1, 0);
        thread.enter(scope);
        assert!(!thread.allocate(100) && !thread.allocate(10));
        assert_eq!((scope.highest.get(), thread.1.published_live.get()), (111, 0));
        thread.free(110);
        thread.allocate(BATCH as u64 + 1);
        assert_eq!(scope.highest.get(), BATCH as u64 + 2);
        assert_eq!(thread.1.published_live.get(), BATCH + 1);
    }
}
