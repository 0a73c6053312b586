//! The recorder within a Rust program: an allocator round the program's own, for programs that no
//! library can be loaded into. Stands in the place of the hooks.
//!
//! Whether it records is decided once, at the first allocation. A program that nobody records pays
//! a load and a branch for an event. The shape of an event is that of a hook: enter, real call,
//! record. A Rust allocator tells no usable sizes, so a block's is the size that was asked for, and
//! is kept in a table for those who know no more than its address.

extern crate alloc;

use crate::api::interface as functions;
use crate::api::monitors;
use crate::event::exit;
use crate::event::fast_path::{self, Done};
use crate::event::lane::Inside;
use crate::event::process::process;
use crate::event::record::{self, Entry, Moving, MovingNested};
use crate::event::stacks::here;
use crate::event::tls::tls;
use crate::sys::loader::{look_up, objects};
use crate::sys::next_symbol::Real;
use crate::sys::options::Options;
use alloc::alloc::{GlobalAlloc, Layout};
use core::arch::naked_asm;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use heaptide_format::{EMBEDDED_NOTE, Mode};

/// An allocator that hands every call on to another one, and records it if the program was started
/// to be recorded (`heaptide run PROGRAM`, or `HEAPTIDE_OUTPUT` or `HEAPTIDE_MODE` set).
///
/// ```
/// # use heaptide_embedded as heaptide;
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOCATOR: heaptide::Recorder<System> = heaptide::Recorder::new(System);
/// ```
#[derive(Debug, Default)]
pub struct Recorder<A>(A);

impl<A> Recorder<A> {
    /// Round this allocator.
    pub const fn new(allocator: A) -> Recorder<A> {
        Recorder(allocator)
    }
}

/// A note in the program's file: that it is static does not keep it from being recorded.
#[used]
#[unsafe(link_section = ".note.heaptide")]
static NOTE: Note = Note {
    name_bytes: EMBEDDED_NOTE.len() as u32,
    description_bytes: 0,
    kind: 1,
    name: *EMBEDDED_NOTE,
    padding: [0; 2],
};

/// An ELF note without a description; its name is padded to four bytes.
#[repr(C)]
struct Note {
    name_bytes: u32,
    description_bytes: u32,
    kind: u32,
    name: [u8; EMBEDDED_NOTE.len()],
    padding: [u8; 2],
}

/// Unknown → Forward or Record, at the first allocation. It outlives forks.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Choice {
    Unknown = 0,
    /// Nobody wants a recording of this program, or the library makes it.
    Forward = 1,
    Record = 2,
}

static CHOICE: AtomicU32 = AtomicU32::new(Choice::Unknown as u32);
/// The library is in this process too, and our table is a copy of its own.
static LIBRARY: AtomicBool = AtomicBool::new(false);

#[inline(always)]
fn is(choice: Choice) -> bool {
    CHOICE.load(Relaxed) == choice as u32
}

/// Whether events are to be recorded; decides that if nobody has.
#[inline(always)]
fn records() -> bool {
    match CHOICE.load(Relaxed) {
        0 => decide(),
        choice => choice == Choice::Record as u32,
    }
}

#[cold]
#[inline(never)]
fn decide() -> bool {
    let record = !follow_library() && is_asked_for();
    let choice = if record { Choice::Record } else { Choice::Forward };
    let before = CHOICE.swap(choice as u32, Relaxed);
    if record && before == Choice::Unknown as u32 {
        exit::register();
    }
    record
}

/// Whether the environment asks for a recording. Never of a program that has rights its user has
/// not: the user says where files are written.
fn is_asked_for() -> bool {
    static GETAUXVAL: Real = Real::new(b"getauxval\0");
    const AT_SECURE: u64 = 23;
    // SAFETY: libc's function.
    let secure = unsafe {
        let getauxval: extern "C" fn(u64) -> u64 = core::mem::transmute(GETAUXVAL.get());
        getauxval(AT_SECURE) != 0
    };
    if secure {
        return false;
    }
    let asks = |options: &&Options| {
        let names = [&b"HEAPTIDE_OUTPUT"[..], b"HEAPTIDE_MODE"];
        names.iter().any(|name| options.handed_on.value(name).is_some())
    };
    Options::get().filter(asks).is_some_and(Options::is_wanted)
}

/// If the library is loaded, it sees all that the program's allocator asks of malloc: what programs
/// tell goes there, and nothing is counted twice.
fn follow_library() -> bool {
    // The first object is the program itself.
    let found = objects().skip(1).find_map(|map| look_up(map, b"heaptide_interface\0"));
    let Some((theirs, _)) = found else {
        return false;
    };
    let (theirs, ours) = (theirs as *const u64, functions::table());
    // SAFETY: both begin with a version and their length in bytes, in one word; no more is written
    // than both have. Other threads may call through ours at this very moment, and find the one
    // function or the other.
    unsafe {
        let words = (*theirs >> 32).min(functions::INTERFACE_BYTES as u64) as usize / 8;
        for i in 1..words {
            AtomicU64::from_ptr(ours.add(i)).store(*theirs.add(i), Relaxed);
        }
    }
    LIBRARY.store(true, Relaxed);
    true
}

/// The table of functions for the program (`struct heaptide_interface`): null if nothing records
/// here. None if [`Recorder`] is not the program's allocator.
pub fn interface() -> Option<*const c_void> {
    if is(Choice::Unknown) && follow_library() {
        CHOICE.store(Choice::Forward as u32, Relaxed);
    }
    if is(Choice::Unknown) {
        ask_allocator();
    }
    if is(Choice::Unknown) {
        return None;
    }
    let there = is(Choice::Record) || LIBRARY.load(Relaxed);
    Some(if there { functions::table() as *const c_void } else { core::ptr::null() })
}

/// Has the program's allocator, if that is [`Recorder`], decide. Not an event: the thread counts as
/// one that cannot be recorded just now.
fn ask_allocator() {
    let layout = Layout::new::<u64>();
    // SAFETY: the thread's own block; a block that is freed as it was allocated.
    unsafe {
        let busy = core::mem::replace(&mut (*tls()).busy, 1);
        let block = core::hint::black_box(alloc::alloc::alloc(layout));
        if !block.is_null() {
            alloc::alloc::dealloc(block, layout);
        }
        (*tls()).busy = busy;
    }
}

/// Whether this process is one to record.
pub fn is_wanted() -> bool {
    is(Choice::Record)
}

/// The allocator is the program's own, and is there.
pub fn resolve_allocator() -> bool {
    true
}

/// No call goes past it.
pub fn is_bypassed() -> bool {
    false
}

/// Its allocator is none that valgrind replaces.
pub fn is_under_valgrind() -> bool {
    false
}

pub type Address = *mut u8;

/// Sizes from here on are counted in pages, so that a size fits a word of the table.
const LARGE: usize = 1 << 31;
/// Of a word in the table of sizes: the others are pages.
const PAGES: u32 = 1 << 31;
const PAGE_BITS: u32 = 12;

/// What a block of this size is taken to hold.
#[inline(always)]
fn usable_of(size: usize) -> u64 {
    if size < LARGE { size as u64 } else { (size as u64).next_multiple_of(1 << PAGE_BITS) }
}

/// The usable size of a live block that is recorded.
pub fn usable(block: Address) -> u64 {
    match process().sizes.get(block as u64) {
        pages if pages & PAGES != 0 => ((pages & !PAGES) as u64) << PAGE_BITS,
        bytes => bytes as u64,
    }
}

/// Whether the size of an event's block is at hand. It always is.
pub fn headers_are_trusted() -> bool {
    true
}

/// The usable size of the block of the event that the thread is in.
#[inline(always)]
pub fn usable_of_small(_: Address) -> Option<u64> {
    // SAFETY: the thread's own block.
    Some(unsafe { (*tls()).usable })
}

/// The thread is in an event of a block of so many bytes. Nobody else changes that: a signal
/// handler that comes now finds the thread inside.
#[inline(always)]
fn note_usable(_: &Inside, usable: u64) {
    // SAFETY: the thread's own block.
    unsafe { (*tls()).usable = usable };
}

/// Keeps a block's size; its site is kept by who records it.
#[inline(always)]
fn keep_size(inside: &mut Inside, block: Address, usable: u64) {
    if inside.lane().mode != Mode::Counters as u32 {
        let large = usable >= LARGE as u64;
        let word = if large { PAGES | (usable >> PAGE_BITS) as u32 } else { usable as u32 };
        process().sizes.put(block, word);
    }
}

/// Two blocks never begin in the same eight bytes, as it is with C allocators: the tables have a
/// word for that many. Changes nothing where it is so already.
const UNIT: usize = 8;

/// The layout that the inner allocator is asked for; none if that is larger than all memory.
#[inline(always)]
fn widened(size: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(UNIT), align.max(UNIT)).ok()
}

/// The same for a block that was allocated so.
#[inline(always)]
fn widened_before(layout: Layout) -> Layout {
    widened(layout.size(), layout.align()).unwrap_or(layout)
}

/// The inner allocator's function: the allocator, size and alignment.
type Allocate = unsafe extern "C" fn(*const c_void, usize, usize) -> Address;
/// The inner allocator's function: the allocator, block, its layout, the new size.
type Reallocate = unsafe fn(*const c_void, Address, Layout, usize) -> Address;

/// A reallocation as it goes through an entry.
struct Reallocation {
    allocator: *const c_void,
    block: Address,
    layout: Layout,
    size: usize,
    call: Reallocate,
}

// SAFETY: every call goes to the inner allocator, at most with a wider layout: the same for a block
// as long as it lives, for the choice is made before there is one, and stays.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Recorder<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duties are the inner function's.
        unsafe {
            if is(Choice::Forward) {
                return self.0.alloc(layout);
            }
            allocate((&raw const self.0).cast(), layout.size(), layout.align(), alloc_by::<A>)
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is(Choice::Forward) {
                return self.0.alloc_zeroed(layout);
            }
            allocate((&raw const self.0).cast(), layout.size(), layout.align(), zeroed_by::<A>)
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is(Choice::Forward) {
                return self.0.realloc(block, layout, size);
            }
            let (allocator, call) = ((&raw const self.0).cast(), realloc_by::<A> as Reallocate);
            reallocate(&Reallocation { allocator, block, layout, size, call })
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block is forgotten before another thread may get its address.
        unsafe {
            if is(Choice::Forward) {
                return self.0.dealloc(block, layout);
            }
            released(block, layout.size());
            self.0.dealloc(block, widened_before(layout));
        }
    }
}

/// # Safety
/// An allocator and what its `alloc` asks for.
unsafe extern "C" fn alloc_by<A: GlobalAlloc>(
    allocator: *const c_void,
    size: usize,
    align: usize,
) -> Address {
    // SAFETY: as promised.
    unsafe { (*allocator.cast::<A>()).alloc(Layout::from_size_align_unchecked(size, align)) }
}

/// # Safety
/// An allocator and what its `alloc_zeroed` asks for.
unsafe extern "C" fn zeroed_by<A: GlobalAlloc>(
    allocator: *const c_void,
    size: usize,
    align: usize,
) -> Address {
    // SAFETY: as promised.
    unsafe { (*allocator.cast::<A>()).alloc_zeroed(Layout::from_size_align_unchecked(size, align)) }
}

/// # Safety
/// An allocator and what its `realloc` asks for.
unsafe fn realloc_by<A: GlobalAlloc>(
    allocator: *const c_void,
    block: Address,
    layout: Layout,
    size: usize,
) -> Address {
    // SAFETY: as promised.
    unsafe { (*allocator.cast::<A>()).realloc(block, layout, size) }
}

/// Hands the caller's stack pointer and frame pointer on and jumps, as the entry of a hook does.
#[unsafe(naked)]
unsafe extern "C" fn allocate(_: *const c_void, _: usize, _: usize, _: Allocate) -> Address {
    naked_asm!(
".cfi_startproc",
        "mov r8, rsp", "mov r9, rbp", "jmp {body}",
        ".cfi_endproc",
body = sym allocate_body)
}

#[unsafe(naked)]
unsafe extern "C" fn reallocate(_: &Reallocation) -> Address {
    naked_asm!(
".cfi_startproc",
        "mov rsi, rsp", "mov rdx, rbp", "jmp {body}",
        ".cfi_endproc",
body = sym reallocate_body)
}

unsafe extern "C" fn allocate_body(
    allocator: *const c_void,
    size: usize,
    align: usize,
    call: Allocate,
    sp: u64,
    bp: u64,
) -> Address {
    if !records() {
        // SAFETY: the inner function's contract.
        return unsafe { call(allocator, size, align) };
    }
    let layout = widened(size, align);
    let call = || match layout {
        // SAFETY: as above.
        Some(layout) => unsafe { call(allocator, layout.size(), layout.align()) },
        None => core::ptr::null_mut(),
    };
    let Some(mut inside) = Inside::enter(Entry { sp, bp }) else {
        return call();
    };
    let block = call();
    if block.is_null() {
        record::failed(&mut inside);
    } else {
        let usable = usable_of(size);
        keep_size(&mut inside, block, usable);
        note_usable(&inside, usable);
        let requested = size as u64;
        match fast_path::allocated(inside.lane(), block, requested) {
            Done::Counted => {}
            Done::ToTell => monitors::allocated(inside.lane(), block, requested, usable),
            _ => record::allocated(&mut inside, block, requested, usable),
        }
    }
    block
}

unsafe extern "C" fn reallocate_body(r: &Reallocation, sp: u64, bp: u64) -> Address {
    let before = widened_before(r.layout);
    let call = || match widened(r.size, before.align()) {
        // SAFETY: the inner function's contract.
        Some(new) => unsafe { (r.call)(r.allocator, r.block, before, new.size()) },
        None => core::ptr::null_mut(),
    };
    let had = usable_of(r.layout.size());
    let Some(mut inside) = Inside::enter(Entry { sp, bp }) else {
        let moving = MovingNested::begin(r.block, |_| had);
        let block = call();
        moving.end(block);
        return block;
    };
    let moving = Moving::begin(&mut inside, r.block, had);
    let block = call();
    if block.is_null() {
        moving.failed(&mut inside);
    } else {
        let usable = usable_of(r.size);
        keep_size(&mut inside, block, usable);
        moving.done(&mut inside, block, r.size as u64, usable);
    }
    block
}

/// A block is about to be freed. The recorder is left before that happens.
fn released(block: Address, size: usize) {
    let usable = usable_of(size);
    let Some(mut inside) = Inside::enter(here()) else {
        return record::freed_nested(block, || usable);
    };
    note_usable(&inside, usable);
    let lane = inside.lane();
    let done = if lane.quick != 0 { fast_path::freed(lane, block) } else { Done::No };
    match done {
        Done::Counted => {}
        Done::ToTell => monitors::freed(lane, block, usable),
        _ => record::freed(&mut inside, block, usable),
    }
}
