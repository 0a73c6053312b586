//! Hooks of the C library's functions that allocate and free.

use crate::Preload;
use crate::allocator::{Address, NULL, REAL_FREE, REAL_MALLOC};
use crate::calls::{ENOMEM, aligned, allocate, reallocate, record_allocation, release};
use crate::next_symbol::{Real, call_real, real};
use heaptide_format::Call;
use heaptide_recorder::event::inside::{Entry, Inside};
use heaptide_recorder::event::{lane, threads};
use heaptide_recorder::sys::kernel;

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
    allocate(Call::Malloc, size, Entry { sp, bp }, || call_real!(REAL_MALLOC, (size), NULL))
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
    let Some(mut inside) = Inside::enter::<Preload>(Entry { sp, bp }) else {
        return call();
    };
    inside.lane().gate.note_call(Call::Calloc);
    let block = call();
    if !block.is_null() {
        inside.lane().count_call(Call::Calloc);
    }
    if inside.lane().is_traced() && count > 1 && size > 1 {
        inside.lane().gate.note_element(u32::try_from(size).unwrap_or(0));
    }
    record_allocation(&mut inside, block, count.wrapping_mul(size) as u64);
    inside.lane().gate.note_element(0);
    block
}

pub extern "C" fn memalign_body(
    alignment: usize,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(usize, usize) -> Address>,
) -> Address {
    allocate(Call::Aligned, size, Entry { sp, bp }, || call_real!(real, (alignment, size), NULL))
}

pub extern "C" fn valloc_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(usize) -> Address>,
) -> Address {
    // musl lacks both functions; posix_memalign replaces them.
    let call = || call_real!(real, (size), aligned(kernel::page_bytes() as usize, size));
    allocate(Call::Aligned, size, Entry { sp, bp }, call)
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
    // SAFETY: posix_memalign's contract: if it succeeded, `out` points to the block.
    let block = if status == 0 { unsafe { *out } } else { NULL };
    if status != 0 || !block.is_null() {
        inside.lane().gate.note_call(Call::Aligned);
        if !block.is_null() {
            inside.lane().count_call(Call::Aligned);
        }
        record_allocation(&mut inside, block, size as u64);
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
    // An overflowing size is never 0, so a null result then is a failure.
    let bytes = count.saturating_mul(size);
    // An old libc without reallocarray has realloc. The real function reports an overflow and sets
    // errno; without it, realloc does so for an impossible size.
    let without = || call_real!(REAL_REALLOC, (old, bytes), NULL);
    reallocate(old, bytes, Entry { sp, bp }, || call_real!(real, (old, count, size), without()))
}

pub extern "C" fn free_body(block: Address, sp: u64, bp: u64) {
    let call = || call_real!(REAL_FREE, (block), ());
    if !block.is_null() {
        return release(block, Entry { sp, bp }, call);
    }
    if let Some(lane) = lane::of_thread().or_else(threads::former_lane) {
        lane.count_free_of_nothing();
    }
    call()
}
