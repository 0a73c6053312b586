//! The slow path: events of a process or thread that is off or paused, measures itself, has
//! monitors or a stack threshold, counts by size or by call, or has a pending request. The fast
//! path checks two words to choose.

use crate::event::inside::Inside;
use crate::event::lane::LaneState;
use crate::event::record::{self, Moving};
use crate::event::{marks, monitors, requests, sampling, thread_measure};
use crate::store::shared::store;
use heaptide_format::{COMMAND_REQUEST, CONTROL_TIMED};

/// Handles a command's request, and takes a snapshot that is due.
fn attend_request(lane: &mut LaneState) {
    let (control, command) = lane.words();
    if command & COMMAND_REQUEST != 0 {
        requests::answer(lane);
    }
    if control & CONTROL_TIMED != 0 {
        let p = store();
        marks::snapshot_if_due(p.now(), lane.index());
    }
}

/// Records a new block.
#[inline(never)]
pub fn alloc_observed(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    let call = lane.gate.take_call();
    attend_request(lane);
    if lane.is_off() {
        return record::note_block(block, requested);
    }
    record::count_alloc_by_request(inside, block, call, requested, usable);
    let lane = inside.lane();
    if lane.is_measured() {
        thread_measure::add_alloc(requested, usable);
    }
    if lane.has_monitors() {
        monitors::notify_alloc(lane, block, requested, usable);
    }
}

/// Records that a block is about to be freed.
#[inline(never)]
pub fn free_observed(inside: &mut Inside, block: *mut u8, usable: u64) {
    let lane = inside.lane();
    attend_request(lane);
    // Blocks allocated while off were not recorded; where that is unknown, nothing is counted.
    if lane.is_off() && is_unseen(lane, block, usable) {
        return;
    }
    if record::count_free(lane, block, usable) {
        notify_freed(lane, block, usable);
    }
}

/// Returns whether a block that is freed while off was not recorded. Where lanes count all blocks
/// that is unknown, and only the site of a sampled block counts the free.
fn is_unseen(lane: &LaneState, block: *mut u8, usable: u64) -> bool {
    if lane.is_counted_by_lane() {
        let site = sampling::take(lane, block);
        record::charge_uncounted(lane, block, site, usable);
        return true;
    }
    store().shadow.get(block as u64) == 0
}

fn notify_freed(lane: &LaneState, block: *mut u8, usable: u64) {
    if lane.is_measured() {
        thread_measure::add_free(usable);
    }
    if lane.has_monitors() {
        monitors::notify_free(lane, block, usable);
    }
}

/// Returns whether the failure is to be counted.
pub fn failure_observed(lane: &mut LaneState) -> bool {
    attend_request(lane);
    let on = !lane.is_off();
    if on && lane.is_measured() {
        thread_measure::add_failure();
    }
    on
}

/// Records a reallocation that only freed the old block.
#[inline(never)]
pub fn realloc_to_nothing_observed(inside: &mut Inside, moving: Moving) {
    let lane = inside.lane();
    attend_request(lane);
    let (block, usable, known) = (moving.block, moving.usable, moving.is_known(lane));
    if lane.is_off() && lane.is_counted_by_lane() {
        moving.release_uncounted(lane);
    } else if !lane.is_off() || known {
        moving.release_old(lane);
        if known {
            notify_freed(lane, block, usable);
        }
    }
    monitors::end_move(lane);
}

/// Records a reallocation that succeeded.
#[inline(never)]
pub fn realloc_observed(
    inside: &mut Inside,
    moving: Moving,
    block: *mut u8,
    requested: u64,
    usable: u64,
) {
    if inside.lane().is_off() {
        return realloc_to_nothing_observed(inside, moving);
    }
    let lane = inside.lane();
    attend_request(lane);
    let (old, before) = (moving.block, moving.usable);
    let known = moving.is_known(lane);
    let in_place = known && moving.is_in_place(block, usable);
    moving.record(inside, block, requested, usable);
    let lane = inside.lane();
    if lane.is_measured() {
        let before = if known { before } else { 0 };
        thread_measure::add_realloc(in_place, before, requested, usable);
    }
    if lane.has_monitors() {
        let old = known.then_some((old, before));
        notify_reallocated(lane, old, in_place, (block, requested, usable));
    }
    monitors::end_move(lane);
}

/// Notifies monitors of a reallocation of the old block, if it was recorded. If the block moved,
/// both were live for a moment; in place, never more than one was.
fn notify_reallocated(
    lane: &LaneState,
    old: Option<(*mut u8, u64)>,
    in_place: bool,
    (block, requested, usable): (*mut u8, u64, u64),
) {
    let (first, last) = if in_place { (old, None) } else { (None, old) };
    if let Some((old, before)) = first {
        monitors::notify_free(lane, old, before);
    }
    monitors::notify_alloc(lane, block, requested, usable);
    if let Some((old, before)) = last {
        monitors::notify_free(lane, old, before);
    }
}

/// Records a resize in place that was counted already.
pub fn resize_observed(lane: &LaneState, block: *mut u8, before: u64, requested: u64, after: u64) {
    if lane.is_measured() {
        thread_measure::add_realloc(true, before, requested, after);
    }
    if lane.has_monitors() {
        notify_reallocated(lane, Some((block, before)), true, (block, requested, after));
    }
}
