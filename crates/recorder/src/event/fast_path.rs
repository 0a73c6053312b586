//! The fast path: counts an event without a call. It takes events with a known site, no new peak
//! and no sample due, in processes that only monitors observe, with trusted block headers.
//!
//! Each function first checks these conditions and changes nothing if one does not hold; then
//! [`crate::event::record`] takes the event. Because nothing is called, few registers are
//! needed; that is half of what counting costs. Every counter is written by one instruction.

use crate::api::{control, monitors};
use crate::event::lane::LaneState;
use crate::event::process::process;
use crate::event::record::MAYBE_UNMAPPED;
use crate::store::ids::SiteId;
use crate::store::sites::own_word;
use crate::sys::front::{self, Front};
use crate::sys::tls::tls;
use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64};
use heaptide_format::shared::Word;
use heaptide_format::{CONTROL_MONITORS, Mode, SIZE_CLASSES};

const COUNTERS: u32 = Mode::Counters as u32;
const SCOPES: u32 = Mode::Scopes as u32;
const STACKS: u32 = Mode::Stacks as u32;

/// Leaves of the shadow table that a lane remembers, by region; a power of two.
pub const LEAVES: usize = 16;
/// What tells a block's leaf: its region, and the half for blocks aligned to 8 only.
const LEAF_KEY: u64 = !0 << REGION_BITS | 8;
const REGION_BITS: u32 = crate::store::shadow::REGION_BITS;

/// A leaf that was used: its key, and the place that its words count from.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Leaf {
    key: u64,
    /// Address of the word of address 0, were it in this leaf.
    origin: u64,
}

impl Leaf {
    pub const NONE: Leaf = Leaf { key: !0, origin: 0 };
}

#[inline(always)]
fn place(block: u64) -> usize {
    (block >> REGION_BITS) as usize % LEAVES
}

/// The shadow word of a block, if its leaf is remembered.
#[inline(always)]
fn word(lane: &LaneState, block: u64) -> Option<&'static AtomicU32> {
    let leaf = &lane.leaves[place(block)];
    let address = leaf.origin.wrapping_add((block >> 4) * 4);
    // SAFETY: leaves are never unmapped, and the block is in this one.
    (leaf.key == block & LEAF_KEY).then(|| unsafe { &*(address as *const AtomicU32) })
}

/// Remembers a block's leaf.
#[inline(always)]
pub fn remember(lane: &mut LaneState, block: *const u8, word: &'static AtomicU32) {
    let block = block as u64;
    let origin = (word.as_ptr() as u64).wrapping_sub((block >> 4) * 4);
    lane.leaves[place(block)] = Leaf { key: block & LEAF_KEY, origin };
}

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It is not usual: nothing was done.
    No,
    /// It is usual but for its stack: nothing was done.
    WantsStack,
    /// It was counted.
    Counted,
    /// It was counted, and monitors are to be told.
    ToTell,
}

/// Whether nobody but monitors observes the process, and whether they do.
#[inline(always)]
fn observers(lane: &LaneState) -> (bool, bool) {
    let words = control::words(lane.header).get();
    (words & !(CONTROL_MONITORS as u64) == 0, words != 0)
}

/// Counts an allocation.
#[inline(always)]
pub fn allocated<F: Front>(lane: &mut LaneState, block: *mut u8, requested: u64) -> Done {
    let mode = lane.quick;
    let (usual, monitored) = observers(lane);
    if mode == 0 || !usual {
        return Done::No;
    }
    if mode == STACKS {
        return if monitored { Done::No } else { Done::WantsStack };
    }
    let Some(usable) = F::usable_at_hand(block) else {
        return Done::No;
    };
    let record = lane.record;
    let own = lane.live.own() + usable as i64;
    if own > lane.live.high() || own_word(&record.usable_bytes) + usable >= lane.next_sample {
        return Done::No;
    }
    if mode == SCOPES {
        let (id, site) = (lane.place.here, lane.place.here_record);
        let Some(word) = word(lane, block as u64) else {
            return Done::No;
        };
        let current = site.epoch.get() == lane.header.epoch.get();
        if id.is_none() || !current || requested > own_word(&site.largest_bytes) {
            return Done::No;
        }
        word.set(id.number());
        site.allocations.add(1);
        site.requested_bytes.add(requested);
        site.usable_bytes.add(usable);
    } else if requested > own_word(&record.largest_bytes) {
        return Done::No;
    }
    lane.live.set_own(own);
    lane.last_block = block;
    class(&record.requested_classes, requested).add(1);
    class(&record.usable_classes, usable).add(1);
    record.requested_bytes.add(requested);
    record.usable_bytes.add(usable);
    if monitored { Done::ToTell } else { Done::Counted }
}

/// Enters the recorder, counts a free, and leaves; false if it is not usual.
#[inline(always)]
pub fn free<F: Front>(block: *mut u8) -> bool {
    let t = tls();
    // SAFETY: the thread's own block and lane.
    unsafe {
        let lane = (*t).lane as *mut LaneState;
        if lane.is_null() || (*t).inside != 0 || (*lane).quick == 0 || block.is_null() {
            return false;
        }
        let sp: u64;
        asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags));
        (&raw mut (*t).inside).write_volatile(1);
        (&raw mut (*t).inside_sp).write_volatile(sp);
        let done = freed::<F>(&mut *lane, block);
        if done == Done::ToTell {
            monitors::tell_freed::<F>(&*lane, block);
        }
        (&raw mut (*t).inside).write_volatile(0);
        done != Done::No
    }
}

/// Counts a free, where `quick` is set.
#[inline(always)]
pub fn freed<F: Front>(lane: &mut LaneState, block: *mut u8) -> Done {
    let Some(usable) = F::usable_at_hand(block) else {
        return Done::No;
    };
    let own = lane.live.own() - usable as i64;
    let (usual, monitored) = observers(lane);
    if !usual || !lane.live.may_fall_to(own) || usable >= MAYBE_UNMAPPED {
        return Done::No;
    }
    let temporary = lane.last_block == block;
    let record = lane.record;
    if lane.quick == COUNTERS {
        class(&record.freed_classes, usable).add(1);
        record.freed_here_bytes.add(usable);
        if temporary {
            record.temporary.add(1);
            lane.last_block = core::ptr::null_mut();
        }
    } else {
        let Some(word) = word(lane, block as u64) else {
            return Done::No;
        };
        let (id, place) = (SiteId::new(word.get()), &lane.place);
        // Most often it is the site of where the thread is: then nothing waits for the word.
        let site = if id == place.here { place.here_record } else { id.record() };
        if id != place.here && id.owner_word() != place.lane {
            return Done::No;
        }
        if site.epoch.get() != lane.header.epoch.get() || id.is_none() {
            return Done::No;
        }
        word.set(0);
        site.frees.add(1);
        site.freed_bytes.add(usable);
        // Before the scope: of a free that a kill cuts short, the bytes that sites have and scopes
        // lack tell the class.
        class(&record.freed_classes, usable).add(1);
        place.scope.frees_here.add(1);
        place.scope.freed_here_bytes.add(usable);
        if temporary {
            site.temporary.add(1);
            lane.last_block = core::ptr::null_mut();
        }
    }
    lane.live.set_own(own);
    if monitored { Done::ToTell } else { Done::Counted }
}

/// The counter of a size that an allocation can have: its class takes one scan, where that of any
/// number takes four instructions.
#[inline(always)]
fn class(classes: &[AtomicU64; SIZE_CLASSES], bytes: u64) -> &AtomicU64 {
    let class = 63 - (bytes << 1 | 1).leading_zeros() as usize;
    // SAFETY: at most 63.
    unsafe { classes.get_unchecked(class) }
}

/// The general way has a look at what keeps a lane from the usual one.
#[inline(always)]
pub fn settle(lane: &mut LaneState) {
    let usual = lane.flags == 0 && !lane.is_traced() && front::sizes_are_at_hand();
    lane.quick = if usual { lane.mode } else { 0 };
}

/// The shadow word of a block on the general way, remembered for the usual one.
#[inline(always)]
pub fn find_word(lane: &mut LaneState, block: *const u8) -> Option<&'static AtomicU32> {
    if let Some(word) = word(lane, block as u64) {
        return Some(word);
    }
    let word = process().shadow.word(block)?;
    remember(lane, block, word);
    Some(word)
}
