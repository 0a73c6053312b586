//! The steps of an event: what happens after an allocation, before a free, and after a
//! reallocation. The fast path counts most events; others take the slow path if the thread or the
//! process is observed, or change the counters directly.

use crate::event::fast_path::{self, Done};
use crate::event::inside::Inside;
use crate::event::record::{self, Moving};
use crate::event::{accounts, monitors, python_interpreter, slow_path, trace};
use crate::sys::front::Front;
use heaptide_format::Call;

/// Records a block that was just allocated for a request of this many bytes.
#[inline(always)]
pub fn on_alloc<F: Front>(inside: &mut Inside, block: *mut u8, requested: u64) {
    inside.lane().renew_limits();
    match fast_path::try_alloc::<F>(inside.lane(), block, requested) {
        Done::Counted => {}
        Done::NotifyMonitors => notify_alloc::<F>(inside, block, requested),
        Done::WantsStack(seen) => fast_path::alloc_in_stack::<F>(inside, block, requested, seen),
        Done::NotTaken => on_uncommon_alloc::<F>(inside, block, requested),
    }
}

#[inline(never)]
fn notify_alloc<F: Front>(inside: &mut Inside, block: *mut u8, requested: u64) {
    monitors::notify_alloc(inside.lane(), block, requested, F::usable_of_new(block, requested));
}

#[inline(never)]
fn on_uncommon_alloc<F: Front>(inside: &mut Inside, block: *mut u8, requested: u64) {
    let usable = F::usable_of_new(block, requested);
    // The requested size overflowed, but the allocator returned a block.
    count_or_observe(inside, block, requested.min(usable), usable);
}

/// Records a block of `usable` bytes that was just allocated, and may not be one of the process's
/// allocator.
#[inline(always)]
pub fn on_alloc_of_size(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    match fast_path::try_alloc_of_size(inside.lane(), block, requested, usable) {
        Done::Counted => {}
        Done::NotifyMonitors => monitors::notify_alloc(inside.lane(), block, requested, usable),
        Done::WantsStack(seen) => {
            fast_path::alloc_of_size_in_stack(inside, block, (requested, usable), seen)
        }
        Done::NotTaken => on_uncommon_alloc_of_size(inside, block, requested, usable),
    }
}

#[inline(never)]
fn on_uncommon_alloc_of_size(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    inside.lane().renew_limits();
    count_or_observe(inside, block, requested, usable);
}

/// Counts an allocation, or passes it to the slow path.
#[inline(always)]
fn count_or_observe(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    lane.choose_path();
    if lane.is_attended() {
        return slow_path::alloc_observed(inside, block, requested, usable);
    }
    record::count_alloc(inside, block, requested, usable);
}

/// Records that a block is about to be freed. `usable` returns its bytes, or none if it is not a
/// block, so that the allocator is about to abort the program.
#[inline(always)]
pub fn on_free<F: Front>(
    inside: &mut Inside,
    block: *mut u8,
    usable: impl FnOnce() -> Option<u64>,
) {
    inside.lane().renew_limits();
    match fast_path::try_free::<F>(inside.lane(), block) {
        Done::Counted => {}
        Done::NotifyMonitors => notify_free(inside, block, usable()),
        Done::NotTaken | Done::WantsStack(_) => {
            if let Some(usable) = usable() {
                on_uncommon_free(inside, block, usable);
            }
        }
    }
}

#[inline(never)]
fn notify_free(inside: &mut Inside, block: *mut u8, usable: Option<u64>) {
    if let Some(usable) = usable {
        monitors::notify_free(inside.lane(), block, usable);
    }
}

/// Records that a block of `usable` bytes, which may not be one of the process's allocator, is
/// about to be freed.
#[inline(always)]
pub fn on_free_of_size(inside: &mut Inside, block: *mut u8, usable: u64) {
    match fast_path::try_free_of_size(inside.lane(), block, usable) {
        Done::Counted => {}
        Done::NotifyMonitors => monitors::notify_free(inside.lane(), block, usable),
        Done::NotTaken | Done::WantsStack(_) => {
            inside.lane().renew_limits();
            on_uncommon_free(inside, block, usable);
        }
    }
}

/// Records a free that did not take the fast path.
#[inline(never)]
fn on_uncommon_free(inside: &mut Inside, block: *mut u8, usable: u64) {
    trace::capture_free(inside);
    python_interpreter::await_readers();
    accounts::take_before_fall(usable);
    if inside.lane().is_attended() {
        return slow_path::free_observed(inside, block, usable);
    }
    record::count_free(inside.lane(), block, usable);
}

/// Records a request that failed.
#[cold]
#[inline(never)]
pub fn on_failed_alloc(inside: &mut Inside) {
    let lane = inside.lane();
    let call = lane.gate.take_call();
    if lane.is_attended() && !slow_path::failure_observed(lane) {
        return;
    }
    record::count_failure(inside, call);
}

/// Records a reallocation that failed: the old block is unchanged.
pub fn on_failed_realloc(inside: &mut Inside, moving: Moving) {
    moving.take_back(inside.lane());
    inside.lane().gate.note_call(Call::Realloc);
    on_failed_alloc(inside);
    monitors::end_move(inside.lane());
}

/// Records a reallocation to no bytes, which freed the old block.
pub fn on_realloc_to_nothing(inside: &mut Inside, moving: Moving) {
    if inside.lane().is_attended() {
        return slow_path::realloc_to_nothing_observed(inside, moving);
    }
    moving.release_old(inside.lane());
    monitors::end_move(inside.lane());
}

/// Records a reallocation that succeeded: an allocation here and a free of the old block. If the
/// block moved, both were live for a moment; if it was resized in place, only the difference was
/// added.
#[inline(always)]
pub fn on_realloc(
    inside: &mut Inside,
    moving: Moving,
    block: *mut u8,
    requested: u64,
    usable: u64,
) {
    if inside.lane().is_attended() {
        return slow_path::realloc_observed(inside, moving, block, requested, usable);
    }
    moving.record(inside, block, requested, usable);
    monitors::end_move(inside.lane());
}

/// Records a resize in place by a call that has no stack of its own.
pub fn on_resize(inside: &mut Inside, block: *mut u8, requested: u64, before: u64, after: u64) {
    let lane = inside.lane();
    if record::count_resize(lane, block, requested, before, after) && lane.is_attended() {
        slow_path::resize_observed(lane, block, before, requested, after);
    }
}
