//! The fast path: counts an event without a call. It takes events with a known site, no new peak
//! and no sample due, in processes that only monitors observe, with trusted block headers.
//!
//! Each function first checks these conditions and changes nothing if one does not hold; then
//! [`crate::event::dispatch`] passes on the event. Because nothing is called, few registers are
//! needed; that is half of what counting costs. Every counter is written by one instruction.

use crate::event::inside::here;
use crate::event::lane::LaneState;
use crate::event::monitors;
use crate::store::control_words;
use crate::store::ids::SiteId;
use crate::store::sites::own_word;
use crate::sys::front::Front;
use crate::sys::tls::{Tls, tls};
use core::sync::atomic::AtomicU64;
use heaptide_format::shared::Word;
use heaptide_format::{CONTROL_MONITORS, Mode, SIZE_CLASSES};

/// Frees of at least this many bytes may give memory back to the system, a coroutine's stack
/// perhaps.
pub const MAYBE_UNMAPPED: u64 = 64 << 10;
const COUNTERS: u32 = Mode::Counters as u32;
const SCOPES: u32 = Mode::Scopes as u32;
const STACKS: u32 = Mode::Stacks as u32;

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It is not usual: nothing was done.
    NotTaken,
    /// It is usual but for its stack: nothing was done.
    WantsStack,
    /// It was counted.
    Counted,
    /// It was counted, and monitors are to be told.
    NotifyMonitors,
}

impl Done {
    #[inline(always)]
    fn counted(monitored: bool) -> Done {
        if monitored { Done::NotifyMonitors } else { Done::Counted }
    }
}

/// Whether nobody but monitors observes the process, and whether they do.
#[inline(always)]
fn observers(lane: &LaneState) -> (bool, bool) {
    let words = control_words::words(lane.header).get();
    (words & !(CONTROL_MONITORS as u64) == 0, words != 0)
}

/// Counts an allocation.
#[inline(always)]
pub fn allocated<F: Front>(lane: &mut LaneState, block: *mut u8, requested: u64) -> Done {
    let mode = lane.quick;
    let (usual, monitored) = observers(lane);
    if mode == 0 || !usual {
        return Done::NotTaken;
    }
    if mode == STACKS {
        return if monitored { Done::NotTaken } else { Done::WantsStack };
    }
    let Some(usable) = F::usable_at_hand(block) else {
        return Done::NotTaken;
    };
    let record = lane.record;
    let own = lane.live.own() + usable as i64;
    if own > lane.live.high() || own_word(&record.usable_bytes) + usable >= lane.next_sample {
        return Done::NotTaken;
    }
    if mode == SCOPES {
        let (id, site) = (lane.place.here, lane.place.here_record);
        let Some(word) = lane.leaves.word(block) else {
            return Done::NotTaken;
        };
        let current = site.epoch.get() == lane.header.epoch.get();
        if id.is_none() || !current || requested > own_word(&site.largest_bytes) {
            return Done::NotTaken;
        }
        word.set(id.number());
        site.allocations.add(1);
        site.requested_bytes.add(requested);
        site.usable_bytes.add(usable);
    } else if requested > own_word(&record.largest_bytes) {
        return Done::NotTaken;
    }
    lane.live.set_own(own);
    lane.last_block = block;
    class(&record.requested_classes, requested).add(1);
    class(&record.usable_classes, usable).add(1);
    record.requested_bytes.add(requested);
    record.usable_bytes.add(usable);
    Done::counted(monitored)
}

/// What a free needs to take the fast path: the thread's words and its lane.
pub type Freeing<'a> = (&'static Tls, &'a mut LaneState);

/// Returns them if the free of a block may take the fast path.
#[inline(always)]
pub fn freeing(block: *mut u8) -> Option<Freeing<'static>> {
    let t = tls();
    let lane = t.lane.get() as *mut LaneState;
    if lane.is_null() || t.is_inside() {
        return None;
    }
    // SAFETY: the thread's own lane, to which nothing else refers while it is not inside; a signal
    // handler that frees is done with it before this goes on.
    let lane = unsafe { &mut *lane };
    (lane.quick != 0 && !block.is_null()).then_some((t, lane))
}

/// Whether a free changes counters of the lane alone: there are no sites.
#[inline(always)]
pub fn is_of_counters(lane: &LaneState) -> bool {
    lane.quick == COUNTERS
}

/// Whether nobody observes the process.
#[inline(always)]
pub fn is_unobserved(lane: &LaneState) -> bool {
    control_words::words(lane.header).get() == 0
}

/// Enters the recorder, counts a free, and leaves; false if it does not take the fast path.
#[inline(always)]
pub fn free<F: Front>((t, lane): Freeing<'_>, block: *mut u8) -> bool {
    t.enter_without_stack(here().sp);
    let done = freed::<F>(lane, block);
    if done == Done::NotifyMonitors {
        monitors::notify_freed::<F>(lane, block);
    }
    t.leave();
    done != Done::NotTaken
}

/// The same where nobody observes the process and there are no sites. It calls nothing, and so
/// saves no registers.
#[inline(always)]
pub fn free_of_counters<F: Front>((t, lane): Freeing<'_>, block: *mut u8) -> bool {
    t.enter_without_stack(here().sp);
    let is_counted = freed_of_counters::<F>(lane, block);
    t.leave();
    is_counted
}

/// The same where there are sites.
#[inline(always)]
pub fn free_of_site<F: Front>((t, lane): Freeing<'_>, block: *mut u8) -> bool {
    t.enter_without_stack(here().sp);
    let is_counted = freed_of_site::<F>(lane, block);
    t.leave();
    is_counted
}

/// Counts a free, where `quick` is set.
#[inline(always)]
pub fn freed<F: Front>(lane: &mut LaneState, block: *mut u8) -> Done {
    let (usual, monitored) = observers(lane);
    let is_counted = usual
        && if is_of_counters(lane) {
            freed_of_counters::<F>(lane, block)
        } else {
            freed_of_site::<F>(lane, block)
        };
    if is_counted { Done::counted(monitored) } else { Done::NotTaken }
}

/// False if that is not usual; only monitors observe the process.
#[inline(always)]
fn freed_of_counters<F: Front>(lane: &mut LaneState, block: *mut u8) -> bool {
    let Some(usable) = F::usable_at_hand(block) else {
        return false;
    };
    let own = lane.live.own() - usable as i64;
    if !lane.live.may_fall_to(own) || usable >= MAYBE_UNMAPPED {
        return false;
    }
    class(&lane.record.freed_classes, usable).add(1);
    lane.record.freed_here_bytes.add(usable);
    if lane.last_block == block {
        lane.record.temporary.add(1);
        lane.last_block = core::ptr::null_mut();
    }
    lane.live.set_own(own);
    true
}

/// The same where there are sites.
#[inline(always)]
fn freed_of_site<F: Front>(lane: &mut LaneState, block: *mut u8) -> bool {
    let Some(usable) = F::usable_at_hand(block) else {
        return false;
    };
    let own = lane.live.own() - usable as i64;
    if !lane.live.may_fall_to(own) || usable >= MAYBE_UNMAPPED {
        return false;
    }
    let Some(word) = lane.leaves.word(block) else {
        return false;
    };
    let (id, place) = (SiteId::new(word.get()), &lane.place);
    // Most often it is the site of where the thread is: then nothing waits for the word.
    let site = if id == place.here { place.here_record } else { id.record() };
    if id != place.here && id.owner_word() != place.lane {
        return false;
    }
    if site.epoch.get() != lane.header.epoch.get() || id.is_none() {
        return false;
    }
    word.set(0);
    site.frees.add(1);
    site.freed_bytes.add(usable);
    // Before the scope: of a free that a kill cuts short, the bytes that sites have and scopes lack
    // tell the class.
    class(&lane.record.freed_classes, usable).add(1);
    place.scope.frees_here.add(1);
    place.scope.freed_here_bytes.add(usable);
    if lane.last_block == block {
        site.temporary.add(1);
        lane.last_block = core::ptr::null_mut();
    }
    lane.live.set_own(own);
    true
}

/// The counter of a size that an allocation can have: its class takes one scan, where that of any
/// number takes four instructions.
#[inline(always)]
fn class(classes: &[AtomicU64; SIZE_CLASSES], bytes: u64) -> &AtomicU64 {
    let class = 63 - (bytes << 1 | 1).leading_zeros() as usize;
    // SAFETY: at most 63.
    unsafe { classes.get_unchecked(class) }
}
