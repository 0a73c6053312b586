//! Hooks of C++ operators new and delete: the outermost call is the event, regardless of nested
//! ones.

use crate::allocator::{Address, NULL, REAL_FREE, REAL_MALLOC};
use crate::attachment;
use crate::calls::{allocate, allocate_or, expect_retry, release, release_within};
use crate::next_symbol::{Real, call_real, real};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::Call;
use heaptide_recorder::event::inside::Entry;

/// Operator new. That of a C++ runtime calls malloc and, if that fails, the new-handler, and
/// throws: so this calls malloc, and leaves the rest to the real one by returning null. Operators
/// of other allocators are called in their nothrow form, which returns null on failure. A nested
/// call is left to the real function, because a nothrow form may call the throwing one.
pub extern "C" fn new_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<()>,
) -> Address {
    real! {
        static NOTHROW = "_ZnwmRKSt9nothrow_t", extern "C" fn(usize, *const u8) -> Address;
    }
    static IS_ABSENT: AtomicBool = AtomicBool::new(false);
    if !real.is_runtime() && is_absent(&NOTHROW, &IS_ABSENT) {
        real.get();
        return NULL;
    }
    let call = || {
        if real.is_runtime() {
            call_real!(REAL_MALLOC, (size.max(1)), NULL)
        } else {
            call_real!(NOTHROW, (size, (&raw const TAG)), NULL)
        }
    };
    allocate_or(Call::New, size, Entry { sp, bp }, call, || {
        // The jump that follows needs it.
        real.get();
        NULL
    })
}

/// Operator new[]: its real form calls operator new, which is our hook, by a jump. A failure counts
/// once.
pub extern "C" fn new_array_body(
    size: usize,
    b: usize,
    c: usize,
    sp: u64,
    bp: u64,
    real: &Real<()>,
) -> Address {
    or_expect_retry(new_body(size, b, c, sp, bp, real), sp)
}

/// Aligned operator new[], in the same way.
pub extern "C" fn new_aligned_array_body(
    size: usize,
    alignment: usize,
    c: usize,
    sp: u64,
    bp: u64,
    real: &Real<()>,
) -> Address {
    or_expect_retry(new_aligned_body(size, alignment, c, sp, bp, real), sp)
}

#[inline(always)]
fn or_expect_retry(block: Address, sp: u64) -> Address {
    if block.is_null() {
        expect_retry(sp);
    }
    block
}

/// Returns whether a static program has no such nothrow form, because nothing in it calls one. Then
/// the event is that of the function with which its throwing form allocates.
fn is_absent<T>(nothrow: &Real<T>, known: &AtomicBool) -> bool {
    if !attachment::is_inserted() {
        return false;
    }
    if !known.load(Relaxed) && nothrow.get() == 0 {
        known.store(true, Relaxed);
    }
    known.load(Relaxed)
}

/// The nothrow tag: an empty object.
static TAG: u8 = 0;

pub extern "C" fn new_aligned_body(
    size: usize,
    alignment: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real<()>,
) -> Address {
    real! {
        static NOTHROW = "_ZnwmSt11align_val_tRKSt9nothrow_t",
            extern "C" fn(usize, usize, *const u8) -> Address;
    }
    static IS_ABSENT: AtomicBool = AtomicBool::new(false);
    real.get();
    if is_absent(&NOTHROW, &IS_ABSENT) {
        return NULL;
    }
    let call = || call_real!(NOTHROW, (size, alignment, (&raw const TAG)), NULL);
    allocate_or(Call::New, size, Entry { sp, bp }, call, || {
        // The jump that follows needs it.
        real.get();
        NULL
    })
}

/// The nothrow forms: two or three arguments, null on failure.
pub extern "C" fn new_nothrow_body(
    size: usize,
    second: usize,
    third: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(usize, usize, usize) -> Address>,
) -> Address {
    // An additional third argument is ignored.
    allocate(Call::New, size, Entry { sp, bp }, || call_real!(real, (size, second, third), NULL))
}

/// Operator delete in all forms. That of a C++ runtime calls free.
pub extern "C" fn delete_body(
    block: Address,
    second: usize,
    third: usize,
    sp: u64,
    bp: u64,
    real: &Real<extern "C" fn(Address, usize, usize)>,
) {
    let entry = Entry { sp, bp };
    match real.function() {
        // Additional arguments are ignored.
        Some(delete) if !real.is_runtime() => {
            release_within(block, entry, || delete(block, second, third));
        }
        _ => release(block, entry, || call_real!(REAL_FREE, (block), ())),
    }
}
