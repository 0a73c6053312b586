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
use crate::event::tls::tls;
use crate::store::sites;
use crate::sys::front::{self, Front};
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use heaptide_format::{CONTROL_MONITORS, Mode};

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

/// Whether nobody but monitors watches the process, and whether they do.
#[inline(always)]
fn watched(lane: &LaneState) -> (bool, bool) {
    let words = control::words(lane.header).load(Relaxed);
    (words & !(CONTROL_MONITORS as u64) == 0, words != 0)
}

/// Counts an allocation.
#[inline(always)]
pub fn allocated<F: Front>(lane: &mut LaneState, block: *mut u8, requested: u64) -> Done {
    let mode = lane.quick;
    // SAFETY: the lane's own records; the header and sites stay mapped. The allocator's headers are
    // trusted where `quick` is set.
    unsafe {
        let (usual, monitored) = watched(lane);
        if mode == 0 || !usual {
            return Done::No;
        }
        if mode == STACKS {
            return if monitored { Done::No } else { Done::WantsStack };
        }
        let Some(usable) = F::usable_at_hand(block) else {
            return Done::No;
        };
        let record = &mut *lane.record;
        let own = lane.live.own() + usable as i64;
        if own > lane.live.high() || record.usable_bytes + usable >= lane.next_sample {
            return Done::No;
        }
        if mode == SCOPES {
            let (site, s) = (lane.here, &mut *lane.here_record);
            let Some(word) = word(lane, block as u64) else {
                return Done::No;
            };
            if site == 0 || s.epoch != (*lane.header).epoch || requested > s.largest_bytes {
                return Done::No;
            }
            word.store(site, Relaxed);
            add(&mut s.allocations, 1);
            add(&mut s.requested_bytes, requested);
            add(&mut s.usable_bytes, usable);
        } else if requested > record.largest_bytes {
            return Done::No;
        }
        lane.live.set_own(own);
        lane.last_block = block;
        add(record.requested_classes.get_unchecked_mut(class(requested)), 1);
        add(record.usable_classes.get_unchecked_mut(class(usable)), 1);
        add(&mut record.requested_bytes, requested);
        add(&mut record.usable_bytes, usable);
        if monitored { Done::ToTell } else { Done::Counted }
    }
}

/// Enters the recorder, counts a free, and leaves; false if it is not usual.
#[inline(always)]
pub fn free<F: Front>(block: *mut u8) -> bool {
    let t = tls();
    // SAFETY: the thread's own block and lane.
    unsafe {
        let lane = (*t).lane;
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
    // SAFETY: as in `allocated`.
    unsafe {
        let Some(usable) = F::usable_at_hand(block) else {
            return Done::No;
        };
        let own = lane.live.own() - usable as i64;
        let (usual, monitored) = watched(lane);
        if !usual || !lane.live.may_fall_to(own) || usable >= MAYBE_UNMAPPED {
            return Done::No;
        }
        let temporary = lane.last_block == block;
        let record = &mut *lane.record;
        if lane.quick == COUNTERS {
            add(record.freed_classes.get_unchecked_mut(class(usable)), 1);
            add(&mut record.freed_here_bytes, usable);
            if temporary {
                add(&mut record.temporary, 1);
                lane.last_block = core::ptr::null_mut();
            }
        } else {
            let Some(word) = word(lane, block as u64) else {
                return Done::No;
            };
            let site = word.load(Relaxed);
            // Most often it is the site of where the thread is: then nothing waits for the word.
            let s = if site == lane.here { lane.here_record } else { sites::at(site) };
            if site != lane.here && sites::owner_word(site) != lane.index {
                return Done::No;
            }
            let s = &mut *s;
            if s.epoch != (*lane.header).epoch || site == 0 {
                return Done::No;
            }
            word.store(0, Relaxed);
            add(&mut s.frees, 1);
            add(&mut s.freed_bytes, usable);
            // Before the scope: of a free that a kill cuts short, the bytes that sites have and
            // scopes lack tell the class.
            add(record.freed_classes.get_unchecked_mut(class(usable)), 1);
            add(&mut (*lane.scope).frees_here, 1);
            add(&mut (*lane.scope).freed_here_bytes, usable);
            if temporary {
                add(&mut s.temporary, 1);
                lane.last_block = core::ptr::null_mut();
            }
        }
        lane.live.set_own(own);
        if monitored { Done::ToTell } else { Done::Counted }
    }
}

/// The class of a size that an allocation can have: one scan, where one that may be any number
/// takes four instructions.
#[inline(always)]
fn class(bytes: u64) -> usize {
    63 - (bytes << 1 | 1).leading_zeros() as usize
}

/// Adds to a counter that this thread alone writes, in one instruction: a compiler that gathers
/// counters into vectors makes each event wait for the last one's stores.
#[inline(always)]
pub fn add(counter: &mut u64, n: u64) {
    // SAFETY: a valid, aligned word.
    let counter = unsafe { AtomicU64::from_ptr(counter) };
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
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
