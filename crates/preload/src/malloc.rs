//! The functions of the C library that allocate and free.

use crate::allocator::{Address, NULL, REAL_FREE, REAL_MALLOC, usable};
use crate::calls::{ENOMEM, aligned, allocate, allocated, reallocate, release};
use crate::front::Preload;
use crate::next_symbol::{Real, call_real, real};
use heaptide_recorder::event::dispatch;
use heaptide_recorder::event::fast_path::{self, Freeing};
use heaptide_recorder::event::inside::{Entry, Inside, here};
use heaptide_recorder::event::record;

real! {
    static REAL_REALLOC = "realloc", extern "C" fn(Address, usize) -> Address;
}

pub extern "C" fn malloc_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    _: &Real<()>,
) -> Address {
    allocate(size, Entry { sp, bp }, || call_real!(REAL_MALLOC, (size), NULL))
}

pub extern "C" fn calloc_body(
    count: usize,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(usize, usize) -> Address>,
) -> Address {
    let call = || call_real!(real, (count, size), NULL);
    allocate(count.wrapping_mul(size), Entry { sp, bp }, call)
}

pub extern "C" fn memalign_body(
    alignment: usize,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(usize, usize) -> Address>,
) -> Address {
    allocate(size, Entry { sp, bp }, || call_real!(real, (alignment, size), NULL))
}

pub extern "C" fn valloc_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(usize) -> Address>,
) -> Address {
    const PAGE_BYTES: usize = 4096;
    // musl lacks both functions, and posix_memalign serves.
    allocate(size, Entry { sp, bp }, || call_real!(real, (size), aligned(PAGE_BYTES, size)))
}

pub extern "C" fn posix_memalign_body(
    out: *mut Address,
    alignment: usize,
    size: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(*mut Address, usize, usize) -> i32>,
) -> i32 {
    let call = || call_real!(real, (out, alignment, size), ENOMEM);
    let Some(mut inside) = Inside::enter::<Preload>(Entry { sp, bp }) else {
        return call();
    };
    let status = call();
    if status != 0 {
        dispatch::failed(&mut inside);
        return status;
    }
    // SAFETY: posix_memalign's contract: it succeeded, so `out` holds a block.
    let block = unsafe { *out };
    if !block.is_null() {
        allocated(&mut inside, block, size as u64);
    }
    status
}

pub extern "C" fn realloc_body(
    old: Address,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(Address, usize) -> Address>,
) -> Address {
    reallocate(old, size, Entry { sp, bp }, || call_real!(real, (old, size), NULL))
}

pub extern "C" fn reallocarray_body(
    old: Address,
    count: usize,
    size: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(Address, usize, usize) -> Address>,
) -> Address {
    // A size that overflows is never 0, so a null result then is a failure.
    let bytes = count.saturating_mul(size);
    // An old libc without reallocarray has realloc. An overflow is the real function's to refuse,
    // with errno set; where there is none, an impossible size has realloc do that.
    let without = || call_real!(REAL_REALLOC, (old, bytes), NULL);
    reallocate(old, bytes, Entry { sp, bp }, || call_real!(real, (old, count, size), without()))
}

/// The recorder is left before the real call, which then is a jump: no free calls another one in
/// front of us for the same block, and if it did, the block is no longer known. What needs more
/// registers is apart.
pub extern "C" fn free_body(block: Address) {
    let Some(freeing) = fast_path::freeing(block) else {
        return free_general(block);
    };
    if !fast_path::is_of_counters(freeing.1) {
        return free_of_site(freeing, block);
    }
    if !fast_path::is_unobserved(freeing.1) {
        return free_observed(freeing, block);
    }
    if fast_path::free_of_counters::<Preload>(freeing, block) {
        return free_real(block);
    }
    free_general(block)
}

#[inline(never)]
fn free_of_site(freeing: Freeing<'_>, block: Address) {
    if !fast_path::is_unobserved(freeing.1) {
        return free_observed(freeing, block);
    }
    if fast_path::free_of_site::<Preload>(freeing, block) {
        return free_real(block);
    }
    free_general(block)
}

#[inline(never)]
fn free_observed(freeing: Freeing<'_>, block: Address) {
    if fast_path::free::<Preload>(freeing, block) {
        return free_real(block);
    }
    free_general(block)
}

/// Frees a block of which the thread's lane knows.
#[inline(always)]
fn free_real(block: Address) {
    // SAFETY: a thread has a lane, so the allocator was found.
    let free = unsafe { REAL_FREE.known() };
    free(block)
}

pub extern "C" fn free_with_stack(block: Address, sp: u64, bp: u64) {
    let call = || call_real!(REAL_FREE, (block), ());
    if block.is_null() { call() } else { release(block, Entry { sp, bp }, call) }
}

#[inline(never)]
fn free_general(block: Address) {
    freed(block);
    call_real!(REAL_FREE, (block), ())
}

#[inline(always)]
fn freed(block: Address) {
    if !block.is_null() {
        match Inside::enter::<Preload>(here()) {
            Some(mut inside) => dispatch::freed(&mut inside, block, usable(block)),
            None => record::freed_nested(block, || usable(block)),
        }
    }
}
