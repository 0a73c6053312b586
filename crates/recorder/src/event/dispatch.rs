//! Dispatch of events that did not take the fast path: to the slow path if the thread or the
//! process is observed, otherwise directly to the counters.

use crate::event::inside::Inside;
use crate::event::record::{self, Moving};
use crate::event::{accounts, monitors, python_interpreter, slow_path};
use heaptide_format::Call;

/// Records that a block of `usable` bytes was allocated for a request of `requested`.
#[inline(always)]
pub fn allocated(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    lane.choose_path();
    if lane.is_attended() {
        return slow_path::allocated(inside, block, requested, usable);
    }
    record::record_allocated(inside, block, requested, usable);
}

/// Records that a block of `usable` bytes is about to be freed.
#[inline(never)]
pub fn freed(inside: &mut Inside, block: *mut u8, usable: u64) {
    python_interpreter::await_readers();
    accounts::take_before_fall(usable);
    if inside.lane().is_attended() {
        return slow_path::freed(inside, block, usable);
    }
    record::record_freed(inside.lane(), block, usable);
}

/// Records a request that failed.
#[cold]
#[inline(never)]
pub fn failed(inside: &mut Inside) {
    let lane = inside.lane();
    let call = lane.gate.take_call();
    if lane.is_attended() && !slow_path::failed(lane) {
        return;
    }
    record::record_failed(inside, call);
}

/// Records a reallocation that failed: the old block is unchanged.
pub fn reallocation_failed(inside: &mut Inside, moving: Moving) {
    moving.take_back(inside.lane());
    inside.lane().gate.note_call(Call::Realloc);
    failed(inside);
    monitors::end_move(inside.lane());
}

/// Records a reallocation to no bytes, which freed the old block.
pub fn reallocation_freed(inside: &mut Inside, moving: Moving) {
    if inside.lane().is_attended() {
        return slow_path::released(inside, moving);
    }
    moving.release_old(inside.lane());
    monitors::end_move(inside.lane());
}

/// Records a reallocation that succeeded: an allocation here and a free of the old block. If the
/// block moved, both were live for a moment; if it was resized in place, only the difference was
/// added.
#[inline(always)]
pub fn reallocated(
    inside: &mut Inside,
    moving: Moving,
    block: *mut u8,
    requested: u64,
    usable: u64,
) {
    if inside.lane().is_attended() {
        return slow_path::reallocated(inside, moving, block, requested, usable);
    }
    moving.record(inside, block, requested, usable);
    monitors::end_move(inside.lane());
}

/// Records a resize in place by a call that has no stack of its own.
pub fn resized(inside: &mut Inside, block: *mut u8, requested: u64, before: u64, after: u64) {
    let lane = inside.lane();
    if record::record_resized(lane, block, requested, before, after) && lane.is_attended() {
        slow_path::resized(lane, block, before, requested, after);
    }
}
