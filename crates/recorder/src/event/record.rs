//! The changes of counters by an allocation, a free and a reallocation.

use crate::event::inside::{Entry, Inside};
use crate::event::lane::{LaneState, NOBODY};
use crate::event::own_mapping::is_own_mapping;
use crate::event::process::process;
use crate::event::stacks::{self, OTHER_STACKS, Same};
use crate::event::{
    monitors, python_codes, python_interpreter, regions, sampling, timeline, trace,
};
use crate::store::ids::{NodeId, SiteId};
use crate::store::sampled_blocks::sampled_blocks;
use crate::store::sampled_sites::By;
use crate::store::shadow;
use crate::store::shared::{LABELLED, store};
use crate::store::sites::{self, Dimensions};
use crate::sys::front::MAYBE_UNMAPPED;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::Word;
use heaptide_format::{CONTROL_FEWER, CONTROL_THRESHOLD, Call, Gap, Loss, Mode, size_class};
use heaptide_trace::Record;

/// Counts an allocation.
#[inline(always)]
pub fn count_alloc(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    if lane.mode == Mode::Stacks as u32 {
        count_alloc_in_stack(inside, block, requested, usable);
    } else if lane.mode == Mode::Scopes as u32 {
        let site = site_of_scope(lane);
        count_alloc_at(lane, site, block, requested, usable);
    } else {
        count_alloc_in_lane(inside, block, Call::Malloc, requested, usable);
    }
}

/// Counts an allocation likewise where the lane alone counts all blocks.
#[inline(always)]
fn count_alloc_in_lane(
    inside: &mut Inside,
    block: *mut u8,
    call: Call,
    requested: u64,
    usable: u64,
) {
    let entry = inside.entry();
    let lane = inside.lane();
    let rose = lane.grow(usable as i64);
    count_plainly(lane, requested);
    lane.last_block = block;
    count(lane, requested, usable);
    if sampling::is_sampled(lane) {
        sample(lane, entry, block, call, (requested, usable), rose);
    }
    sample_if_due(lane);
}

/// Counts a sampled block at its site. `rose`: it made a new peak.
#[cold]
#[inline(never)]
fn sample(
    lane: &mut LaneState,
    entry: Entry,
    block: *mut u8,
    call: Call,
    (requested, usable): (u64, u64),
    rose: bool,
) -> SiteId {
    if python_interpreter::is_met() {
        // Most blocks begin unseen in this mode, and any of them may be at the address of a former
        // code object.
        python_codes::forget_all();
    }
    let stack = match gap(lane, requested) {
        Some(gap) => stacks::gap(lane, gap),
        None => stacks::capture(lane, entry.registers()),
    };
    let site = site_of_node(lane, stack);
    let site =
        if lane.is_by_request() { of_request(lane, site, call, Some(requested)) } else { site };
    sampling::note(lane, block, site, (requested, usable), rose);
    site
}

/// Counts an allocation where a threshold, sizes or calls may determine its site.
pub fn count_alloc_by_request(
    inside: &mut Inside,
    block: *mut u8,
    call: Call,
    requested: u64,
    usable: u64,
) {
    let entry = inside.entry();
    let lane = inside.lane();
    if lane.is_counted_by_lane() {
        return count_alloc_in_lane(inside, block, call, requested, usable);
    }
    note_block(block, requested);
    let site = site_of_request(lane, entry, call, requested);
    count_alloc_at(lane, site, block, requested, usable);
}

/// Returns the site of a new block's stack, of which `seen` is known.
#[inline(always)]
pub fn site_of_stack(inside: &mut Inside, block: *mut u8, requested: u64, seen: Same) -> SiteId {
    let at = inside.entry().registers();
    let lane = inside.lane();
    let node = match seen {
        Same::Node(node) => NodeId::new(node),
        seen => stacks::changed(lane, at, seen),
    };
    note_block(block, requested);
    let node = stacks::with_python(lane, node);
    site_of_node(lane, node)
}

/// Notes a new block, which may have the address of a former code object of Python.
#[inline(always)]
pub fn note_block(block: *mut u8, requested: u64) {
    if python_interpreter::is_met() {
        python_codes::block_begins(block, requested);
    }
}

#[inline(always)]
fn count_alloc_in_stack(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let entry = inside.entry();
    let lane = inside.lane();
    note_block(block, requested);
    let site = site_here(lane, entry);
    count_alloc_at(lane, site, block, requested, usable);
}

/// Counts an allocation at a site.
#[inline(always)]
pub fn count_alloc_at(
    lane: &mut LaneState,
    site: SiteId,
    block: *mut u8,
    requested: u64,
    usable: u64,
) {
    let p = store();
    match lane.leaves.find(&p.shadow, block) {
        Some(word) => word.set(site.number()),
        None if p.shadow.put(block, site.number()) => {}
        None => return p.lost(Loss::NoShadow),
    }
    let rose = lane.grow(usable as i64);
    sites::add_alloc(site.record(), requested, usable, lane.header.epoch.get(), rose);
    lane.last_block = block;
    count(lane, requested, usable);
    sample_if_due(lane);
    if lane.is_traced() {
        trace::write_alloc(lane, block, (site, requested, usable), [false, false]);
    }
}

/// Returns the site of the calling stack, or a site without a stack if there is no room for it.
#[inline(always)]
fn site_here(lane: &mut LaneState, entry: Entry) -> SiteId {
    let node = stacks::capture(lane, entry.registers());
    site_of_node(lane, node)
}

/// Returns the site of a node, or a site without a stack if there is no room for it.
#[inline(always)]
fn site_of_node(lane: &mut LaneState, node: NodeId) -> SiteId {
    let site = sites::of_node(&mut lane.place, node);
    or_base(lane, site)
}

#[inline(always)]
fn site_of_scope(lane: &mut LaneState) -> SiteId {
    let site = sites::of_scope(&mut lane.place);
    or_base(lane, site)
}

#[inline(always)]
fn or_base(lane: &LaneState, site: SiteId) -> SiteId {
    if site.is_none() {
        store().lost(Loss::NoSite);
        return lane.place.unstored_site;
    }
    site
}

/// Returns the site for a request, where sites count all blocks.
#[inline(always)]
fn site_of_request(lane: &mut LaneState, entry: Entry, call: Call, requested: u64) -> SiteId {
    let site = site_of_mode(lane, entry, requested);
    if lane.is_by_request() { of_request(lane, site, call, Some(requested)) } else { site }
}

/// Returns the site that is restricted to one call and, if known, one size of `site`, if these are
/// recorded; `site` itself if there is no room.
#[inline(never)]
fn of_request(lane: &mut LaneState, site: SiteId, call: Call, requested: Option<u64>) -> SiteId {
    let mut of = Dimensions::of_site(site);
    if let Some(requested) = requested.filter(|_| lane.is_by_size()) {
        of = of.sized(requested);
    }
    if lane.is_by_call() {
        of = of.called(call);
    }
    let own = sites::of_key(&mut lane.place, of);
    if own.is_none() {
        store().lost(Loss::NoSite);
        return site;
    }
    own
}

/// Returns the site of a stack or scope in the mode, regardless of call and size; none in mode
/// counters.
#[inline(always)]
fn site_of_mode(lane: &mut LaneState, entry: Entry, requested: u64) -> SiteId {
    if lane.mode == Mode::Counters as u32 {
        return SiteId::NONE;
    }
    if lane.mode == Mode::Scopes as u32 {
        return site_of_scope(lane);
    }
    match gap(lane, requested) {
        Some(gap) => {
            let node = stacks::gap(lane, gap);
            site_of_node(lane, node)
        }
        None => site_here(lane, entry),
    }
}

/// Returns the replacement for the stack of a request on the other side of the threshold.
#[inline(always)]
fn gap(lane: &LaneState, requested: u64) -> Option<Gap> {
    let (control, _) = lane.words();
    if control & CONTROL_THRESHOLD == 0 {
        return None;
    }
    let threshold = lane.header.threshold_bytes.get();
    match (control & CONTROL_FEWER != 0, requested < threshold) {
        (false, true) => Some(Gap::BelowThreshold),
        (true, false) => Some(Gap::AboveThreshold),
        _ => None,
    }
}

/// Returns the stack-tree node of the caller of an interface function; none in modes without
/// stacks.
pub fn node_here(inside: &mut Inside) -> NodeId {
    let entry = inside.entry();
    let lane = inside.lane();
    if lane.mode != Mode::Stacks as u32 {
        return NodeId::NONE; // only for pools, which do not exist in mode sampled
    }
    stacks::capture(lane, entry.registers())
}

#[inline(always)]
fn count(lane: &mut LaneState, requested: u64, usable: u64) {
    // Classes first: if a kill interrupts the event, a reader derives the class from the bytes that
    // sites have and lanes lack.
    let record = lane.record;
    record.requested_classes[size_class(requested)].add(1);
    record.usable_classes[size_class(usable)].add(1);
    record.requested_bytes.add(requested);
    record.usable_bytes.add(usable);
}

/// Takes a sample if one is due. Not called between the allocation and the free of one event, where
/// live bytes would be those of neither state.
#[inline(always)]
fn sample_if_due(lane: &mut LaneState) {
    let allocated = lane.allocated();
    if !lane.live.may_allocate(allocated) {
        lane.live.set_limits(allocated);
        if lane.live.is_sample_due(allocated) {
            timeline::sample(lane);
        }
    }
}

#[inline(always)]
fn count_plainly(lane: &mut LaneState, requested: u64) {
    let largest = &lane.record.largest_bytes;
    largest.set(largest.get().max(requested));
}

/// Counts a free. Returns false if the block was not known.
#[inline(always)]
pub fn count_free(lane: &mut LaneState, block: *mut u8, usable: u64) -> bool {
    let temporary = lane.last_block == block;
    if temporary {
        lane.last_block = core::ptr::null_mut();
    }
    if lane.is_counted_by_lane() {
        let rose = lane.shrink(-(usable as i64));
        lane.record.temporary.add(temporary as u64);
        let site = sampling::take(lane, block);
        charge_sampled(lane, block, site, usable, temporary, rose);
    } else {
        let word = lane.leaves.find(&store().shadow, block);
        let site = SiteId::new(word.map_or(0, shadow::take_word));
        if site.is_none() {
            unmatched(lane);
            return false;
        }
        if lane.is_traced() {
            trace::write_free(lane, block, site, usable);
        }
        charge_free(lane, block, site, usable, temporary);
    }
    add_free(lane, usable);
    // A thread that has only freed is below any limit of allocated bytes.
    if lane.live.is_sample_due(lane.allocated()) {
        timeline::sample(lane);
    }
    true
}

/// Charges the free of a block to its site if it is sampled.
#[inline(always)]
fn charge_sampled(
    lane: &LaneState,
    block: *mut u8,
    site: SiteId,
    usable: u64,
    temporary: bool,
    rose: bool,
) {
    if !site.is_none() {
        charge_sampled_site(lane, block, site, usable, temporary, rose);
    }
    stack_may_be_gone(usable);
}

/// Charges a free that lanes do not count to the site of a sampled block.
pub fn charge_uncounted(lane: &LaneState, block: *mut u8, site: SiteId, usable: u64) {
    if !site.is_none() {
        charge_sampled_site(lane, block, site, usable, false, false);
    }
}

/// Charges the free of a sampled block to its site. `rose`: the change that the free is part of
/// made a new peak.
#[cold]
#[inline(never)]
fn charge_sampled_site(
    lane: &LaneState,
    block: *mut u8,
    site: SiteId,
    usable: u64,
    temporary: bool,
    rose: bool,
) {
    let owner = site.owner_word();
    if owner & LABELLED != 0 {
        regions::block_ended(block, site, lane.index());
    }
    let by = match (owner & !LABELLED == lane.index(), temporary) {
        (true, true) => By::OwnAtOnce,
        (true, false) => By::Own,
        (false, _) => By::Other,
    };
    sampling::charge(site, usable, by, rose);
}

/// Invalidates kept stacks if a block of this size, which is being freed, may be a coroutine's
/// stack.
#[inline(always)]
fn stack_may_be_gone(usable: u64) {
    if usable >= MAYBE_UNMAPPED && OTHER_STACKS.load(Relaxed) {
        store().generation.fetch_add(1, Relaxed);
    }
}

/// Charges a free to the site that allocated the block, and subtracts it from live bytes.
#[inline(always)]
fn charge_free(lane: &mut LaneState, block: *mut u8, site: SiteId, usable: u64, temporary: bool) {
    let rose = lane.shrink(-(usable as i64));
    charge_site(lane, block, site, usable, temporary, rose);
    stack_may_be_gone(usable);
}

/// Charges a free to a site. `rose`: the change that the free is part of made a new peak.
#[inline(always)]
fn charge_site(
    lane: &LaneState,
    block: *mut u8,
    site: SiteId,
    usable: u64,
    temporary: bool,
    rose: bool,
) {
    let owner = site.owner_word();
    if owner & LABELLED != 0 {
        regions::block_ended(block, site, lane.index());
    }
    let epoch = lane.header.epoch.get();
    if owner & !LABELLED == lane.index() {
        sites::add_free(site.record(), usable, epoch, temporary, rose);
    } else {
        sites::add_remote_free(site.record(), 1, usable, epoch);
    }
}

/// Adds a free to the current scope, or to the lane alone if that counts all blocks.
#[inline(always)]
fn add_free(lane: &mut LaneState, usable: u64) {
    lane.record.freed_classes[size_class(usable)].add(1);
    lane.live.count_free(usable);
    if !lane.live.may_free(lane.live.freed()) {
        lane.live.set_limits(lane.allocated());
    }
    if lane.is_counted_by_lane() {
        lane.record.freed_here_bytes.add(usable);
    } else {
        lane.place.scope.frees_here.add(1);
        lane.place.scope.freed_here_bytes.add(usable);
    }
}

#[cold]
fn unmatched(lane: &LaneState) {
    lane.header.unmatched_frees.fetch_add(1, Relaxed);
}

/// Counts a block that is freed while the thread is inside the recorder: by a signal handler, or by
/// the allocator's own operator delete. If it was recorded, it is charged like a free by another
/// thread, which does not access the lane.
#[cold]
#[inline(never)]
pub fn count_nested_free(block: *mut u8, usable: impl Fn() -> u64) {
    let site = take_nested(block);
    if !site.is_none() {
        charge_nested(block, site, usable());
    }
}

/// Removes a block that is freed inside the recorder. Returns its site; none if it was not
/// recorded.
fn take_nested(block: *mut u8) -> SiteId {
    let p = store();
    let site = match sampled_blocks().take(block) {
        0 if p.shadow.is_made() && p.has_profile() => p.shadow.take(block),
        site => site,
    };
    SiteId::new(site)
}

/// Charges a free that no lane counts. Where sites count all blocks, the process counts it for its
/// sums and live bytes.
fn charge_nested(block: *mut u8, site: SiteId, usable: u64) {
    let p = process();
    let header = store().header();
    trace::write_nested_free(block, site, usable);
    if site.is_labelled() {
        regions::block_ended(block, site, NOBODY);
    }
    if !store().shadow.is_made() {
        return sampling::charge(site, usable, By::Other, false);
    }
    p.nested_frees.fetch_add(1, Relaxed);
    p.nested_bytes.fetch_add(usable, Relaxed);
    header.published_live.fetch_sub(usable as i64, Relaxed);
    sites::add_remote_free(site.record(), 1, usable, header.epoch.get());
}

/// Counts a request that failed, in counters of their own.
#[cold]
#[inline(never)]
pub fn count_failure(inside: &mut Inside, call: Call) {
    let entry = inside.entry();
    let lane = inside.lane();
    lane.record.failed.add(1);
    let site = site_of_mode(lane, entry, 0);
    if !site.is_none() {
        // Without a size, since there is no block.
        let site = if lane.is_by_call() { of_request(lane, site, call, None) } else { site };
        let failed = &site.record().failed;
        failed.set(failed.get().saturating_add(1));
        trace::write_record(lane, &Record::Failed { site: site.number() });
    }
}

/// A reallocation in progress. The old block is removed before the real call, since another thread
/// may get its address at once, and put back if the call fails.
pub struct Moving {
    pub block: *mut u8,
    pub usable: u64,
    site: SiteId,
    is_own_mapping: bool,
}

impl Moving {
    #[inline(always)]
    pub fn begin(inside: &mut Inside, block: *mut u8, usable: u64) -> Moving {
        if inside.lane().has_monitors() {
            monitors::begin_move(inside.lane(), block);
        }
        let lane = inside.lane();
        let site = if lane.is_counted_by_lane() {
            sampling::take(lane, block)
        } else {
            SiteId::new(store().shadow.take(block))
        };
        if !site.is_none() && inside.lane().is_traced() {
            trace::capture_free(inside);
            trace::write_move(inside.lane(), block, site, usable);
        }
        Moving { block, usable, site, is_own_mapping: is_own_mapping(block, usable) }
    }

    /// Returns whether the old block was recorded.
    pub fn is_known(&self, lane: &LaneState) -> bool {
        lane.is_counted_by_lane() || !self.site.is_none()
    }

    /// Returns whether the new block takes the place of the old one, so that never both were live:
    /// it has the same address, or the old one's pages.
    pub fn is_in_place(&self, block: *mut u8, usable: u64) -> bool {
        block == self.block || self.is_remapped(block, usable)
    }

    fn is_remapped(&self, block: *mut u8, usable: u64) -> bool {
        self.is_own_mapping && block != self.block && is_own_mapping(block, usable)
    }

    pub fn record(self, inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
        let entry = inside.entry();
        let lane = inside.lane();
        if lane.is_counted_by_lane() {
            return self.record_in_lane(inside, block, requested, usable);
        }
        let p = store();
        let site = site_of_request(lane, entry, Call::Realloc, requested);
        if !p.shadow.put(block, site.number()) {
            p.lost(Loss::NoShadow);
            return self.release_old(lane);
        }
        let in_place = self.is_known(lane) && self.is_in_place(block, usable);
        let change = usable as i64 - if in_place { self.usable as i64 } else { 0 };
        let rose = if change > 0 { lane.grow(change) } else { lane.shrink(change) };
        if in_place {
            charge_site(lane, self.block, self.site, self.usable, false, rose);
        }
        lane.record.reallocations.add(1);
        let epoch = lane.header.epoch.get();
        sites::add_alloc(site.record(), requested, usable, epoch, rose);
        site.record().reallocations.add(1);
        lane.last_block = block;
        count(lane, requested, usable);
        if lane.is_traced() {
            let remapped = self.is_remapped(block, usable);
            trace::write_alloc(lane, block, (site, requested, usable), [true, remapped]);
        }
        if in_place {
            lane.count_moved(self.usable);
            add_free(lane, self.usable);
        } else {
            self.charge_old(lane);
        }
        sample_if_due(lane);
    }

    /// Does the same where the lane alone counts all blocks.
    fn record_in_lane(self, inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
        let entry = inside.entry();
        let lane = inside.lane();
        let is_in_place = self.is_in_place(block, usable);
        let change = usable as i64 - if is_in_place { self.usable as i64 } else { 0 };
        let rose = if change > 0 { lane.grow(change) } else { lane.shrink(change) };
        if is_in_place {
            charge_sampled(lane, self.block, self.site, self.usable, false, rose);
        }
        lane.record.reallocations.add(1);
        count_plainly(lane, requested);
        lane.last_block = block;
        count(lane, requested, usable);
        if sampling::is_sampled(lane) {
            let site = sample(lane, entry, block, Call::Realloc, (requested, usable), rose);
            sampling::note_reallocated(site, usable);
        }
        if is_in_place {
            lane.count_moved(self.usable);
            add_free(lane, self.usable);
        } else {
            self.charge_old(lane);
        }
        sample_if_due(lane);
    }

    /// Puts the old block back after the reallocation failed.
    pub fn take_back(self, lane: &mut LaneState) {
        if lane.is_counted_by_lane() {
            sampling::put_back(self.block, self.site);
        } else if !self.site.is_none() {
            store().shadow.put(self.block, self.site.number());
            trace::write_record(lane, &Record::StillThere);
        }
    }

    /// Counts the free of the old block.
    pub fn release_old(self, lane: &mut LaneState) {
        if !self.site.is_none() {
            trace::write_record(lane, &Record::Released);
        }
        self.charge_old(lane);
        sample_if_due(lane);
    }

    /// Counts the free of the old block where no lane counts it.
    pub fn release_uncounted(self, lane: &LaneState) {
        charge_uncounted(lane, self.block, self.site, self.usable);
    }

    fn charge_old(self, lane: &mut LaneState) {
        if lane.is_counted_by_lane() {
            let rose = lane.shrink(-(self.usable as i64));
            charge_sampled(lane, self.block, self.site, self.usable, false, rose);
        } else if self.site.is_none() {
            return unmatched(lane);
        } else {
            charge_free(lane, self.block, self.site, self.usable, false);
        }
        lane.count_moved(self.usable);
        add_free(lane, self.usable);
    }
}

/// A reallocation by a signal handler or the allocator itself, in the middle of another event. The
/// new block is not recorded; the old one, if it was recorded, counts as freed.
pub struct MovingNested {
    block: *mut u8,
    usable: u64,
    site: SiteId,
}

impl MovingNested {
    pub fn begin(block: *mut u8, usable: impl Fn(*mut u8) -> u64) -> MovingNested {
        let site = take_nested(block);
        let usable = if site.is_none() { 0 } else { usable(block) };
        MovingNested { block, usable, site }
    }

    pub fn end(self, block: *mut u8) {
        if self.site.is_none() {
            return;
        }
        if !block.is_null() {
            charge_nested(self.block, self.site, self.usable);
        } else if store().shadow.is_made() {
            store().shadow.put(self.block, self.site.number());
        } else {
            sampling::put_back(self.block, self.site);
        }
    }
}

/// Records that a block was resized in place by a call that has no stack of its own. It counts as a
/// reallocation at the block's site, or, if that belongs to another lane, at this lane's site
/// without a stack. Returns false if the block is not known.
pub fn count_resize(
    lane: &mut LaneState,
    block: *mut u8,
    requested: u64,
    before: u64,
    after: u64,
) -> bool {
    if lane.is_counted_by_lane() {
        count_resize_in_lane(lane, block, requested, before, after);
        return true;
    }
    let p = store();
    let site = SiteId::new(p.shadow.take(block));
    if site.is_none() {
        return false;
    }
    let change = after as i64 - before as i64;
    let rose = if change > 0 { lane.grow(change) } else { lane.shrink(change) };
    lane.record.reallocations.add(1);
    let now = site_of_resized(lane, site, requested);
    p.shadow.put(block, now.number());
    charge_site(lane, block, site, before, false, rose);
    sites::add_alloc(now.record(), requested, after, lane.header.epoch.get(), rose);
    now.record().reallocations.add(1);
    lane.last_block = block;
    if lane.is_traced() {
        trace::write_move(lane, block, site, before);
        trace::write_alloc(lane, block, (now, requested, after), [true, false]);
    }
    count(lane, requested, after);
    lane.count_moved(before);
    add_free(lane, before);
    sample_if_due(lane);
    true
}

/// Returns the site of a block after it was resized; `site`, which may be none, is the one before.
fn site_of_resized(lane: &mut LaneState, site: SiteId, requested: u64) -> SiteId {
    let mine = !site.is_none() && site.owner_word() == lane.index();
    let now = if mine { site } else { lane.place.base_site };
    if lane.is_by_request() { of_request(lane, now, Call::Realloc, Some(requested)) } else { now }
}

/// Does the same where the lane alone counts all blocks.
fn count_resize_in_lane(
    lane: &mut LaneState,
    block: *mut u8,
    requested: u64,
    before: u64,
    after: u64,
) {
    let site = sampling::take(lane, block);
    let change = after as i64 - before as i64;
    let rose = if change > 0 { lane.grow(change) } else { lane.shrink(change) };
    lane.record.reallocations.add(1);
    count_plainly(lane, requested);
    charge_sampled(lane, block, site, before, false, rose);
    lane.last_block = block;
    count(lane, requested, after);
    if sampling::is_sampled(lane) {
        let now = site_of_resized(lane, site, requested);
        sampling::note(lane, block, now, (requested, after), rose);
        sampling::note_reallocated(now, after);
    }
    lane.count_moved(before);
    add_free(lane, before);
    sample_if_due(lane);
}
