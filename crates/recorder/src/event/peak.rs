//! Live bytes and their peak, without a contended cache line in the normal path.
//!
//! A thread knows exactly what its lane has allocated minus freed (`own`), and approximately the
//! same of all others (`others`): each publishes its change when that exceeds [`BATCH`]. A single
//! thread detects each new high at once and the peak is exact. With several threads, it is exact
//! within lanes × BATCH, a bound that is written into the profile.
//!
//! Each new high after a fall begins a new *epoch*. A site keeps its live value when it first
//! changes after the high ([`crate::store::sites`]), so the live value of each site at the peak is
//! known without a trace.
//!
//! The scope that a thread is in has a highest of its own. Bytes above it end the fast path, too,
//! so that the highest of a scope is as exact as the peak. This costs time only where a scope's
//! highest rises; entering or leaving a scope compares two numbers.

use crate::event::process::Process;
use crate::event::windows::{self, bound_bytes};
use crate::store::samples;
use crate::store::shared::{Store, store};
use crate::store::sites::own_word;
use crate::store::spans::spans;
use crate::sys::options::Options;
use crate::sys::{arch, clock};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use heaptide_format::PEAK_BATCH;
use heaptide_format::shared::{FileHeader, Scope, Word};

/// The maximum of bytes by which a thread's live bytes may change before it publishes them.
pub const BATCH: i64 = PEAK_BATCH as i64;
/// What all threads together may hold back is one part in this of the peak, 0.2 percent.
const FINE_PART: u64 = 512;
/// Threads publish no smaller change on their own: many small blocks are less.
const FINE_MIN: u64 = 256;
/// Ticks between publications of fine batches, for each thread that there is: some 20 microseconds,
/// so that publishing takes about one percent of the time.
const INTERVAL: u64 = arch::BELOW_MILLISECOND / 16;
/// Growth of the batch of a thread that publishes too often.
const GROWTH: i64 = 8;
/// Number of publications that a thread may make at once after a pause: a burst of that many
/// changes takes some microseconds longer.
const BURST: u64 = 128;

/// A lane's view of live bytes. The lane's *own* bytes are the difference of two counters that only
/// grow: `allocated`, in the lane's record, and `freed`. So a comparison of one counter with a
/// limit shows that an event needs no further work ("nothing is due").
#[repr(C)]
pub struct Live {
    /// Usable bytes that the lane's threads freed. Only they write it, each time by one
    /// instruction, so that a signal handler sees it before or after.
    freed: AtomicU64,
    /// Up to this many bytes allocated, nothing is due: own bytes are not above `high`, and no
    /// sample is due. If `freed` has grown since, the true limit is higher.
    allocated_limit: u64,
    /// Up to this many bytes freed, nothing is due: own bytes are not below `low`, and there was no
    /// new high before. If `allocated` has grown since, the true limit is higher.
    freed_limit: u64,
    /// Own bytes above `high` or below `low` have to be published.
    high: i64,
    low: i64,
    /// `high` plus the bytes of the other lanes.
    high_of_all: i64,
    /// Bytes allocated at which the next sample is due ([`crate::event::timeline`]).
    next_sample: u64,
    /// Bytes allocated at which a block is sampled next ([`crate::event::sampling`]).
    next_block: u64,
    /// Bytes of the other lanes when last read.
    others: i64,
    /// The own bytes that were last published.
    published: i64,
    /// The time stamp counter when the time of a peak was last noted.
    stamped: u64,
    /// The scope that the thread is in; null for one without a highest.
    scope: *const Scope,
    /// Own bytes are published once they have changed by this.
    batch: i64,
    /// The time stamp counter up to which the thread has used its share of publications.
    shared: u64,
    /// Set if live bytes have fallen since the last new high.
    fallen: bool,
}

impl Live {
    /// Notes that the thread is in this scope now. Own bytes are never above `high`, so nothing is
    /// due as long as that is below the scope's highest.
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

    /// Notes the live bytes at which the thread leaves this scope.
    #[inline(always)]
    pub fn leave(&self, scope: &Scope, allocated: u64) {
        // Upper bits are lost; readers detect that by the highest.
        scope.left.set(((self.seen(allocated) + 8) as u64 >> 3) as u32);
    }

    /// Notes live bytes in the scope.
    #[inline(always)]
    fn note(&self, live: i64) {
        // SAFETY: null, or a record of the profile, which stays mapped.
        if let Some(scope) = unsafe { self.scope.as_ref() }
            && live >= scope.highest.get() as i64
        {
            scope.highest.set(live as u64 + 1);
        }
    }

    /// Returns the own bytes above which the scope has a new high.
    fn high_of_scope(&self) -> i64 {
        // SAFETY: as above.
        let scope = unsafe { self.scope.as_ref() };
        scope.map_or(i64::MAX, |scope| (scope.highest.get() as i64 - 1).saturating_sub(self.others))
    }

    /// Starts for a thread that takes the lane, which has allocated this many bytes.
    pub fn begin(&mut self, p: &Process, header: &FileHeader, allocated: u64) {
        self.others = header.published_live.get() - self.published;
        self.fallen = true;
        self.batch = fine_batch(header);
        self.next_sample = 0;
        self.next_block = u64::MAX;
        self.set_bounds(p, header, allocated, 0);
    }

    /// Returns the own bytes after this many were allocated.
    #[inline(always)]
    pub fn own(&self, allocated: u64) -> i64 {
        allocated.wrapping_sub(self.freed()) as i64
    }

    /// Returns the usable bytes that the lane's threads freed.
    #[inline(always)]
    pub fn freed(&self) -> u64 {
        own_word(&self.freed)
    }

    /// Returns the bytes allocated and freed at one point in time, on any thread. If that fails
    /// several times, the two are of different times.
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

    /// Returns whether nothing is due once this many bytes were allocated in all.
    #[inline(always)]
    pub fn may_allocate(&self, allocated: u64) -> bool {
        allocated <= self.allocated_limit
    }

    /// Returns how many bytes may be allocated in all before anything is due.
    #[inline(always)]
    pub fn allocated_limit(&self) -> u64 {
        self.allocated_limit
    }

    /// Returns whether nothing is due once this many bytes were freed in all.
    #[inline(always)]
    pub fn may_free(&self, freed: u64) -> bool {
        freed <= self.freed_limit
    }

    /// Counts freed bytes.
    #[inline(always)]
    pub fn count_free(&self, bytes: u64) {
        self.freed.add(bytes);
    }

    /// Returns whether a sample is due once this many bytes were allocated.
    #[inline(always)]
    pub fn is_sample_due(&self, allocated: u64) -> bool {
        allocated >= self.next_sample
    }

    /// Sets the bytes allocated at which the next sample is due.
    pub fn sample_at(&mut self, allocated: u64) {
        self.next_sample = allocated;
    }

    /// Returns whether the block that raises allocated bytes to this value is sampled.
    #[inline(always)]
    pub fn is_block_sampled(&self, allocated: u64) -> bool {
        allocated >= self.next_block
    }

    /// Sets `next`, the bytes allocated at which a block is sampled next.
    pub fn sample_block_at(&mut self, next: u64, allocated: u64) {
        self.next_block = next;
        self.set_limits(allocated);
    }

    /// Computes the limits anew, after the other counter has grown.
    pub fn set_limits(&mut self, allocated: u64) {
        let by_high = (self.freed() as i64).saturating_add(self.high).max(0) as u64;
        let next = self.next_sample.min(self.next_block);
        self.allocated_limit = by_high.min(next.saturating_sub(1));
        let by_low = (allocated as i64).saturating_sub(self.low).max(0) as u64;
        self.freed_limit = if self.fallen { by_low } else { self.freed() };
    }

    /// Sets the bounds. With a single thread, the peak is a bound, too. `change`: of own bytes, not
    /// yet counted.
    fn set_bounds(&mut self, p: &Process, header: &FileHeader, allocated: u64, change: i64) {
        self.high = self.published + self.batch;
        if !p.threaded.load(Relaxed) {
            let peak = header.peak_bytes.get() as i64;
            let peak = peak.min(windows::open().bound());
            self.high = self.high.min((peak - self.others).max(self.own(allocated) + change));
        }
        let own = self.own(allocated) + change;
        self.high = self.high.min(self.high_of_scope().max(own));
        self.high_of_all = self.high + self.others;
        self.low = self.published - self.batch;
        self.set_limits(allocated);
    }

    /// Raises own bytes by `change`; `allocated` is the value before. Returns whether live bytes
    /// reached a new high, to which the change belongs.
    #[inline(always)]
    pub fn grow(&mut self, p: &Process, header: &FileHeader, allocated: u64, change: i64) -> bool {
        self.own(allocated) + change > self.high && self.rise(p, header, allocated, change)
    }

    /// Changes own bytes by `change` ≤ 0. Returns the same as `grow`: bytes of other lanes may have
    /// grown.
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

    /// Sets the bounds after something other than live bytes has changed what a new high is.
    pub fn renew_bounds(&mut self, p: &Process, header: &FileHeader, allocated: u64) {
        self.fallen = true;
        self.set_bounds(p, header, allocated, 0);
    }

    /// Makes the current moment the peak if as many bytes are live as at the peak. Returns whether
    /// it did: what moves between sites next, without a change of live bytes, is part of the peak.
    /// With several threads, the peak is known to about a percent.
    pub fn peak_again(&mut self, p: &Process, header: &FileHeader, allocated: u64) -> bool {
        let live = header.published_live.get() - self.published + self.own(allocated);
        let peak = header.peak_bytes.get();
        let unknown =
            if p.threaded.load(Relaxed) { (peak / 128).min(bound_bytes(header)) } else { 0 };
        let is_peak = live > 0 && live as u64 + unknown >= peak;
        if is_peak {
            header.epoch.fetch_add(1, AcqRel);
            self.stamp(store(), header);
        }
        is_peak
    }

    /// Returns whether own bytes differ from those that were last published.
    pub fn is_held_back(&self, allocated: u64) -> bool {
        self.own(allocated) != self.published
    }

    /// Returns live bytes as this lane knows them.
    pub fn seen(&self, allocated: u64) -> i64 {
        self.own(allocated) + self.others
    }

    #[inline(never)]
    fn rise(&mut self, p: &Process, header: &FileHeader, allocated: u64, change: i64) -> bool {
        if p.threaded.load(Relaxed) {
            let own = self.own(allocated) + change;
            if own > self.published + self.batch {
                return self.publish(p, header, allocated, change);
            }
            // Too small to be published, so it can only be a high of the scope.
            self.note(own + self.others);
            self.set_bounds(p, header, allocated, change);
            return false;
        }
        // With a single thread, no other thread writes these. Frees inside the recorder are
        // subtracted from the published bytes.
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
            self.stamp(store(), header);
        }
        if own - self.published > self.batch {
            self.share(p, header, own);
        }
        self.set_bounds(p, header, allocated, change);
        new_high
    }

    /// Publishes own bytes, and reads those of the others. Returns whether all together reached a
    /// new high.
    #[cold]
    #[inline(never)]
    pub fn publish(
        &mut self,
        p: &Process,
        header: &FileHeader,
        allocated: u64,
        change: i64,
    ) -> bool {
        let live = self.share(p, header, self.own(allocated) + change);
        self.note(live);
        let shared = p.threaded.load(Relaxed) && live > 0;
        if shared {
            windows::open().rise(live, header, false);
        }
        let raised = shared && self.raise_shared(header, live as u64);
        self.set_bounds(p, header, allocated, change);
        raised
    }

    /// Enlarges the batch if the thread has published too often of late, so that a thread with fast
    /// changes publishes as rarely as it may. Otherwise the batch is fine: what a thread hides
    /// after a burst of changes is less than one percent.
    fn adapt_batch(&mut self, header: &FileHeader) {
        let ticks = clock::counter();
        let interval = (INTERVAL * u64::from(header.lanes_at_once.get())).max(INTERVAL);
        let interval = interval.min(arch::BELOW_MILLISECOND);
        let shared = self.shared.clamp(ticks, ticks.saturating_add(BURST * interval));
        let shared = shared.saturating_add(interval);
        let may = ticks != 0 && shared - ticks <= BURST * interval;
        if may {
            self.shared = shared;
        }
        self.batch = if may { fine_batch(header) } else { (self.batch * GROWTH).min(BATCH) };
    }

    /// Publishes own bytes. If live bytes differ much from those of the last sample, another one is
    /// due at once.
    fn share(&mut self, p: &Process, header: &FileHeader, own: i64) -> i64 {
        self.adapt_batch(header);
        let change = own - self.published;
        let live = header.published_live.fetch_add(change, AcqRel) + change;
        let sampled = p.sampled_live.load(Relaxed);
        let bytes = live.max(0) as u64;
        if live.abs_diff(sampled) >= samples::change_of(header.peak_bytes.get()) {
            self.next_sample = 0;
            spans().note_due(bytes);
        } else {
            spans().note(bytes);
        }
        self.published = own;
        self.others = live - own;
        live
    }

    /// Notes live bytes that a sample has summed over all lanes, with what they have not yet
    /// published: the peak is never below them. `allocated` is the lane's own.
    #[inline(never)] // keeps registers of the usual path free
    pub fn note_sum(&mut self, p: &Process, header: &FileHeader, allocated: u64, live: u64) {
        if p.threaded.load(Relaxed) && live > header.peak_bytes.get() {
            windows::open().rise(live as i64, header, false);
            self.raise_shared(header, live);
            self.set_limits(allocated);
        }
    }

    #[inline(never)] // as above
    fn raise_shared(&mut self, header: &FileHeader, live: u64) -> bool {
        self.fallen = true;
        let raised = header.peak_bytes.fetch_max(live, AcqRel) < live;
        if raised {
            header.epoch.fetch_add(1, AcqRel);
            self.stamp(store(), header);
        }
        header.peak_bound_bytes.fetch_max(bound_bytes(header), Relaxed);
        raised
    }

    /// Notes the current time as that of the peak, exact to a millisecond. The clock is read only
    /// if the processor's counter has advanced by more.
    fn stamp(&mut self, p: &Store, header: &FileHeader) {
        let ticks = clock::counter();
        if ticks != 0 && ticks.wrapping_sub(self.stamped) < arch::BELOW_MILLISECOND {
            return;
        }
        self.stamped = ticks;
        let now = p.now();
        header.peak_time_ns.set(now); // races with a stamp of about this time are harmless
        p.note_time(now);
    }
}

/// Returns by how many bytes a thread's live bytes may change before it publishes them, if it does
/// so rarely: all threads together by a part of the change that is sampled.
fn fine_batch(header: &FileHeader) -> i64 {
    if Options::known().is_some_and(|options| options.full_batches) {
        return BATCH;
    }
    let lanes = u64::from(header.lanes_at_once.get().max(1));
    let share = header.peak_bytes.get() / FINE_PART / lanes;
    share.clamp(FINE_MIN, PEAK_BATCH) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::process::unstarted;
    use std::boxed::Box;

    /// Returns a process with a header, and the view of its only lane.
    fn alone() -> (Box<Process>, Box<FileHeader>, Live) {
        let p = unstarted();
        // SAFETY: all zeros is a valid value.
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
            batch: 0,
            shared: 0,
            fallen: false,
        };
        live.begin(&p, &header, 0);
        (p, header, live)
    }

    /// Allocations and frees of one thread, counted like events.
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
        // Still rising: it is the same peak.
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
        let batch = thread.2.batch;
        assert_eq!(batch, FINE_MIN as i64, "of a thread that has published nothing");
        assert!(!thread.allocate(batch as u64));
        assert_eq!(thread.peak(), (0, 0));
        assert!(thread.allocate(1));
        assert_eq!(thread.peak(), (batch as u64 + 1, 1));
        // Another lane has published as much as it may hold back.
        thread.1.published_live.add(BATCH);
        let next = thread.2.batch;
        assert!(!thread.allocate(next as u64));
        assert!(thread.allocate(1));
        let own = batch + next + 2;
        assert_eq!(thread.peak(), ((own + BATCH) as u64, 2));
        assert_eq!((thread.2.own(thread.3), thread.2.seen(thread.3)), (own, own + BATCH));
    }

    #[test]
    fn the_sum_of_a_sample_raises_the_peak() {
        let mut thread = thread();
        thread.allocate(1000);
        thread.2.note_sum(&thread.0, &thread.1, thread.3, 5000);
        assert_eq!(thread.peak().0, 1000, "alone, the peak is exact");
        thread.0.threaded.store(true, Relaxed);
        thread.2.note_sum(&thread.0, &thread.1, thread.3, 5000);
        assert_eq!(thread.peak(), (5000, 2));
        thread.2.note_sum(&thread.0, &thread.1, thread.3, 4000);
        assert_eq!(thread.peak(), (5000, 2));
    }

    #[test]
    fn a_batch_grows_to_its_maximum_while_changes_are_fast() {
        let mut thread = thread();
        thread.2.batch = BATCH / 2 + 1;
        // What the thread may publish is used up for long.
        thread.2.shared = u64::MAX / 2;
        thread.2.adapt_batch(&thread.1);
        assert_eq!(thread.2.batch, BATCH);
        // Long ago, or at a time that is not known.
        thread.2.shared = 0;
        let is_known = clock::counter() != 0;
        for _ in 0..BURST / 2 {
            thread.2.adapt_batch(&thread.1);
            assert_eq!(thread.2.batch, if is_known { FINE_MIN as i64 } else { BATCH });
        }
    }

    #[test]
    fn below_the_limits_nothing_is_due() {
        let mut thread = thread();
        thread.2.shared = u64::MAX / 2; // so that no batch is fine
        assert!(thread.allocate(1000));
        // The free that follows a new high must be noticed, since the next high begins another
        // peak.
        assert!(!thread.2.may_free(1));
        thread.free(400);
        thread.2.sample_at(5000);
        thread.2.set_limits(thread.3);
        assert!(thread.2.may_allocate(1400) && !thread.2.may_allocate(1401), "the peak");
        assert!(thread.2.may_free(1000), "down to nothing");
        // Another free raises the true limit; the stored one is only too low.
        thread.free(100);
        assert!(!thread.2.may_allocate(1401));
        thread.2.set_limits(thread.3);
        assert!(thread.2.may_allocate(1500) && !thread.2.may_allocate(1501));
        thread.2.sample_at(1200);
        thread.2.set_limits(thread.3);
        assert!(thread.2.may_allocate(1199) && !thread.2.may_allocate(1200), "the sample");
    }

    /// Returns a scope of the profile.
    fn scope() -> &'static Scope {
        // SAFETY: all zeros is a valid value.
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
