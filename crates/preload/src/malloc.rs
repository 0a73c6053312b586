//! The functions of the C library that allocate and free.

use crate::allocator::{Address, NULL, REAL_FREE, REAL_MALLOC, call_real, usable};
use crate::calls::{aligned, allocate, allocated, reallocate, release};
use crate::front::Preload;
use crate::next_symbol::Real;
use heaptide_recorder::event::inside::{Entry, Inside, here};
use heaptide_recorder::event::record;
use heaptide_recorder::event::{dispatch, fast_path};

static REAL_REALLOC: Real = Real::new(b"realloc\0");

pub unsafe extern "C" fn malloc_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    _: &Real,
) -> Address {
    // SAFETY: malloc's own contract.
    let call = || unsafe { call_real!(REAL_MALLOC, extern "C" fn(usize) -> Address, (size), NULL) };
    allocate(size, Entry { sp, bp }, call)
}

pub unsafe extern "C" fn calloc_body(
    count: usize,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: calloc's own contract.
    let call =
        || unsafe { call_real!(real, extern "C" fn(usize, usize) -> Address, (count, size), NULL) };
    allocate(count.wrapping_mul(size), Entry { sp, bp }, call)
}

pub unsafe extern "C" fn memalign_body(
    alignment: usize,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: the function's own contract.
    let call = || unsafe {
        call_real!(real, extern "C" fn(usize, usize) -> Address, (alignment, size), NULL)
    };
    allocate(size, Entry { sp, bp }, call)
}

pub unsafe extern "C" fn valloc_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: the function's own contract; musl lacks both, and posix_memalign serves.
    let call = || unsafe {
        if real.get() == 0 {
            return aligned(4096, size);
        }
        call_real!(real, extern "C" fn(usize) -> Address, (size), NULL)
    };
    allocate(size, Entry { sp, bp }, call)
}

pub unsafe extern "C" fn posix_memalign_body(
    out: *mut Address,
    alignment: usize,
    size: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> i32 {
    type F = extern "C" fn(*mut Address, usize, usize) -> i32;
    const ENOMEM: i32 = 12;
    let entry = Entry { sp, bp };
    // SAFETY: posix_memalign's own contract; `out` holds a block only if it succeeds.
    unsafe {
        let Some(mut inside) = Inside::enter::<Preload>(entry) else {
            return call_real!(real, F, (out, alignment, size), ENOMEM);
        };
        let status = call_real!(real, F, (out, alignment, size), ENOMEM);
        if status != 0 {
            dispatch::failed(&mut inside);
        } else if !(*out).is_null() {
            allocated(&mut inside, *out, size as u64);
        }
        status
    }
}

pub unsafe extern "C" fn realloc_body(
    old: Address,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: realloc's own contract.
    let call =
        || unsafe { call_real!(real, extern "C" fn(Address, usize) -> Address, (old, size), NULL) };
    reallocate(old, size, Entry { sp, bp }, call)
}

pub unsafe extern "C" fn reallocarray_body(
    old: Address,
    count: usize,
    size: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    type F = extern "C" fn(Address, usize, usize) -> Address;
    let bytes = count.checked_mul(size);
    // SAFETY: reallocarray's own contract; an old libc without it has realloc. An overflow is the
    // real function's to refuse, with errno set; where there is none, an impossible size has
    // realloc do that.
    let call = || unsafe {
        if real.get() == 0 {
            type R = extern "C" fn(Address, usize) -> Address;
            return call_real!(REAL_REALLOC, R, (old, bytes.unwrap_or(usize::MAX)), NULL);
        }
        call_real!(real, F, (old, count, size), NULL)
    };
    // A size that overflows is never 0, so a null result then is a failure.
    reallocate(old, bytes.unwrap_or(usize::MAX), Entry { sp, bp }, call)
}

pub unsafe extern "C" fn free_body(block: Address) {
    // The recorder is left before the real call, which then is a jump: no free calls another one in
    // front of us for the same block, and if it did, the block is no longer known.
    if fast_path::free::<Preload>(block) {
        // SAFETY: a thread has a lane, so the allocator was found.
        let real: extern "C" fn(Address) = unsafe { core::mem::transmute(REAL_FREE.known()) };
        return real(block);
    }
    // SAFETY: free's own contract.
    unsafe { free_somehow(block) }
}

pub unsafe extern "C" fn free_with_stack(block: Address, sp: u64, bp: u64) {
    // SAFETY: free's own contract.
    let call = || unsafe { call_real!(REAL_FREE, extern "C" fn(Address), (block), ()) };
    if block.is_null() { call() } else { release(block, Entry { sp, bp }, call) }
}

#[inline(never)]
unsafe fn free_somehow(block: Address) {
    freed(block);
    // SAFETY: as the caller promises.
    unsafe { call_real!(REAL_FREE, extern "C" fn(Address), (block), ()) }
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
