//! Events of a process or thread that is more than just recorded: that is off or paused, measures
//! itself, has monitors or a stack threshold, counts by size or by call, or has a request waiting.
//! The hot path looks at two words and comes here only then.

use crate::event::inside::Inside;
use crate::event::lane::LaneState;
use crate::event::process::process;
use crate::event::record::{self, Moving};
use crate::event::{marks, monitors, requests, sampling, thread_measure};
use heaptide_format::{COMMAND_REQUEST, CONTROL_TIMED};

/// Does what a command asked for, and takes a snapshot that is due.
fn attend_request(lane: &mut LaneState) {
    let (control, command) = lane.words();
    if command & COMMAND_REQUEST != 0 {
        requests::answer(lane);
    }
    if control & CONTROL_TIMED != 0 {
        let p = process();
        marks::snapshot_if_due(p.now(), lane.index());
    }
}

#[inline(never)]
pub fn allocated(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    let call = lane.gate.take_call();
    attend_request(lane);
    if lane.is_off() {
        return record::note_block(block, requested);
    }
    record::record_chosen(inside, block, call, requested, usable);
    let lane = inside.lane();
    if lane.is_measured() {
        thread_measure::allocated(requested, usable);
    }
    if lane.has_monitors() {
        monitors::allocated(lane, block, requested, usable);
    }
}

#[inline(never)]
pub fn freed(inside: &mut Inside, block: *mut u8, usable: u64) {
    let lane = inside.lane();
    attend_request(lane);
    // What was allocated while off was not seen; where that is not known, nothing is.
    if lane.is_off() && is_unseen(lane, block) {
        return;
    }
    if record::record_freed(lane, block, usable) {
        notify_freed(lane, block, usable);
    }
}

/// Whether a free while off is of a block that was not seen. Where lanes count all blocks that is
/// not known, and nothing is counted: one that is sampled is then live for good, as in the totals.
fn is_unseen(lane: &LaneState, block: *mut u8) -> bool {
    if lane.is_counted_by_lane() {
        sampling::take(lane, block);
        return true;
    }
    process().shadow.get(block as u64) == 0
}

fn notify_freed(lane: &LaneState, block: *mut u8, usable: u64) {
    if lane.is_measured() {
        thread_measure::freed(usable);
    }
    if lane.has_monitors() {
        monitors::freed(lane, block, usable);
    }
}

/// Whether the failure is to be counted.
pub fn failed(lane: &mut LaneState) -> bool {
    attend_request(lane);
    let on = !lane.is_off();
    if on && lane.is_measured() {
        thread_measure::failed();
    }
    on
}

/// A reallocation that was a free.
#[inline(never)]
pub fn released(inside: &mut Inside, moving: Moving) {
    let lane = inside.lane();
    attend_request(lane);
    let (block, usable, known) = (moving.block, moving.usable, moving.is_known(lane));
    let unseen = lane.is_off() && (lane.is_counted_by_lane() || !known);
    if !unseen {
        moving.release_old(lane);
        if known {
            notify_freed(lane, block, usable);
        }
    }
    monitors::end_move(lane);
}

#[inline(never)]
pub fn reallocated(
    inside: &mut Inside,
    moving: Moving,
    block: *mut u8,
    requested: u64,
    usable: u64,
) {
    if inside.lane().is_off() {
        return released(inside, moving);
    }
    let lane = inside.lane();
    attend_request(lane);
    let (old, before) = (moving.block, moving.usable);
    let known = moving.is_known(lane);
    moving.record(inside, block, requested, usable);
    let lane = inside.lane();
    if lane.is_measured() {
        thread_measure::reallocated(
            block == old && known,
            if known { before } else { 0 },
            requested,
            usable,
        );
    }
    if lane.has_monitors() {
        notify_reallocated(lane, (old, before, known), block, requested, usable);
    }
    monitors::end_move(lane);
}

/// Moved: both blocks were there for a moment. In place: never more than one.
fn notify_reallocated(
    lane: &LaneState,
    (old, before, known): (*mut u8, u64, bool),
    block: *mut u8,
    requested: u64,
    usable: u64,
) {
    if known && old == block {
        monitors::freed(lane, old, before);
    }
    monitors::allocated(lane, block, requested, usable);
    if known && old != block {
        monitors::freed(lane, old, before);
    }
}

pub fn resized(lane: &LaneState, block: *mut u8, before: u64, requested: u64, after: u64) {
    if lane.is_measured() {
        thread_measure::reallocated(true, before, requested, after);
    }
    if lane.has_monitors() {
        notify_reallocated(lane, (block, before, true), block, requested, after);
    }
}
