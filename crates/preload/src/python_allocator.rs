//! The wrappers around CPython's allocators of objects: pymalloc serves each object as usual, and
//! each object is recorded as a block, of the size that was requested.
//!
//! What pymalloc itself allocates with malloc, for objects of more than 512 bytes and for its
//! tables, is part of the outer event. Its arenas are recorded as mappings. If wrappers are stacked
//! (tracemalloc, the debug hooks), the outermost one records.

use crate::Preload;
use crate::allocator::Address;
use crate::block_sizes::{keep_size, keep_size_in, take_size, take_size_in};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use heaptide_format::{Call, Loss};
use heaptide_recorder::event::inside::{Entry, Inside};
use heaptide_recorder::event::record::{self, Moving, MovingNested};
use heaptide_recorder::event::{marks, search, step};
use heaptide_recorder::store::shared::store;
use heaptide_recorder::sys::{confined, kernel};

/// An allocator as CPython stores it (`PyMemAllocatorEx`): a context and four functions.
pub type Raw = [usize; 5];

/// A [`Slot`] that is set, with the functions of its allocator; the first argument of each is the
/// context.
#[repr(C)]
struct Allocator {
    context: Address,
    malloc: extern "C" fn(Address, usize) -> Address,
    calloc: extern "C" fn(Address, usize, usize) -> Address,
    realloc: extern "C" fn(Address, Address, usize) -> Address,
    free: extern "C" fn(Address, Address),
    ending: AtomicPtr<AtomicUsize>,
    seen: AtomicUsize,
    hooked: AtomicUsize,
}

const _: () = assert!(size_of::<Allocator>() == size_of::<Slot>());

/// The most allocators that are wrapped in a process. A slot is never changed, since a wrapper may
/// be below an allocator that the program put on top.
const WRAPPED_MAX: usize = 16;

/// An allocator that a wrapper calls.
#[repr(C)]
struct Slot {
    allocator: UnsafeCell<Raw>,
    /// The word in which the interpreter notes that it ends.
    ending: AtomicPtr<AtomicUsize>,
    /// The value of that word when it was last read.
    seen: AtomicUsize,
    /// For CPython's debug hooks the address at which these keep the allocator below them, else 0.
    hooked: AtomicUsize,
}

// SAFETY: the allocator is written before the slot is counted, by one thread at a time, and never
// afterwards.
unsafe impl Sync for Slot {}

/// The word of an interpreter whose end is not noticed.
static NEVER_ENDS: AtomicUsize = AtomicUsize::new(0);

/// Those below [`COUNT`] are set.
static WRAPPED: [Slot; WRAPPED_MAX] = [const {
    Slot {
        allocator: UnsafeCell::new([0; 5]),
        ending: AtomicPtr::new((&raw const NEVER_ENDS).cast_mut()),
        seen: AtomicUsize::new(0),
        hooked: AtomicUsize::new(0),
    }
}; WRAPPED_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns the address of the allocator in a slot, which is that of the slot.
fn slot(index: usize) -> *const Raw {
    WRAPPED.as_ptr().wrapping_add(index).cast()
}

/// Returns the wrapper of an allocator; none without space, or if the allocator lacks a function or
/// calls a wrapper already. `ending` is the word in which the interpreter notes that it ends, null
/// if it is unknown. Called by one thread at a time.
pub fn wrapper_of(allocator: Raw, ending: *mut AtomicUsize) -> Option<Raw> {
    if allocator[1..].contains(&0) {
        return None;
    }
    let count = COUNT.load(Relaxed);
    // SAFETY: counted slots do not change.
    let known = (0..count).find(|&index| unsafe { *slot(index) } == allocator);
    let index = match known {
        Some(index) if is_below_its_hooks(slot(index)) => return None,
        Some(index) => index,
        None if count < WRAPPED_MAX => {
            // SAFETY: a slot that is not counted; only one thread at a time gets here.
            unsafe { slot(count).cast_mut().write(allocator) };
            WRAPPED[count].hooked.store(hooked(&allocator), Relaxed);
            COUNT.store(count + 1, Release);
            count
        }
        None => return None,
    };
    if !ending.is_null() {
        WRAPPED[index].ending.store(ending, Relaxed);
    }
    let functions = [malloc, calloc, realloc, free].map(|function| function as *const () as usize);
    Some([slot(index) as usize, functions[0], functions[1], functions[2], functions[3]])
}

/// Returns where an allocator keeps the one below it, if it is the debug hooks above the first
/// allocator; else 0. Their context is a letter, and then the allocator.
fn hooked(hooks: &Raw) -> usize {
    let at = hooks[0].wrapping_add(size_of::<usize>());
    let mut bytes = [0u8; size_of::<Raw>()];
    let may_read = COUNT.load(Relaxed) > 0 && confined::may_call();
    if !may_read || !kernel::read_own(at as u64, &mut bytes) {
        return 0;
    }
    // SAFETY: any bytes are words; a counted slot does not change.
    let (found, first) = unsafe { (core::mem::transmute::<[u8; 40], Raw>(bytes), *slot(0)) };
    if found == first { at } else { 0 }
}

/// Returns whether the debug hooks below a wrapper were installed above it, too, so that they call
/// it and must not be called.
#[inline(never)]
fn is_below_its_hooks(slot: *const Raw) -> bool {
    let index = (slot as usize - self::slot(0) as usize) / size_of::<Slot>();
    let hooked = WRAPPED.get(index).map_or(0, |slot| slot.hooked.load(Relaxed));
    // SAFETY: in the data of the interpreter, which calls the wrapper.
    hooked != 0 && is_wrapper(unsafe { &*(hooked as *const Raw) })
}

/// Returns whether an allocator is one of the wrappers.
pub fn is_wrapper(allocator: &Raw) -> bool {
    allocator[1] == malloc as *const () as usize
}

/// Returns the allocator below a wrapper.
pub fn wrapped_by(wrapper: &Raw) -> Option<Raw> {
    let count = COUNT.load(Acquire);
    let index = (0..count).find(|&index| slot(index) as usize == wrapper[0]);
    // SAFETY: a counted slot does not change.
    index.filter(|_| is_wrapper(wrapper)).map(|index| unsafe { *slot(index) })
}

/// Returns the function of the first allocator that was wrapped, usually pymalloc's; 0 if there is
/// none.
pub fn first_malloc() -> usize {
    // SAFETY: not changed once it is counted, and all zeros before.
    unsafe { (*slot(0))[1] }
}

/// Returns whether anything was wrapped in this process, or in the one from which it was forked.
pub fn is_used() -> bool {
    COUNT.load(Acquire) != 0
}

/// Returns the allocator below a wrapper. An error is one for which nothing may be recorded: the
/// debug hooks call the wrapper with blocks that contain theirs. While another thread replaces an
/// allocator by a wrapper, a caller can read the function of the new one and the context of the old
/// one. That is null wherever this may happen, and the first allocator is meant.
#[inline(always)]
fn below(context: Address) -> Result<&'static Allocator, &'static Allocator> {
    let first = slot(0);
    let slot = if context.is_null() { first } else { context as *const Raw };
    // SAFETY: a counted slot, whose functions are not null.
    let of = |slot: *const Raw| unsafe { &*slot.cast::<Allocator>() };
    if slot != first && is_below_its_hooks(slot) { Err(of(first)) } else { Ok(of(slot)) }
}

impl Allocator {
    /// Notices that the interpreter begins to end, and then frees what the program held. Called
    /// before an event.
    #[inline(always)]
    fn notice_end(&self) {
        // SAFETY: a static word, or one in the state of the interpreter that calls the wrapper.
        let word = unsafe { &*self.ending.load(Relaxed) }.load(Relaxed);
        if word != self.seen.load(Relaxed) {
            self.note_end(word);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_end(&self, word: usize) {
        if self.seen.swap(word, AcqRel) == word {
            return;
        }
        // The interpreter can have other wrappers, below or above the debug hooks.
        let ending = self.ending.load(Relaxed);
        let of_interpreter = WRAPPED.iter().filter(|slot| slot.ending.load(Relaxed) == ending);
        of_interpreter.for_each(|slot| slot.seen.store(word, Relaxed));
        if word != 0 {
            marks::keep_held();
            search::wait();
        }
    }
}

/// Counts an allocation that is not recorded.
#[cold]
fn lost() {
    store().lost(Loss::NoShadow);
}

/// Defines the entry of a wrapper: it passes the caller's registers after the arguments.
macro_rules! entries {
    ($($name:ident $arguments:tt = $body:path;)*) => {
        $(
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    heaptide_recorder::pass_registers!($arguments),
                    ".cfi_endproc",
                    body = sym $body
                )
            }
        )*
    };
}

entries! {
    malloc 2 = malloc_body;
    calloc 3 = calloc_body;
    realloc 3 = realloc_body;
    free 2 = free_body;
}

extern "C" fn malloc_body(context: Address, bytes: usize, sp: u64, bp: u64) -> Address {
    let below = match below(context) {
        Ok(below) => below,
        Err(first) => {
            lost();
            return (first.malloc)(first.context, bytes);
        }
    };
    let Some(mut inside) = Inside::enter::<Preload>(Entry { sp, bp }) else {
        return (below.malloc)(below.context, bytes);
    };
    below.notice_end();
    let block = (below.malloc)(below.context, bytes);
    allocated(&mut inside, block, requested(bytes));
    block
}

extern "C" fn calloc_body(
    context: Address,
    count: usize,
    bytes: usize,
    sp: u64,
    bp: u64,
) -> Address {
    let below = match below(context) {
        Ok(below) => below,
        Err(first) => {
            lost();
            return (first.calloc)(first.context, count, bytes);
        }
    };
    let Some(mut inside) = Inside::enter::<Preload>(Entry { sp, bp }) else {
        return (below.calloc)(below.context, count, bytes);
    };
    inside.lane().gate.note_call(Call::Calloc);
    let block = (below.calloc)(below.context, count, bytes);
    if !block.is_null() {
        inside.lane().count_call(Call::Calloc);
    }
    allocated(&mut inside, block, requested(count.wrapping_mul(bytes)));
    block
}

/// Returns the size of a request: CPython's allocators allocate a byte if none is requested.
#[inline(always)]
fn requested(bytes: usize) -> u64 {
    bytes.max(1) as u64
}

/// Records a new block; null means that the request failed.
#[inline(always)]
fn allocated(inside: &mut Inside, block: Address, bytes: u64) {
    if block.is_null() {
        return step::on_failed_alloc(inside);
    }
    keep_size_in(inside.lane(), block, bytes);
    step::on_alloc_of_size(inside, block, bytes, bytes);
}

extern "C" fn realloc_body(
    context: Address,
    old: Address,
    bytes: usize,
    sp: u64,
    bp: u64,
) -> Address {
    let below = match below(context) {
        Ok(below) => below,
        Err(first) => {
            lost();
            return (first.realloc)(first.context, old, bytes);
        }
    };
    let call = || (below.realloc)(below.context, old, bytes);
    let had = if old.is_null() { None } else { take_size(old) };
    if had.is_none() && is_of_malloc(old) {
        return call(); // the hooks of malloc record it
    }
    let Some(mut inside) = Inside::enter::<Preload>(Entry { sp, bp }) else {
        return match had {
            Some(had) => reallocate_nested(old, had, call),
            None => call(),
        };
    };
    let Some(had) = had else {
        inside.lane().gate.note_call(Call::Realloc);
        let block = call();
        allocated(&mut inside, block, requested(bytes));
        return block;
    };
    let moving = Moving::begin(&mut inside, old, had);
    let block = call();
    if block.is_null() {
        keep_size(old, had);
        step::on_failed_realloc(&mut inside, moving);
    } else {
        let bytes = requested(bytes);
        keep_size(block, bytes);
        step::on_realloc(&mut inside, moving, block, bytes, bytes);
    }
    block
}

/// Returns whether a block of unknown size was recorded by the hooks of malloc: an interpreter that
/// ran before its allocators were wrapped took blocks of more than 512 bytes from there.
#[cold]
fn is_of_malloc(block: Address) -> bool {
    let p = store();
    !block.is_null() && p.shadow.is_made() && p.shadow.get(block as u64) != 0
}

/// A reallocation in a signal handler, or by an allocator below another wrapper: the new block is
/// not recorded, the old one ends.
#[cold]
fn reallocate_nested(old: Address, had: u64, call: impl FnOnce() -> Address) -> Address {
    let moving = MovingNested::begin(old, |_| had);
    let block = call();
    if block.is_null() {
        keep_size(old, had);
    }
    moving.end(block);
    block
}

extern "C" fn free_body(context: Address, block: Address, sp: u64, bp: u64) {
    let below = match below(context) {
        Ok(below) if !block.is_null() => below,
        Ok(only) | Err(only) => return (only.free)(only.context, block),
    };
    let Some(mut inside) = Inside::enter::<Preload>(Entry { sp, bp }) else {
        return free_nested(below, block);
    };
    below.notice_end();
    let Some(bytes) = take_size_in(inside.lane(), block) else {
        return free_unknown(inside, below, block);
    };
    step::on_free_of_size(&mut inside, block, bytes);
    // Still inside: pymalloc frees blocks of more than 512 bytes with free.
    (below.free)(below.context, block);
}

/// Frees a block that no wrapper has recorded: it was allocated before they were there, or in the
/// process from which this one was forked. If it belongs to malloc, the hooks of that record it.
#[inline(never)]
fn free_unknown(inside: Inside, below: &Allocator, block: Address) {
    drop(inside);
    (below.free)(below.context, block);
}

/// Frees a block in a signal handler, below another wrapper, or where nothing is recorded.
#[inline(never)]
fn free_nested(below: &Allocator, block: Address) {
    if let Some(bytes) = take_size(block) {
        record::count_nested_free(block, || bytes);
    }
    (below.free)(below.context, block);
}

/// Returns a function with an address.
///
/// # Safety
/// `address` is that of a function of the type `F`, a function pointer.
pub unsafe fn function<F: Copy>(address: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: the caller's contract.
    unsafe { core::mem::transmute_copy::<usize, F>(&address) }
}
