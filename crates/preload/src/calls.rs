//! The shapes of the calls that allocate and free: enter, real call, record; or record, real call,
//! for a free. Nested calls go through uncounted, so that the outermost operation is one event.

use crate::allocator::{Address, NULL, usable, usable_new};
use crate::front::Preload;
use crate::next_symbol::{call_real, real};
use heaptide_recorder::event::dispatch;
use heaptide_recorder::event::fast_path::{self, Done};
use heaptide_recorder::event::inside::{Entry, Inside};
use heaptide_recorder::event::monitors;
use heaptide_recorder::event::record::{self, Moving};
use heaptide_recorder::event::trace;
use heaptide_recorder::sys::tls::tls;

real! {
    static REAL_POSIX_MEMALIGN = "posix_memalign",
        extern "C" fn(*mut Address, usize, usize) -> i32;
    static REAL_NEW = "_Znwm", ();
    static REAL_NEW_ARRAY = "_Znam", ();
    static REAL_NEW_ALIGNED = "_ZnwmSt11align_val_t", ();
    static REAL_NEW_ARRAY_ALIGNED = "_ZnamSt11align_val_t", ();
}

/// There is no memory.
pub const ENOMEM: i32 = 12;

/// The common shape: enter, call, record.
#[inline(always)]
pub fn allocate(requested: usize, entry: Entry, call: impl Fn() -> Address) -> Address {
    allocate_or(requested, entry, &call, &call)
}

/// The same with another way for a nested call.
#[inline(always)]
pub fn allocate_or(
    requested: usize,
    entry: Entry,
    call: impl FnOnce() -> Address,
    nested: impl FnOnce() -> Address,
) -> Address {
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return nested();
    };
    let block = call();
    if block.is_null() {
        if !is_retry(inside.entry()) {
            dispatch::failed(&mut inside);
        }
    } else {
        let requested = requested as u64;
        match fast_path::allocated::<Preload>(inside.lane(), block, requested) {
            Done::Counted => {}
            Done::NotifyMonitors => {
                monitors::notify_allocated::<Preload>(inside.lane(), block, requested)
            }
            Done::WantsStack => record::allocated_here::<Preload>(&mut inside, block, requested),
            Done::NotTaken => allocated(&mut inside, block, requested),
        }
    }
    block
}

#[inline(never)]
pub fn allocated(inside: &mut Inside, block: Address, requested: u64) {
    let usable = usable_new(block, requested);
    // A size that overflowed in an allocator that gives a block all the same.
    dispatch::allocated(inside, block, requested.min(usable), usable);
}

/// The shape of a reallocation: enter, forget the old block, call, record.
#[inline(always)]
pub fn reallocate(old: Address, size: usize, entry: Entry, call: impl Fn() -> Address) -> Address {
    if old.is_null() {
        return allocate(size, entry, call);
    }
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return reallocate_nested(old, call);
    };
    let moving = Moving::begin(&mut inside, old, usable(old));
    let block = call();
    if !block.is_null() {
        dispatch::reallocated(
            &mut inside,
            moving,
            block,
            size as u64,
            usable_new(block, size as u64),
        );
    } else if size == 0 {
        dispatch::reallocation_freed(&mut inside, moving);
    } else {
        dispatch::reallocation_failed(&mut inside, moving);
    }
    block
}

/// By a signal handler or the allocator itself: the new block is nobody's, the old one is settled.
#[cold]
fn reallocate_nested(old: Address, call: impl FnOnce() -> Address) -> Address {
    let moving = record::MovingNested::begin(old, usable);
    let block = call();
    moving.end(block);
    block
}

/// The shape of a free: enter, record, call.
#[inline(always)]
pub fn release(block: Address, entry: Entry, call: impl FnOnce()) {
    if block.is_null() {
        return;
    }
    if let Some(freeing) = fast_path::freeing(block)
        && fast_path::free::<Preload>(freeing, block)
    {
        return call();
    }
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        record::freed_nested(block, || usable(block));
        return call();
    };
    trace::capture_free(&mut inside);
    dispatch::freed(&mut inside, block, usable(block));
    call();
}

/// A block of this alignment, by posix_memalign.
pub fn aligned(alignment: usize, size: usize) -> Address {
    let mut block = NULL;
    let status = call_real!(REAL_POSIX_MEMALIGN, (&mut block, alignment, size), ENOMEM);
    if status == 0 { block } else { NULL }
}

/// Whether the caller is a real throwing operator new: it only runs after a failure that was
/// counted, to ask again and then throw. Or that form of new[] has asked the one of new in our
/// place, by a jump.
#[cold]
fn is_retry(entry: Entry) -> bool {
    let forms = [&REAL_NEW, &REAL_NEW_ARRAY, &REAL_NEW_ALIGNED, &REAL_NEW_ARRAY_ALIGNED];
    let again = tls().retry_sp.take() == entry.sp;
    again || forms.iter().any(|form| form.holds(entry.caller()))
}
