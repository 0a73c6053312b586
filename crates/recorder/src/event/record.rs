//! What an allocation, a free and a reallocation do to the counters: the hot path.

use crate::api::{monitors, regions};
use crate::event::lane::{Inside, LaneState};
use crate::event::process::{Process, process};
use crate::event::stacks::{self, OTHER_STACKS};
use crate::event::{fast_path, slow_path, timeline, trace};
use crate::store::shadow;
use crate::store::sites::{self, Dimensions};
use crate::sys::front::Front;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI64, AtomicU64};
use heaptide_format::{Loss, Mode, size_class};
use heaptide_trace::Record;
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
    pub fn registers(self) -> Registers {
        Registers { pc: self.caller(), sp: self.sp + 8, bp: self.bp }
    }
}

/// Frees of at least this many bytes may give memory back to the system, a coroutine's stack
/// perhaps.
pub const MAYBE_UNMAPPED: u64 = 64 << 10;

/// A block of `usable` bytes was allocated for a request of `requested`.
#[inline(always)]
pub fn allocated(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    fast_path::settle(lane);
    if lane.is_attended() {
        return slow_path::allocated(inside, block, requested, usable);
    }
    record_allocated(inside, block, requested, usable);
}

#[inline(always)]
pub fn record_allocated(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    if lane.mode == Mode::Stacks as u32 {
        record_with_stack(inside, block, requested, usable);
    } else if lane.mode == Mode::Scopes as u32 {
        let site = site_of_scope(lane);
        allocated_at(lane, site, block, requested, usable);
    } else {
        lane.live.grow(process(), lane.header, usable as i64);
        count_plainly(lane, requested);
        lane.last_block = block;
        count(lane, requested, usable);
    }
}

/// The same where a threshold may say that this request gets no stack.
pub fn allocated_attended(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let entry = inside.entry();
    let lane = inside.lane();
    match site_of_request(lane, entry, requested) {
        Some(site) => allocated_at(lane, site, block, requested, usable),
        None => record_allocated(inside, block, requested, usable),
    }
}

/// The same for a usual allocation that needs its stack, with an allocator whose headers are
/// trusted.
#[inline(never)]
pub fn allocated_here<F: Front>(inside: &mut Inside, block: *mut u8, requested: u64) {
    record_with_stack(inside, block, requested, F::usable(block));
}

#[inline(always)]
fn record_with_stack(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let entry = inside.entry();
    let lane = inside.lane();
    let site = site_here(lane, entry);
    allocated_at(lane, site, block, requested, usable);
}

#[inline(always)]
fn allocated_at(lane: &mut LaneState, site: u32, block: *mut u8, requested: u64, usable: u64) {
    let p = process();
    match fast_path::find_word(lane, block) {
        Some(word) => word.store(site, Relaxed),
        None if p.shadow.put(block, site) => {}
        None => return p.lost(Loss::NoShadow),
    }
    let rose = lane.live.grow(p, lane.header, usable as i64);
    // SAFETY: the site is the lane's, and the lane is this thread's; the header is mapped.
    unsafe { sites::allocated(site, requested, usable, (*lane.header).epoch, rose) };
    lane.last_block = block;
    count(lane, requested, usable);
    if lane.is_traced() {
        trace::allocated(lane, block, (site, requested, usable), false);
    }
}

/// The site of the calling stack; the stackless one if that cannot be stored.
#[inline(always)]
fn site_here(lane: &mut LaneState, entry: Entry) -> u32 {
    let node = stacks::capture(lane, entry.registers());
    let site = sites::of_node(lane, node);
    or_base(lane, site)
}

#[inline(always)]
fn site_of_scope(lane: &mut LaneState) -> u32 {
    let site = sites::of_scope(lane);
    or_base(lane, site)
}

#[inline(always)]
fn or_base(lane: &LaneState, site: u32) -> u32 {
    if site == 0 {
        process().lost(Loss::NoSite);
        return lane.base_site;
    }
    site
}

/// The site for a request in the mode; none where there are no sites.
#[inline(always)]
fn site_of_request(lane: &mut LaneState, entry: Entry, requested: u64) -> Option<u32> {
    let site = site_of_mode(lane, entry, requested)?;
    Some(if lane.is_by_size() { of_size(lane, site, requested) } else { site })
}

/// The site of one size of a site's; the latter if it cannot be made.
#[inline(never)]
fn of_size(lane: &mut LaneState, site: u32, requested: u64) -> u32 {
    match sites::of_key(lane, Dimensions::of_site(site).sized(requested)) {
        0 => {
            process().lost(Loss::NoSite);
            site
        }
        sized => sized,
    }
}

/// The site of a stack or scope in the mode, whatever the size.
#[inline(always)]
fn site_of_mode(lane: &mut LaneState, entry: Entry, requested: u64) -> Option<u32> {
    if lane.mode == Mode::Counters as u32 {
        return None;
    }
    if lane.mode == Mode::Scopes as u32 {
        return Some(site_of_scope(lane));
    }
    match slow_path::gap(lane, requested) {
        Some(gap) => {
            let node = stacks::gap(lane, gap);
            let site = sites::of_node(lane, node);
            Some(or_base(lane, site))
        }
        None => Some(site_here(lane, entry)),
    }
}

/// The stack-tree node of the caller of an interface function; 0 in modes without stacks.
pub fn node_here(inside: &mut Inside) -> u32 {
    let entry = inside.entry();
    let lane = inside.lane();
    if lane.mode != Mode::Stacks as u32 {
        return 0;
    }
    stacks::capture(lane, entry.registers())
}

#[inline(always)]
fn count(lane: &mut LaneState, requested: u64, usable: u64) {
    // SAFETY: the lane's own record.
    let record = unsafe { &mut *lane.record };
    // Classes first: of an event that a kill cuts short, the bytes that sites have and lanes lack
    // tell the class.
    fast_path::add(&mut record.requested_classes[size_class(requested)], 1);
    fast_path::add(&mut record.usable_classes[size_class(usable)], 1);
    fast_path::add(&mut record.requested_bytes, requested);
    fast_path::add(&mut record.usable_bytes, usable);
    let allocated = record.usable_bytes;
    if allocated >= lane.next_sample {
        timeline::sample(lane);
    }
}

#[inline(always)]
fn count_plainly(lane: &mut LaneState, requested: u64) {
    // SAFETY: the lane's own record.
    let record = unsafe { &mut *lane.record };
    record.largest_bytes = record.largest_bytes.max(requested);
}

/// A block of `usable` bytes is about to be freed.
#[inline(never)]
pub fn freed(inside: &mut Inside, block: *mut u8, usable: u64) {
    if inside.lane().is_attended() {
        return slow_path::freed(inside, block, usable);
    }
    record_freed(inside.lane(), block, usable);
}

/// False if the block was not known.
#[inline(always)]
pub fn record_freed(lane: &mut LaneState, block: *mut u8, usable: u64) -> bool {
    let temporary = lane.last_block == block;
    if temporary {
        lane.last_block = core::ptr::null_mut();
    }
    if lane.mode == Mode::Counters as u32 {
        lane.live.shrink(process(), lane.header, -(usable as i64));
        // SAFETY: the lane's own record.
        unsafe { (*lane.record).temporary += temporary as u64 };
    } else {
        let site = fast_path::find_word(lane, block).map_or(0, shadow::take_word);
        if site == 0 {
            unmatched(lane);
            return false;
        }
        if lane.is_traced() {
            trace::freed(lane, block);
        }
        charge_free(lane, block, site, usable, temporary);
    }
    count_free(lane, usable);
    true
}

/// Charges a free to the site that allocated, and takes it off live.
#[inline(always)]
fn charge_free(lane: &mut LaneState, block: *mut u8, site: u32, usable: u64, temporary: bool) {
    let rose = lane.live.shrink(process(), lane.header, -(usable as i64));
    charge_site(lane, block, site, usable, temporary, rose);
    if usable >= MAYBE_UNMAPPED && OTHER_STACKS.load(Relaxed) {
        process().generation.fetch_add(1, Relaxed);
    }
}

/// `rose`: the change that the free is part of made a new peak.
#[inline(always)]
fn charge_site(
    lane: &LaneState,
    block: *mut u8,
    site: u32,
    usable: u64,
    temporary: bool,
    rose: bool,
) {
    let owner = sites::owner_word(site);
    if owner & sites::LABELLED != 0 {
        regions::block_ended(block, site, lane.index);
    }
    // SAFETY: the header is mapped.
    let epoch = unsafe { (*lane.header).epoch };
    if owner & !sites::LABELLED == lane.index {
        // SAFETY: the site is the lane's, and the lane is this thread's.
        unsafe { sites::freed(site, usable, epoch, temporary, rose) };
    } else {
        sites::freed_remotely(site, 1, usable, epoch);
    }
}

/// The ledger of whoever frees: of the scope that the thread is in, or of the lane alone.
#[inline(always)]
fn count_free(lane: &mut LaneState, usable: u64) {
    // SAFETY: the lane's own records.
    unsafe {
        (*lane.record).freed_classes[size_class(usable)] += 1;
        if lane.mode == Mode::Counters as u32 {
            (*lane.record).freed_here_bytes += usable;
        } else {
            (*lane.scope).frees_here += 1;
            (*lane.scope).freed_here_bytes += usable;
        }
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
    if !p.shadow.is_made() || p.header().is_null() {
        return;
    }
    let site = p.shadow.take(block);
    if site != 0 {
        trace::tell_of_nobody(p, &Record::Freed { address: block as u64 });
        charge_nested(p, block, site, usable());
    }
}

/// Charges a free that no lane counts; the process does, for its sums and its live bytes.
fn charge_nested(p: &Process, block: *mut u8, site: u32, usable: u64) {
    if sites::is_labelled(site) {
        regions::block_ended(block, site, regions::NOBODY);
    }
    p.nested_frees.fetch_add(1, Relaxed);
    p.nested_bytes.fetch_add(usable, Relaxed);
    // SAFETY: the header is mapped while the shadow is; the field is only used atomically.
    unsafe {
        let published = &raw mut (*p.header()).published_live;
        AtomicI64::from_ptr(published).fetch_sub(usable as i64, Relaxed);
        sites::freed_remotely(site, 1, usable, (*p.header()).epoch);
    }
}

/// A request failed. It counts there and nowhere else.
#[cold]
#[inline(never)]
pub fn failed(inside: &mut Inside) {
    let entry = inside.entry();
    let lane = inside.lane();
    if lane.is_attended() && !slow_path::failed(lane) {
        return;
    }
    // SAFETY: the lane's own record.
    unsafe { (*lane.record).failed += 1 };
    if let Some(site) = site_of_mode(lane, entry, 0) {
        // SAFETY: the lane's own site.
        unsafe {
            let s = sites::at(site);
            (*s).failed = (*s).failed.saturating_add(1);
        }
        trace::tell(lane, &Record::Failed { site });
    }
}

/// A reallocation in progress: the old block is forgotten before the real call, for another thread
/// may get its address at once, and put back if the call fails.
pub struct Moving {
    pub block: *mut u8,
    pub usable: u64,
    site: u32,
}

impl Moving {
    #[inline(always)]
    pub fn begin(inside: &mut Inside, block: *mut u8, usable: u64) -> Moving {
        if inside.lane().has_monitors() {
            monitors::moving(inside.lane(), block);
        }
        let counters = inside.lane().mode == Mode::Counters as u32;
        let site = if counters { 0 } else { process().shadow.take(block) };
        if site != 0 && inside.lane().is_traced() {
            trace::stands_here(inside);
            trace::moving(inside.lane(), block);
        }
        Moving { block, usable, site }
    }

    /// It failed: the old block is as it was.
    pub fn failed(self, inside: &mut Inside) {
        if self.site != 0 {
            process().shadow.put(self.block, self.site);
            trace::tell(inside.lane(), &Record::StillThere);
        }
        failed(inside);
        monitors::moved(inside.lane());
    }

    /// It was a request for nothing, and the old block was freed.
    pub fn freed(self, inside: &mut Inside) {
        if inside.lane().is_attended() {
            return slow_path::released(inside, self);
        }
        self.release_old(inside.lane());
        monitors::moved(inside.lane());
    }

    /// It succeeded: one allocation here, one free of the old block. Moved: both were live for a
    /// moment. In place: only the difference ever was.
    #[inline(always)]
    pub fn done(self, inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
        if inside.lane().is_attended() {
            return slow_path::reallocated(inside, self, block, requested, usable);
        }
        self.record(inside, block, requested, usable);
        monitors::moved(inside.lane());
    }

    /// Whether the old block was one that is recorded.
    pub fn is_known(&self, lane: &LaneState) -> bool {
        lane.mode == Mode::Counters as u32 || self.site != 0
    }

    pub fn record(self, inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
        let entry = inside.entry();
        let lane = inside.lane();
        let p = process();
        let site = site_of_request(lane, entry, requested);
        if let Some(site) = site
            && !p.shadow.put(block, site)
        {
            p.lost(Loss::NoShadow);
            return self.release_old(lane);
        }
        let in_place = block == self.block && self.is_known(lane);
        let change = usable as i64 - if in_place { self.usable as i64 } else { 0 };
        let rose = if change > 0 {
            lane.live.grow(p, lane.header, change)
        } else {
            lane.live.shrink(p, lane.header, change)
        };
        if in_place && site.is_some() {
            charge_site(lane, self.block, self.site, self.usable, false, rose);
        }
        // SAFETY: the lane's own record.
        unsafe { (*lane.record).reallocations += 1 };
        match site {
            // SAFETY: the lane's own site; the header is mapped.
            Some(site) => unsafe {
                sites::allocated(site, requested, usable, (*lane.header).epoch, rose);
                (*sites::at(site)).reallocations += 1;
            },
            None => count_plainly(lane, requested),
        }
        lane.last_block = core::ptr::null_mut();
        count(lane, requested, usable);
        if let Some(site) = site.filter(|_| lane.is_traced()) {
            trace::allocated(lane, block, (site, requested, usable), true);
        }
        if in_place {
            count_free(lane, self.usable);
        } else {
            self.charge_old(lane);
        }
    }

    /// The old block is gone.
    pub fn release_old(self, lane: &mut LaneState) {
        if self.site != 0 {
            trace::tell(lane, &Record::Released);
        }
        self.charge_old(lane);
    }

    fn charge_old(self, lane: &mut LaneState) {
        if lane.mode == Mode::Counters as u32 {
            lane.live.shrink(process(), lane.header, -(self.usable as i64));
        } else if self.site == 0 {
            return unmatched(lane);
        } else {
            charge_free(lane, self.block, self.site, self.usable, false);
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
        let shadow = &process().shadow;
        let site = if shadow.is_made() { shadow.take(block) } else { 0 };
        let usable = if site != 0 { usable(block) } else { 0 };
        MovingNested { block, usable, site }
    }

    pub fn end(self, block: *mut u8) {
        if self.site == 0 {
            return;
        }
        if block.is_null() {
            process().shadow.put(self.block, self.site);
        } else {
            let freed = Record::Freed { address: self.block as u64 };
            trace::tell_of_nobody(process(), &freed);
            charge_nested(process(), self.block, self.site, self.usable);
        }
    }
}

/// A block was resized in place by a call that has no stack of its own: a reallocation at the
/// block's site, or where another lane's counters are not ours to write, at ours without a stack.
pub fn resized(inside: &mut Inside, block: *mut u8, requested: u64, before: u64, after: u64) {
    let lane = inside.lane();
    let p = process();
    let counters = lane.mode == Mode::Counters as u32;
    let site = if counters { 0 } else { p.shadow.take(block) };
    if !counters && site == 0 {
        return;
    }
    let change = after as i64 - before as i64;
    let rose = if change > 0 {
        lane.live.grow(p, lane.header, change)
    } else {
        lane.live.shrink(p, lane.header, change)
    };
    // SAFETY: the lane's own record.
    unsafe { (*lane.record).reallocations += 1 };
    if counters {
        count_plainly(lane, requested);
    } else {
        let mine = !sites::is_labelled(site) && sites::owner(site) == lane.index;
        let now = if mine { site } else { lane.base_site };
        let now = if lane.is_by_size() { of_size(lane, now, requested) } else { now };
        p.shadow.put(block, now);
        charge_site(lane, block, site, before, false, rose);
        // SAFETY: the lane's own site; the header is mapped.
        unsafe {
            sites::allocated(now, requested, after, (*lane.header).epoch, rose);
            (*sites::at(now)).reallocations += 1;
        }
        lane.last_block = core::ptr::null_mut();
        if lane.is_traced() {
            trace::moving(lane, block);
            trace::allocated(lane, block, (now, requested, after), true);
        }
    }
    count(lane, requested, after);
    count_free(lane, before);
    if lane.is_attended() {
        slow_path::resized(lane, block, before, requested, after);
    }
}
