//! The fast path: counts an event without a call. It takes events with a known site, no new peak
//! and no sample due, in processes that only monitors observe, with trusted block headers.
//!
//! Each function first checks these conditions and changes nothing if one does not hold; then
//! [`crate::event::step`] handles the event. Because nothing is called, few registers are
//! needed, which saves half of the cost of counting. Each counter is written by one instruction.
//! Conditions that are equal for all events of a thread, its mode and whether it may take the fast
//! path, are evaluated once for each lane ([`crate::sys::front::Route`]).

use crate::event::inside::{Entry, Inside};
use crate::event::lane::LaneState;
use crate::event::stacks::{self, Same};
use crate::event::{record, sampling};
use crate::store::control_words;
use crate::store::ids::SiteId;
use crate::store::sites::{own_epoch, own_word};
use crate::sys::front::{Front, MAYBE_UNMAPPED};
use core::sync::atomic::AtomicU64;
use heaptide_format::shared::{Lane, Site, Word};
use heaptide_format::{CONTROL_MONITORS, Mode, SIZE_CLASSES};

const COUNTERS: u32 = Mode::Counters as u32;
const SCOPES: u32 = Mode::Scopes as u32;
const STACKS: u32 = Mode::Stacks as u32;
const SAMPLED: u32 = Mode::Sampled as u32;

/// The result of the fast path for an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The event is for the slow path; nothing was done.
    NotTaken,
    /// Only the stack is needed for the fast path, of which this is known; nothing was done.
    WantsStack(Same),
    /// The event was counted.
    Counted,
    /// The event was counted, and monitors have to be notified.
    NotifyMonitors,
}

impl Done {
    #[inline(always)]
    fn counted(monitored: bool) -> Done {
        if monitored { Done::NotifyMonitors } else { Done::Counted }
    }
}

/// Returns whether the process has neither observers nor requests.
#[inline(always)]
pub fn is_unobserved(lane: &LaneState) -> bool {
    control_words::words(lane.header).get() == 0
}

/// Returns whether the process has no observers other than monitors, and whether it has any.
#[inline(always)]
fn observers(lane: &LaneState) -> (bool, bool) {
    let words = control_words::words(lane.header).get();
    (words & !(CONTROL_MONITORS as u64) == 0, words != 0)
}

/// Counts an allocation.
#[inline(always)]
pub fn try_alloc<F: Front>(lane: &mut LaneState, block: *mut u8, requested: u64) -> Done {
    let (is_common, monitored) = observers(lane);
    if !is_common {
        return Done::NotTaken;
    }
    let is_counted = match lane.quick {
        COUNTERS | SAMPLED => try_alloc_in_counters::<F>(lane, block, requested),
        SCOPES => try_alloc_in_scope::<F>(lane, block, requested),
        STACKS if !monitored => match try_alloc_in_last_stack::<F>(lane, block, requested) {
            Ok(()) => true,
            Err(seen) => return Done::WantsStack(seen),
        },
        _ => false,
    };
    if is_counted { Done::counted(monitored) } else { Done::NotTaken }
}

/// Returns the usable bytes of a new block, if they are available without a call and nothing is due
/// after it is counted.
#[inline(always)]
fn common_allocation<F: Front>(lane: &LaneState, block: *mut u8) -> Option<u64> {
    let usable = F::usable_at_hand(block)?;
    lane.live.may_allocate(lane.allocated() + usable).then_some(usable)
}

/// Counts an allocation in modes counters and sampled. Returns false, and does nothing, if it is
/// for the slow path, as a sampled one is.
#[inline(always)]
pub fn try_alloc_in_counters<F: Front>(
    lane: &mut LaneState,
    block: *mut u8,
    requested: u64,
) -> bool {
    let Some(usable) = common_allocation::<F>(lane, block) else {
        return false;
    };
    count_in_counters(lane, block, requested, usable)
}

#[inline(always)]
fn count_in_counters(lane: &mut LaneState, block: *mut u8, requested: u64, usable: u64) -> bool {
    let record = lane.record;
    if requested > own_word(&record.largest_bytes) {
        return false;
    }
    lane.last_block = block;
    count(record, requested, usable);
    true
}

/// Counts an allocation in mode scopes likewise.
#[inline(always)]
pub fn try_alloc_in_scope<F: Front>(lane: &mut LaneState, block: *mut u8, requested: u64) -> bool {
    let (id, site) = (lane.place.here, lane.place.here_record);
    // Without a site here, the record is the head of the file, whose epoch is not current.
    try_alloc_at::<F>(lane, (id, site), block, requested)
}

/// Counts an allocation in mode stacks likewise, if its stack is the last one. Otherwise returns
/// what was found about the stack.
#[inline(always)]
pub fn try_alloc_in_last_stack<F: Front>(
    lane: &mut LaneState,
    block: *mut u8,
    requested: u64,
) -> Result<(), Same> {
    let (sp, bp) = lane.gate.registers();
    let seen = stacks::same(lane, Entry { sp, bp }.registers());
    let place = &lane.place;
    let id = place.last_site;
    if seen != Same::Node(place.last_node.number())
        || !try_alloc_at::<F>(lane, (id, id.record()), block, requested)
    {
        return Err(seen);
    }
    Ok(())
}

/// Counts an allocation at a site likewise.
#[inline(always)]
pub fn try_alloc_at<F: Front>(
    lane: &mut LaneState,
    site: (SiteId, &Site),
    block: *mut u8,
    requested: u64,
) -> bool {
    let Some(usable) = common_allocation::<F>(lane, block) else {
        return false;
    };
    count_at(lane, site, block, requested, usable)
}

#[inline(always)]
fn count_at(
    lane: &mut LaneState,
    (id, site): (SiteId, &Site),
    block: *mut u8,
    requested: u64,
    usable: u64,
) -> bool {
    let record = lane.record;
    let Some(word) = lane.leaves.word(block) else {
        return false;
    };
    let is_current = own_epoch(site) == lane.header.epoch.get();
    if !is_current || requested > own_word(&site.largest_bytes) {
        return false;
    }
    word.set(id.number());
    site.allocations.add(1);
    site.requested_bytes.add(requested);
    site.usable_bytes.add(usable);
    lane.last_block = block;
    count(record, requested, usable);
    true
}

/// Counts an allocation whose stack is not the last one, if nothing but the stack is missing for
/// the fast path. `seen` is the result of [`stacks::same`].
#[inline(never)]
pub fn alloc_in_stack<F: Front>(inside: &mut Inside, block: *mut u8, requested: u64, seen: Same) {
    alloc_in_stack_inline::<F>(inside, block, requested, seen);
}

/// Does the same inline, for the caller that counts most allocations.
#[inline(always)]
pub fn alloc_in_stack_inline<F: Front>(
    inside: &mut Inside,
    block: *mut u8,
    requested: u64,
    seen: Same,
) {
    let site = record::site_of_stack(inside, block, requested, seen);
    let lane = inside.lane();
    if !try_alloc_at::<F>(lane, (site, site.record()), block, requested) {
        record::count_alloc_at(lane, site, block, requested, F::usable(block));
    }
}

/// Returns whether nothing is due after a block of this size is counted.
#[inline(always)]
fn may_allocate(lane: &LaneState, usable: u64) -> bool {
    lane.live.may_allocate(lane.allocated() + usable)
}

/// Counts an allocation of a block whose usable bytes are known, and which may not be a block of
/// the process's allocator.
#[inline(always)]
pub fn try_alloc_of_size(
    lane: &mut LaneState,
    block: *mut u8,
    requested: u64,
    usable: u64,
) -> Done {
    let (is_common, monitored) = observers(lane);
    if !is_common || !may_allocate(lane, usable) {
        return Done::NotTaken;
    }
    let is_counted = match lane.quick_of_size {
        STACKS if !monitored => {
            let (sp, bp) = lane.gate.registers();
            let seen = stacks::same(lane, Entry { sp, bp }.registers());
            let (id, node) = (lane.place.last_site, lane.place.last_node.number());
            if seen != Same::Node(node)
                || !count_at(lane, (id, id.record()), block, requested, usable)
            {
                return Done::WantsStack(seen);
            }
            true
        }
        COUNTERS | SAMPLED => count_in_counters(lane, block, requested, usable),
        SCOPES => {
            let here = (lane.place.here, lane.place.here_record);
            count_at(lane, here, block, requested, usable)
        }
        _ => false,
    };
    if is_counted { Done::counted(monitored) } else { Done::NotTaken }
}

/// Counts an allocation of such a block whose stack is not the last one, likewise.
#[inline(never)]
pub fn alloc_of_size_in_stack(
    inside: &mut Inside,
    block: *mut u8,
    (requested, usable): (u64, u64),
    seen: Same,
) {
    let site = record::site_of_stack(inside, block, requested, seen);
    let (lane, at) = (inside.lane(), (site, site.record()));
    if !may_allocate(lane, usable) || !count_at(lane, at, block, requested, usable) {
        record::count_alloc_at(lane, site, block, requested, usable);
    }
}

/// Adds an allocation to the lane's counters. The bytes that limits refer to come last.
#[inline(always)]
fn count(record: &Lane, requested: u64, usable: u64) {
    class(&record.requested_classes, requested).add(1);
    class(&record.usable_classes, usable).add(1);
    record.requested_bytes.add(requested);
    record.usable_bytes.add(usable);
}

/// Counts a free.
#[inline(always)]
pub fn try_free<F: Front>(lane: &mut LaneState, block: *mut u8) -> Done {
    let (is_common, monitored) = observers(lane);
    let is_counted = is_common
        && match lane.quick {
            COUNTERS => try_free_in_counters::<F>(lane, block),
            SAMPLED => try_free_in_sampled::<F>(lane, block),
            SCOPES | STACKS => try_free_in_site::<F>(lane, block),
            _ => false,
        };
    if is_counted { Done::counted(monitored) } else { Done::NotTaken }
}

/// Returns the usable bytes of a block that is freed, if they are available without a call and
/// nothing is due after the free is counted.
#[inline(always)]
fn common_free<F: Front>(lane: &LaneState, block: *mut u8) -> Option<u64> {
    let usable = F::freed_at_hand(block)?;
    lane.live.may_free(lane.live.freed().wrapping_add(usable)).then_some(usable)
}

/// Counts a free in mode counters. Returns false, and does nothing, if it is for the slow path.
///
/// Each change is one instruction and none depends on another, so a signal handler may interrupt it
/// anywhere: the thread need not be marked as inside the recorder.
#[inline(always)]
pub fn try_free_in_counters<F: Front>(lane: &mut LaneState, block: *mut u8) -> bool {
    let Some(usable) = common_free::<F>(lane, block) else {
        return false;
    };
    count_free_in_counters(lane, block, usable);
    true
}

#[inline(always)]
fn count_free_in_counters(lane: &mut LaneState, block: *mut u8, usable: u64) {
    class(&lane.record.freed_classes, usable).add(1);
    lane.record.freed_here_bytes.add(usable);
    lane.live.count_free(usable);
    if lane.last_block == block {
        lane.record.temporary.add(1);
        lane.last_block = core::ptr::null_mut();
    }
}

/// Counts a free in mode sampled likewise, if the block certainly is not sampled.
#[inline(always)]
pub fn try_free_in_sampled<F: Front>(lane: &mut LaneState, block: *mut u8) -> bool {
    !sampling::is_sampled_block(lane, block) && try_free_in_counters::<F>(lane, block)
}

/// Counts a free in modes with sites likewise.
#[inline(always)]
pub fn try_free_in_site<F: Front>(lane: &mut LaneState, block: *mut u8) -> bool {
    let Some(usable) = common_free::<F>(lane, block) else {
        return false;
    };
    count_free_in_site(lane, block, usable)
}

#[inline(always)]
fn count_free_in_site(lane: &mut LaneState, block: *mut u8, usable: u64) -> bool {
    let Some(word) = lane.leaves.word(block) else {
        return false;
    };
    let (id, place) = (SiteId::new(word.get()), &lane.place);
    // Usually the site is the current one; then nothing waits for the word.
    let site = if id == place.here { place.here_record } else { id.record() };
    if id != place.here && id.owner_word() != place.lane {
        return false;
    }
    // This also holds for no site: its record is the head of the file.
    if own_epoch(site) != lane.header.epoch.get() {
        return false;
    }
    word.set(0);
    site.frees.add(1);
    site.freed_bytes.add(usable);
    // Before the scope: if a kill interrupts the free, a reader derives the class from the bytes
    // that sites have and scopes lack.
    class(&lane.record.freed_classes, usable).add(1);
    place.scope.frees_here.add(1);
    place.scope.freed_here_bytes.add(usable);
    lane.live.count_free(usable);
    if lane.last_block == block {
        site.temporary.add(1);
        lane.last_block = core::ptr::null_mut();
    }
    true
}

/// Counts a free of a block whose usable bytes are known, and which may not be a block of the
/// process's allocator.
#[inline(always)]
pub fn try_free_of_size(lane: &mut LaneState, block: *mut u8, usable: u64) -> Done {
    let (is_common, monitored) = observers(lane);
    let may_free = lane.live.may_free(lane.live.freed().wrapping_add(usable));
    if !is_common || !may_free || usable >= MAYBE_UNMAPPED {
        return Done::NotTaken;
    }
    let is_counted = match lane.quick_of_size {
        SCOPES | STACKS => count_free_in_site(lane, block, usable),
        COUNTERS => {
            count_free_in_counters(lane, block, usable);
            true
        }
        SAMPLED if !sampling::is_sampled_block(lane, block) => {
            count_free_in_counters(lane, block, usable);
            true
        }
        _ => false,
    };
    if is_counted { Done::counted(monitored) } else { Done::NotTaken }
}

/// Returns the counter of a size that an allocation can have. For these, finding the class takes
/// one scan, instead of four instructions for any number.
#[inline(always)]
fn class(classes: &[AtomicU64; SIZE_CLASSES], bytes: u64) -> &AtomicU64 {
    let class = 63 - (bytes << 1 | 1).leading_zeros() as usize;
    // SAFETY: at most 63.
    unsafe { classes.get_unchecked(class) }
}
