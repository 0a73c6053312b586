//! Bounds of live bytes while a sample of the timeline is the last one.
//!
//! Samples that follow each other too fast are merged ([`crate::store::samples`]), and changes
//! below one percent have none. A span stores how low and how high live bytes were meanwhile, so
//! that readers can add up several processes without missing a moment.

use crate::store::profile::Cursor;
use crate::sys::locked::Guarded;
use crate::sys::wiped::Wiped;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};
use heaptide_format::Kind;
use heaptide_format::shared::{Span, Word};

/// The current span. All zeros: none.
pub struct Spans {
    /// Used under the timeline's lock.
    cursor: Guarded<Cursor>,
    current: AtomicPtr<Span>,
    /// The highest live bytes for which a sample is due, which belong to the next span.
    due_highest: AtomicU64,
    /// The complement of the lowest, so that 0 is none.
    due_lowest: AtomicU64,
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static SPANS: Wiped<Spans> = unsafe { Wiped::new() };

/// Returns the spans of this process.
#[inline(always)]
pub fn spans() -> &'static Spans {
    SPANS.get()
}

/// Makes forked children start without a span.
pub fn wipe_in_children() {
    SPANS.wipe_in_children();
}

impl Spans {
    /// Notes live bytes that a thread has published.
    pub fn note(&self, live: u64) {
        let mut current = self.current.load(Acquire);
        loop {
            // SAFETY: null, or a record of the profile, which stays mapped.
            let Some(span) = (unsafe { current.as_ref() }) else { return };
            if live > span.highest.get() {
                span.highest.fetch_max(live, Relaxed);
            }
            if live < span.lowest.get() {
                span.lowest.fetch_min(live, Relaxed);
            }
            // If the span has ended meanwhile, the bytes can belong to the next one.
            let now = self.current.load(Acquire);
            if core::ptr::eq(now, current) {
                return;
            }
            current = now;
        }
    }

    /// Notes live bytes for which a sample is due.
    pub fn note_due(&self, live: u64) {
        self.due_highest.fetch_max(live, AcqRel);
        self.due_lowest.fetch_max(!live, AcqRel);
    }

    /// Begins the span of a new sample. The caller holds the timeline's lock. Returns whether there
    /// was room.
    pub fn begin(&self, now: u64, live: u64) -> bool {
        let (fast_lowest, fast_highest) = self.take_due(live);
        // SAFETY: the cursor is used under the timeline's lock.
        let cursor = unsafe { &mut *self.cursor.0.get() };
        let Some(span) = cursor.record::<Span>(Kind::Spans, 0) else {
            self.current.store(core::ptr::null_mut(), Release);
            return false;
        };
        span.begin_ns.set(now);
        span.settled_ns.set(now);
        span.fast_lowest.set(fast_lowest);
        span.fast_highest.set(fast_highest);
        span.lowest.set(live);
        span.highest.set(live);
        cursor.commit_record(span);
        self.current.store(core::ptr::from_ref(span).cast_mut(), Release);
        true
    }

    /// Continues the span of a sample that is stored again. The caller holds the timeline's lock.
    pub fn settle(&self, now: u64, live: u64) {
        let (lowest, highest) = self.take_due(live);
        // SAFETY: null, or a record of the profile, which stays mapped.
        let Some(span) = (unsafe { self.current.load(Acquire).as_ref() }) else { return };
        let (lowest, highest) = (lowest.min(span.lowest.get()), highest.max(span.highest.get()));
        span.fast_lowest.set(span.fast_lowest.get().min(lowest));
        span.fast_highest.set(span.fast_highest.get().max(highest));
        span.settled_ns.set(now);
        // What another thread notes in between is only late.
        let lowest = span.lowest.swap(live, AcqRel);
        let highest = span.highest.swap(live, AcqRel);
        span.fast_lowest.set(span.fast_lowest.get().min(lowest));
        span.fast_highest.set(span.fast_highest.get().max(highest));
    }

    /// Returns the bounds of the bytes for which a sample was due, and of the live bytes now.
    fn take_due(&self, live: u64) -> (u64, u64) {
        let lowest = !self.due_lowest.swap(0, AcqRel);
        (live.min(lowest), live.max(self.due_highest.swap(0, AcqRel)))
    }
}
