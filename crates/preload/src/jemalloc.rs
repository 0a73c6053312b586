//! jemalloc's extended interface, recorded where it exists, and what it means where it does not.

use crate::allocator::{Address, NULL, REAL_FREE, REAL_MALLOC, call_real, usable};
use crate::calls::{aligned, allocate, reallocate, release};
use crate::front::Preload;
use crate::next_symbol::Real;
use heaptide_recorder::event::dispatch;
use heaptide_recorder::event::inside::{Entry, Inside, here};

/// jemalloc's flags: the logarithm of the alignment in the low bits, then "zeroed".
const MALLOCX_LG_ALIGN: usize = 63;
const MALLOCX_ZERO: usize = 64;

pub unsafe extern "C" fn mallocx_body(
    size: usize,
    flags: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: mallocx's contract.
    let call = || unsafe {
        if real.get() == 0 {
            return mallocx_without(size, flags);
        }
        call_real!(real, extern "C" fn(usize, usize) -> Address, (size, flags), NULL)
    };
    allocate(size, Entry { sp, bp }, call)
}

/// A program that finds our symbol where there is no jemalloc gets what the call means.
///
/// # Safety
/// mallocx's contract.
unsafe fn mallocx_without(size: usize, flags: usize) -> Address {
    // SAFETY: as the caller promises.
    unsafe {
        let block = match flags & MALLOCX_LG_ALIGN {
            0..=4 => call_real!(REAL_MALLOC, extern "C" fn(usize) -> Address, (size), NULL),
            lg => aligned(1 << lg, size),
        };
        if flags & MALLOCX_ZERO != 0 && !block.is_null() {
            core::ptr::write_bytes(block, 0, size);
        }
        block
    }
}

pub unsafe extern "C" fn rallocx_body(
    old: Address,
    size: usize,
    flags: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    type F = extern "C" fn(Address, usize, usize) -> Address;
    // SAFETY: rallocx's contract; without jemalloc a stricter alignment takes a new block.
    let call = || unsafe {
        if real.get() != 0 {
            return call_real!(real, F, (old, size, flags), NULL);
        }
        let had = usable(old) as usize;
        let block = mallocx_without(size, flags);
        if !block.is_null() {
            core::ptr::copy_nonoverlapping(old, block, had.min(size));
            call_real!(REAL_FREE, extern "C" fn(Address), (old), ());
        }
        block
    };
    reallocate(old, size, Entry { sp, bp }, call)
}

/// Resizes in place or not at all, and says the size: a reallocation of the block's bytes, charged
/// to its site.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xallocx(block: Address, size: usize, extra: usize, flags: i32) -> usize {
    static REAL: Real = Real::new(b"xallocx\0");
    type F = extern "C" fn(Address, usize, usize, i32) -> usize;
    // SAFETY: xallocx's contract.
    unsafe {
        let Some(mut inside) = Inside::enter::<Preload>(here()) else {
            return call_real!(REAL, F, (block, size, extra, flags), usable(block) as usize);
        };
        let before = usable(block);
        let after = call_real!(REAL, F, (block, size, extra, flags), before as usize);
        if after as u64 != before {
            dispatch::resized(&mut inside, block, size as u64, before, usable(block));
        }
        after
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sallocx(block: Address, flags: i32) -> usize {
    static REAL: Real = Real::new(b"sallocx\0");
    type F = extern "C" fn(Address, i32) -> usize;
    // SAFETY: sallocx's contract.
    unsafe { call_real!(REAL, F, (block, flags), usable(block) as usize) }
}

/// dallocx(block, flags) and sdallocx(block, size, flags).
pub unsafe extern "C" fn dallocx_body(
    block: Address,
    second: usize,
    third: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) {
    type F = extern "C" fn(Address, usize, usize);
    // SAFETY: the function's contract; a surplus third argument is ignored.
    release(block, Entry { sp, bp }, || unsafe {
        if real.get() == 0 {
            call_real!(REAL_FREE, extern "C" fn(Address), (block), ())
        } else {
            call_real!(real, F, (block, second, third), ())
        }
    });
}
