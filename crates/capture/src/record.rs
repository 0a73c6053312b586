//! What an allocation, a free and a reallocation do to the counters: the hot path.

use crate::lane::{Inside, LaneState};
use crate::process::process;
use crate::stacks::OTHER_STACKS;
use crate::{shadow, sites, stacks, timeline};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::{Loss, Mode, size_class};
use heaptide_unwind::stack::Registers;

/// The registers at the entry of a hook.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Points at the return address.
    pub sp: u64,
    pub bp: u64,
}

impl Entry {
    /// The return address.
    pub fn caller(self) -> u64 {
        // SAFETY: at the entry of a function it is on top of the stack.
        unsafe { *(self.sp as *const u64) }
    }

    #[inline(always)]
    fn registers(self) -> Registers {
        Registers { pc: self.caller(), sp: self.sp + 8, bp: self.bp }
    }
}

/// Frees of at least this many bytes may give memory back to the system, a coroutine's stack
/// perhaps.
const MAYBE_UNMAPPED: u64 = 64 << 10;

/// A block of `usable` bytes was allocated for a request of `requested`.
#[inline(always)]
pub fn allocated(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    if lane.mode == Mode::Counters as u32 {
        lane.live.grow(process(), lane.header, usable as i64);
        count_plainly(lane, requested);
        lane.last_block = block;
        count(lane, requested, usable);
    } else {
        allocated_here(inside, block, requested, usable);
    }
}

/// The same with its stack; apart, so that counting alone needs few registers.
#[inline(never)]
fn allocated_here(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let entry = inside.entry();
    let lane = inside.lane();
    let site = site_here(lane, entry);
    if !shadow::put(block, site) {
        return process().lost(Loss::NoShadow);
    }
    let rose = lane.live.grow(process(), lane.header, usable as i64);
    // SAFETY: the site is the lane's, and the lane is this thread's; the header is mapped.
    unsafe { sites::allocated(site, requested, usable, (*lane.header).epoch, rose) };
    lane.last_block = block;
    count(lane, requested, usable);
}

/// The site of the calling stack; the stackless one if that cannot be stored.
#[inline(always)]
fn site_here(lane: &mut LaneState, entry: Entry) -> u32 {
    let node = stacks::capture(lane, entry.registers());
    match sites::of_node(lane, node) {
        0 => {
            process().lost(Loss::NoSite);
            lane.base_site
        }
        site => site,
    }
}

#[inline(always)]
fn count(lane: &mut LaneState, requested: u64, usable: u64) {
    // SAFETY: the lane's own record.
    unsafe {
        let record = &mut *lane.record;
        record.allocations += 1;
        record.usable_bytes += usable;
        record.requested_classes[size_class(requested)] += 1;
        record.usable_classes[size_class(usable)] += 1;
    }
    lane.until_sample -= usable as i64;
    if lane.until_sample < 0 {
        timeline::sample(lane);
    }
}

#[inline(always)]
fn count_plainly(lane: &mut LaneState, requested: u64) {
    // SAFETY: the lane's own record.
    let record = unsafe { &mut *lane.record };
    record.requested_bytes += requested;
    record.largest_bytes = record.largest_bytes.max(requested);
}

/// A block of `usable` bytes is about to be freed.
#[inline(always)]
pub fn freed(inside: &mut Inside, block: *mut u8, usable: u64) {
    let lane = inside.lane();
    let temporary = lane.last_block == block;
    if temporary {
        lane.last_block = core::ptr::null_mut();
    }
    if lane.mode == Mode::Counters as u32 {
        lane.live.shrink(process(), lane.header, -(usable as i64));
        // SAFETY: the lane's own record.
        unsafe { (*lane.record).temporary += temporary as u64 };
    } else {
        let site = shadow::take(block);
        if site == 0 {
            unmatched(lane);
            return;
        }
        charge_free(lane, site, usable, temporary);
    }
    count_free(lane, usable);
}

/// Charges a free to the site that allocated, and takes it off live.
#[inline(always)]
fn charge_free(lane: &mut LaneState, site: u32, usable: u64, temporary: bool) {
    let rose = lane.live.shrink(process(), lane.header, -(usable as i64));
    charge_site(lane, site, usable, temporary, rose);
    if usable >= MAYBE_UNMAPPED && OTHER_STACKS.load(Relaxed) {
        process().generation.fetch_add(1, Relaxed);
    }
}

/// `rose`: the change that the free is part of made a new peak.
#[inline(always)]
fn charge_site(lane: &LaneState, site: u32, usable: u64, temporary: bool, rose: bool) {
    // SAFETY: the header is mapped.
    let epoch = unsafe { (*lane.header).epoch };
    if sites::owner(site) == lane.index {
        // SAFETY: the site is the lane's, and the lane is this thread's.
        unsafe { sites::freed(site, usable, epoch, temporary, rose) };
    } else {
        sites::freed_remotely(site, usable, epoch);
    }
}

#[inline(always)]
fn count_free(lane: &mut LaneState, usable: u64) {
    // SAFETY: the lane's own record.
    unsafe {
        let record = &mut *lane.record;
        record.frees_here += 1;
        record.freed_here_bytes += usable;
        record.freed_classes[size_class(usable)] += 1;
    }
}

#[cold]
fn unmatched(lane: &LaneState) {
    // SAFETY: the header is mapped; the field is only used atomically.
    unsafe {
        AtomicU64::from_ptr(&raw mut (*lane.header).unmatched_frees).fetch_add(1, Relaxed);
    }
}

/// A block freed while the thread is in the recorder: by a signal handler, or by the allocator's
/// own operator delete. If it was recorded it is charged like somebody else's, which needs nothing
/// of the lane.
#[cold]
#[inline(never)]
pub fn freed_nested(block: *mut u8, usable: impl Fn() -> u64) {
    let p = process();
    if p.shadow.load(Relaxed).is_null() || p.header().is_null() {
        return;
    }
    let site = shadow::take(block);
    if site != 0 {
        // SAFETY: the header is mapped while the shadow is.
        let epoch = unsafe { (*p.header()).epoch };
        sites::freed_remotely(site, usable(), epoch);
    }
}

/// A request failed. It counts there and nowhere else.
#[cold]
#[inline(never)]
pub fn failed(inside: &mut Inside) {
    let entry = inside.entry();
    let lane = inside.lane();
    if lane.mode == Mode::Counters as u32 {
        // SAFETY: the lane's own record.
        unsafe { (*lane.record).failed += 1 };
        return;
    }
    let site = site_here(lane, entry);
    // SAFETY: the lane's own site.
    unsafe {
        let s = sites::at(site);
        (*s).failed = (*s).failed.saturating_add(1);
    }
}

/// A reallocation in progress: the old block is forgotten before the real call, for another thread
/// may get its address at once, and put back if the call fails.
pub struct Moving {
    block: *mut u8,
    usable: u64,
    site: u32,
}

impl Moving {
    #[inline(always)]
    pub fn begin(inside: &mut Inside, block: *mut u8, usable: u64) -> Moving {
        let counters = inside.lane().mode == Mode::Counters as u32;
        let site = if counters { 0 } else { shadow::take(block) };
        Moving { block, usable, site }
    }

    /// It failed: the old block is as it was.
    pub fn failed(self, inside: &mut Inside) {
        if self.site != 0 {
            shadow::put(self.block, self.site);
        }
        failed(inside);
    }

    /// It was a request for nothing, and the old block was freed.
    pub fn freed(self, inside: &mut Inside) {
        let lane = inside.lane();
        self.release_old(lane);
    }

    /// It succeeded: one allocation here, one free of the old block. Moved: both were live for a
    /// moment. In place: only the difference ever was.
    #[inline(always)]
    pub fn done(self, inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
        let entry = inside.entry();
        let lane = inside.lane();
        let counters = lane.mode == Mode::Counters as u32;
        let known = counters || self.site != 0;
        let site = if counters { 0 } else { site_here(lane, entry) };
        if !counters && !shadow::put(block, site) {
            process().lost(Loss::NoShadow);
            return self.release_old(lane);
        }
        let in_place = block == self.block && known;
        let change = usable as i64 - if in_place { self.usable as i64 } else { 0 };
        let rose = if change > 0 {
            lane.live.grow(process(), lane.header, change)
        } else {
            lane.live.shrink(process(), lane.header, change)
        };
        if in_place && !counters {
            charge_site(lane, self.site, self.usable, false, rose);
        }
        if counters {
            count_plainly(lane, requested);
            // SAFETY: the lane's own record.
            unsafe { (*lane.record).reallocations += 1 };
        } else {
            // SAFETY: the lane's own site; the header is mapped.
            unsafe {
                sites::allocated(site, requested, usable, (*lane.header).epoch, rose);
                (*sites::at(site)).reallocations += 1;
            }
        }
        lane.last_block = core::ptr::null_mut();
        count(lane, requested, usable);
        if in_place {
            count_free(lane, self.usable);
        } else {
            self.release_old(lane);
        }
    }

    fn release_old(self, lane: &mut LaneState) {
        let counters = lane.mode == Mode::Counters as u32;
        if counters {
            lane.live.shrink(process(), lane.header, -(self.usable as i64));
        } else if self.site == 0 {
            return unmatched(lane);
        } else {
            charge_free(lane, self.site, self.usable, false);
        }
        count_free(lane, self.usable);
    }
}

/// A reallocation by a signal handler or the allocator itself, in the middle of another event:
/// nothing is recorded of the new block, and the old one, if it was recorded, counts as freed.
pub struct MovingNested {
    block: *mut u8,
    usable: u64,
    site: u32,
}

impl MovingNested {
    pub fn begin(block: *mut u8, usable: impl Fn(*mut u8) -> u64) -> MovingNested {
        let ready = !process().shadow.load(Relaxed).is_null();
        let site = if ready { shadow::take(block) } else { 0 };
        let usable = if site != 0 { usable(block) } else { 0 };
        MovingNested { block, usable, site }
    }

    pub fn end(self, block: *mut u8) {
        if self.site == 0 {
            return;
        }
        if block.is_null() {
            shadow::put(self.block, self.site);
        } else {
            // SAFETY: the header is mapped while the shadow is.
            let epoch = unsafe { (*process().header()).epoch };
            sites::freed_remotely(self.site, self.usable, epoch);
        }
    }
}

/// A block was resized in place by a call that has no stack of its own: a reallocation at the
/// block's site.
pub fn resized(inside: &mut Inside, block: *mut u8, requested: u64, before: u64, after: u64) {
    let lane = inside.lane();
    let counters = lane.mode == Mode::Counters as u32;
    let site = if counters { 0 } else { shadow::take(block) };
    if !counters {
        if site == 0 {
            return;
        }
        shadow::put(block, site);
    }
    let change = after as i64 - before as i64;
    let rose = if change > 0 {
        lane.live.grow(process(), lane.header, change)
    } else {
        lane.live.shrink(process(), lane.header, change)
    };
    if counters {
        count_plainly(lane, requested);
        // SAFETY: the lane's own record.
        unsafe { (*lane.record).reallocations += 1 };
    } else if sites::owner(site) == lane.index {
        charge_site(lane, site, before, false, rose);
        // SAFETY: the lane's own site; the header is mapped.
        unsafe {
            sites::allocated(site, requested, after, (*lane.header).epoch, rose);
            (*sites::at(site)).reallocations += 1;
        }
    } else {
        // Another lane's counters are not ours to write: the block becomes one of ours, without a
        // stack.
        let mine = lane.base_site;
        shadow::put(block, mine);
        charge_site(lane, site, before, false, rose);
        // SAFETY: the lane's own site; the header is mapped.
        unsafe {
            sites::allocated(mine, requested, after, (*lane.header).epoch, rose);
            (*sites::at(mine)).reallocations += 1;
        }
    }
    count(lane, requested, after);
    count_free(lane, before);
}
