//! Hooks of jemalloc's extended interface, with their own implementation if there is no jemalloc.

use crate::Preload;
use crate::allocator::{Address, NULL, REAL_FREE, REAL_MALLOC, usable};
use crate::calls::{aligned, allocate, reallocate, release};
use crate::next_symbol::{Real, call_real, real};
use heaptide_format::Call;
use heaptide_recorder::event::inside::{Entry, Inside, here};
use heaptide_recorder::event::step;

/// jemalloc's flags: the logarithm of the alignment in the low bits, then "zeroed".
const MALLOCX_LG_ALIGN: usize = 63;
const MALLOCX_ZERO: usize = 64;

pub extern "C" fn mallocx_body(
    size: usize,
    flags: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(usize, usize) -> Address>,
) -> Address {
    let call = || call_real!(real, (size, flags), mallocx_without(size, flags));
    allocate(Call::Other, size, Entry { sp, bp }, call)
}

/// Implements mallocx for a program that finds our symbol without jemalloc.
fn mallocx_without(size: usize, flags: usize) -> Address {
    let block = match flags & MALLOCX_LG_ALIGN {
        0..=4 => call_real!(REAL_MALLOC, (size), NULL),
        lg => aligned(1 << lg, size),
    };
    if flags & MALLOCX_ZERO != 0 && !block.is_null() {
        // SAFETY: a new block of that many bytes.
        unsafe { core::ptr::write_bytes(block, 0, size) };
    }
    block
}

/// Implements rallocx without jemalloc: a stricter alignment requires a new block.
fn rallocx_without(old: Address, size: usize, flags: usize) -> Address {
    let had = usable(old) as usize;
    let block = mallocx_without(size, flags);
    if !block.is_null() {
        // SAFETY: both blocks have that many bytes, and are distinct.
        unsafe { core::ptr::copy_nonoverlapping(old, block, had.min(size)) };
        call_real!(REAL_FREE, (old), ());
    }
    block
}

pub extern "C" fn rallocx_body(
    old: Address,
    size: usize,
    flags: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(Address, usize, usize) -> Address>,
) -> Address {
    let call = || call_real!(real, (old, size, flags), rallocx_without(old, size, flags));
    reallocate(old, size, Entry { sp, bp }, call)
}

/// Resizes in place if possible, and returns the size: a reallocation of the block's bytes, charged
/// to its site.
#[unsafe(no_mangle)]
pub extern "C" fn xallocx(block: Address, size: usize, extra: usize, flags: i32) -> usize {
    real! {
        static REAL = "xallocx", extern "C" fn(Address, usize, usize, i32) -> usize;
    }
    let call = || call_real!(REAL, (block, size, extra, flags), usable(block) as usize);
    let Some(mut inside) = Inside::enter::<Preload>(here()) else {
        return call();
    };
    let before = usable(block);
    let after = call();
    if after as u64 != before {
        step::on_resize(&mut inside, block, size as u64, before, usable(block));
    }
    after
}

#[unsafe(no_mangle)]
pub extern "C" fn sallocx(block: Address, flags: i32) -> usize {
    real! {
        static REAL = "sallocx", extern "C" fn(Address, i32) -> usize;
    }
    call_real!(REAL, (block, flags), usable(block) as usize)
}

/// dallocx(block, flags) and sdallocx(block, size, flags).
pub extern "C" fn dallocx_body(
    block: Address,
    second: usize,
    third: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(Address, usize, usize)>,
) {
    let without = || call_real!(REAL_FREE, (block), ());
    // An additional third argument is ignored.
    release(block, Entry { sp, bp }, || call_real!(real, (block, second, third), without()));
}
