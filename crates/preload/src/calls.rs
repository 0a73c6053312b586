//! The steps of allocating and freeing calls: enter, real call, record; or for a free, record, real
//! call. Nested calls are forwarded uncounted, so that the outermost operation is one event.

use crate::Preload;
use crate::allocator::{Address, NULL, is_no_block, usable, usable_new};
use crate::next_symbol::{call_real, real};
use heaptide_format::Call;
use heaptide_recorder::event::inside::{Entry, Inside};
use heaptide_recorder::event::record::{self, Moving};
use heaptide_recorder::event::step;
use heaptide_recorder::sys::tls::tls;

real! {
    static REAL_POSIX_MEMALIGN = "posix_memalign",
        extern "C" fn(*mut Address, usize, usize) -> i32;
    static REAL_NEW = "_Znwm", ();
    static REAL_NEW_ARRAY = "_Znam", ();
    static REAL_NEW_ALIGNED = "_ZnwmSt11align_val_t", ();
    static REAL_NEW_ARRAY_ALIGNED = "_ZnamSt11align_val_t", ();
}

/// Out of memory.
pub const ENOMEM: i32 = 12;

/// An allocation: enter, call, record.
#[inline(always)]
pub fn allocate(kind: Call, requested: usize, entry: Entry, call: impl Fn() -> Address) -> Address {
    allocate_or(kind, requested, entry, &call, &call)
}

/// Like `allocate`, with a different function for a nested call.
#[inline(always)]
pub fn allocate_or(
    kind: Call,
    requested: usize,
    entry: Entry,
    call: impl FnOnce() -> Address,
    nested: impl FnOnce() -> Address,
) -> Address {
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return nested();
    };
    if kind != Call::Malloc {
        inside.lane().gate.note_call(kind);
    }
    let block = call();
    if kind != Call::Malloc && !block.is_null() {
        inside.lane().count_call(kind);
    }
    record_allocation(&mut inside, block, requested as u64);
    block
}

/// Records the result of the real function for a request; null means that it failed.
#[inline(always)]
pub fn record_allocation(inside: &mut Inside, block: Address, requested: u64) {
    if block.is_null() {
        if is_retry(inside.entry()) {
            inside.lane().gate.take_call();
        } else {
            step::on_failed_alloc(inside);
        }
        return;
    }
    step::on_alloc::<Preload>(inside, block, requested);
}

/// A reallocation: enter, remove the old block, call, record.
#[inline(always)]
pub fn reallocate(old: Address, size: usize, entry: Entry, call: impl Fn() -> Address) -> Address {
    if old.is_null() {
        return allocate(Call::Realloc, size, entry, call);
    }
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return reallocate_nested(old, call);
    };
    let moving = Moving::begin(&mut inside, old, usable(old));
    let block = call();
    if !block.is_null() {
        step::on_realloc(&mut inside, moving, block, size as u64, usable_new(block, size as u64));
    } else if size == 0 {
        step::on_realloc_to_nothing(&mut inside, moving);
    } else {
        step::on_failed_realloc(&mut inside, moving);
    }
    block
}

/// A reallocation in a signal handler or in the allocator itself: the new block is not recorded,
/// the old one ends.
#[cold]
fn reallocate_nested(old: Address, call: impl FnOnce() -> Address) -> Address {
    let moving = record::MovingNested::begin(old, usable);
    let block = call();
    moving.end(block);
    block
}

/// A free: enter, record, call.
#[inline(always)]
pub fn release(block: Address, entry: Entry, call: impl FnOnce()) {
    if block.is_null() {
        return;
    }
    match Inside::enter::<Preload>(entry) {
        Some(inside) => release_inside(inside, block),
        None => record::count_nested_free(block, || usable(block)),
    }
    call();
}

/// A free by a function of the allocator that may call another one, which is no event then.
pub fn release_within(block: Address, entry: Entry, call: impl FnOnce()) {
    if block.is_null() {
        return call();
    }
    let mut inside = Inside::enter::<Preload>(entry);
    match &mut inside {
        Some(inside) => record_release(inside, block),
        None => record::count_nested_free(block, || usable(block)),
    }
    call();
}

/// Records that a block is about to be freed.
#[inline(always)]
pub fn release_inside(mut inside: Inside, block: Address) {
    record_release(&mut inside, block);
}

#[inline(always)]
fn record_release(inside: &mut Inside, block: Address) {
    step::on_free::<Preload>(inside, block, || (!is_no_block(block)).then(|| usable(block)));
}

/// Allocates a block of this alignment with posix_memalign.
pub fn aligned(alignment: usize, size: usize) -> Address {
    let mut block = NULL;
    let status = call_real!(REAL_POSIX_MEMALIGN, (&mut block, alignment, size), ENOMEM);
    if status == 0 { block } else { NULL }
}

/// Returns whether the caller is a real throwing operator new, which only runs after a counted
/// failure, to retry and then throw; or that form of new[], which has called that of new through
/// our hook, by a jump.
#[cold]
fn is_retry(entry: Entry) -> bool {
    let forms = [&REAL_NEW, &REAL_NEW_ARRAY, &REAL_NEW_ALIGNED, &REAL_NEW_ARRAY_ALIGNED];
    let again = tls().retry_sp.take() == entry.sp;
    again || forms.iter().any(|form| form.holds(entry.caller()))
}

/// The real operator new[] retries after a failure by calling operator new with this stack pointer.
pub fn expect_retry(sp: u64) {
    tls().retry_sp.set(sp);
}
