//! The recorder's own memory: arenas of address space that are reserved once and provide all memory
//! except the profile.
//!
//! They separate the recorder's memory from the program's: code that locks, dumps, counts or forks
//! the program's memory as a whole excludes these ranges ([`ranges`], [`reserved`]). Forked
//! children inherit nothing of memory that is only reserved. Where address space is limited,
//! nothing is reserved: each piece is a mapping of its own, and all pieces together take at most a
//! part of the limit.

use crate::sys::confined;
use crate::sys::kernel;
use crate::sys::range::Range;
use crate::sys::wiped::Wiped;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};

/// Size of the arena that children do not inherit: for shadow tables of 32 GiB of heap and all
/// else.
const OWN_BYTES: usize = 16 << 30;
/// Size of an arena whose used part children inherit: the lanes of some 500 threads.
const INHERITED_BYTES: usize = 1 << 30;
/// The inherited part grows in steps of this many bytes.
const STEP: usize = 4 << 20;

/// The contents of a piece of memory in a forked child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum InChild {
    /// Nothing: the address is not mapped.
    Nothing,
    /// Zeros.
    Zeros,
    /// The same contents.
    Copy,
}

/// A range of address space of which the first `used` bytes are in use. All zeros: not reserved.
/// Commands read its start and length.
#[repr(C)]
pub struct Arena {
    start: AtomicUsize,
    length: AtomicUsize,
    used: AtomicUsize,
    /// Bytes that children inherit.
    inherited: AtomicUsize,
    /// Bytes in mappings of their own.
    apart: AtomicU64,
}

/// The state that is wiped in a forked child.
struct Own {
    arena: Arena,
    /// Maximum number of bytes that the recorder may take: a part of a limit. 0 as long as it is
    /// unknown.
    budget: AtomicU64,
}

// SAFETY: all zeros is an arena that is not reserved, and an unknown budget.
#[unsafe(link_section = ".bss.wiped")]
static OWN: Wiped<Own> = unsafe { Wiped::new() };

/// The arenas of memory that is zero in children, and that is the same in children. Forked children
/// inherit both.
static ZEROS: Arena = Arena::new();
static COPIES: Arena = Arena::new();

/// Returns the arena of a kind of memory.
fn arena(child: InChild) -> &'static Arena {
    match child {
        InChild::Nothing => &OWN.get().arena,
        InChild::Zeros => &ZEROS,
        InChild::Copy => &COPIES,
    }
}

/// Returns all arenas.
fn arenas() -> [&'static Arena; 3] {
    [InChild::Nothing, InChild::Zeros, InChild::Copy].map(arena)
}

/// Reserves the arenas, unless address space is scarce.
pub fn prepare(scarce: bool) {
    for (arena, length) in arenas().into_iter().zip([OWN_BYTES, INHERITED_BYTES, INHERITED_BYTES]) {
        if !scarce && arena.length.load(Relaxed) == 0 {
            arena.reserve(length);
        }
    }
}

/// Makes forked children start without the memory that they do not inherit.
pub fn wipe_in_children() {
    OWN.wipe_in_children();
}

/// Sets how many bytes the recorder may take.
pub fn set_budget(bytes: u64) {
    OWN.get().budget.store(bytes, Relaxed);
}

/// Adapts the arenas in a forked child, which has only the used parts of its parent's.
pub fn begin_as_child() {
    for arena in [&ZEROS, &COPIES] {
        let inherited = arena.inherited.swap(0, Relaxed);
        arena.apart.fetch_add(inherited as u64, Relaxed);
        arena.used.store(0, Relaxed);
        arena.length.store(0, Relaxed);
    }
}

/// Forgets the arena of memory that is zero in children, after a recording has ended and its memory
/// was released. No thread may refer to it or take memory meanwhile.
pub fn forget_zeros() {
    for word in [&ZEROS.length, &ZEROS.used, &ZEROS.inherited, &ZEROS.start] {
        word.store(0, Release);
    }
    ZEROS.apart.store(0, Relaxed);
}

/// Returns the arenas that end with a recording.
pub fn of_recording() -> [Range; 2] {
    [InChild::Nothing, InChild::Zeros].map(|child| arena(child).range())
}

/// Returns the addresses of all arenas, for a command that reads their start and length.
pub fn arenas_at() -> [u64; 3] {
    arenas().map(|arena| ptr::from_ref(arena) as u64)
}

/// Reserves what is needed to continue without system calls, for a program that is about to confine
/// itself.
pub fn prepare_ahead() {
    /// The lanes of some 30 threads.
    const ZEROS_AHEAD: usize = 64 << 20;
    const COPIES_AHEAD: usize = 1 << 20;
    for (child, ahead) in [(InChild::Zeros, ZEROS_AHEAD), (InChild::Copy, COPIES_AHEAD)] {
        let arena = arena(child);
        arena.inherit(arena.used.load(Relaxed) + ahead, child);
    }
}

impl Arena {
    const fn new() -> Arena {
        Arena {
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            inherited: AtomicUsize::new(0),
            apart: AtomicU64::new(0),
        }
    }

    /// Reserves `length` bytes, if that is possible.
    fn reserve(&self, length: usize) {
        let start = kernel::map_private(length);
        if start.is_null() {
            return;
        }
        exclude(start, length);
        // SAFETY: a fresh mapping.
        if unsafe { kernel::advise(start, length, kernel::MADV_DONTFORK) }.is_err() {
            // SAFETY: nothing refers to it.
            return unsafe { kernel::unmap(start, length) };
        }
        self.start.store(start as usize, Relaxed);
        self.length.store(length, Release);
    }

    /// Takes a multiple of the page size; null if not that much is left.
    fn take(&self, bytes: usize, child: InChild) -> *mut u8 {
        let length = self.length.load(Acquire);
        if length - self.used.load(Relaxed).min(length) < bytes {
            return core::ptr::null_mut();
        }
        let at = self.used.fetch_add(bytes, Relaxed);
        let end = at + bytes;
        if end > length || child != InChild::Nothing && !self.inherit(end, child) {
            return core::ptr::null_mut();
        }
        (self.start.load(Relaxed) + at) as *mut u8
    }

    /// Makes children inherit the first `end` bytes. Returns false if that is not possible.
    fn inherit(&self, end: usize, child: InChild) -> bool {
        let from = self.inherited.load(Relaxed);
        if end <= from {
            return true;
        }
        let to = end.next_multiple_of(STEP).min(self.length.load(Relaxed));
        if to <= from || !confined::may_call() {
            return false;
        }
        let start = (self.start.load(Relaxed) + from) as *mut u8;
        // SAFETY: reserved memory; the advice changes nothing in this process. Two threads may both
        // give it.
        let arranged = unsafe {
            kernel::advise(start, to - from, kernel::MADV_DOFORK).is_ok()
                && (child != InChild::Zeros
                    || kernel::advise(start, to - from, kernel::MADV_WIPEONFORK).is_ok())
        };
        if arranged {
            self.inherited.fetch_max(to, Relaxed);
        }
        arranged
    }

    fn holds(&self, address: *const u8) -> bool {
        (address as usize).wrapping_sub(self.start.load(Relaxed)) < self.length.load(Relaxed)
    }

    fn range(&self) -> Range {
        let low = self.start.load(Relaxed) as u64;
        Range { low, high: low + self.length.load(Relaxed) as u64 }
    }
}

/// Excludes a mapping from core dumps and from huge pages, of which a sparse table would touch
/// many.
fn exclude(start: *mut u8, bytes: usize) {
    // SAFETY: a fresh mapping; neither advice changes its contents.
    unsafe {
        let _ = kernel::advise(start, bytes, kernel::MADV_DONTDUMP);
        let _ = kernel::advise(start, bytes, kernel::MADV_NOHUGEPAGE);
    }
}

/// Maps memory that the caller unmaps soon; null if there is none. The kernel would merge a plain
/// mapping with a neighbour of the program, such as one of jemalloc or V8, and an account could not
/// divide them.
pub fn map_briefly(bytes: usize) -> *mut u8 {
    let start = kernel::map_private(bytes);
    if !start.is_null() && confined::may_call() {
        exclude(start, bytes);
    }
    start
}

/// Returns at least `bytes` of zeroed memory, until [`release`]; null if there is none.
pub fn take(bytes: usize, child: InChild) -> *mut u8 {
    let bytes = bytes.next_multiple_of(kernel::page_bytes() as usize);
    let piece = arena(child).take(bytes, child);
    if piece.is_null() { take_apart(bytes, child) } else { piece }
}

/// Does the same with a mapping of its own, whose address space [`release`] frees, for memory that
/// is used temporarily.
pub fn take_apart(bytes: usize, child: InChild) -> *mut u8 {
    let bytes = bytes.next_multiple_of(kernel::page_bytes() as usize);
    let advice = match child {
        InChild::Nothing => Some(kernel::MADV_DONTFORK),
        InChild::Zeros => Some(kernel::MADV_WIPEONFORK),
        InChild::Copy => None,
    };
    let budget = OWN.get().budget.load(Relaxed);
    if budget != 0 && reserved().saturating_add(bytes as u64) > budget {
        return core::ptr::null_mut();
    }
    // Without this advice, a child would treat the memory of a lane as a lane of its own.
    let may = if child == InChild::Zeros { confined::may_call() } else { confined::may_map() };
    let piece = if may { kernel::map_private(bytes) } else { core::ptr::null_mut() };
    if piece.is_null() {
        return piece;
    }
    if confined::may_call() {
        // SAFETY: a fresh mapping; the advice changes nothing in this process.
        let arranged =
            advice.is_none_or(|advice| unsafe { kernel::advise(piece, bytes, advice) }.is_ok());
        if !arranged && child == InChild::Zeros {
            // SAFETY: nothing refers to it.
            unsafe { kernel::unmap(piece, bytes) };
            return core::ptr::null_mut();
        }
        exclude(piece, bytes);
    }
    arena(child).apart.fetch_add(bytes as u64, Relaxed);
    piece
}

/// Releases memory. Address space of an arena stays in use.
///
/// # Safety
/// `take` or `take_apart` returned this piece for the same arguments, and nothing uses it any more.
pub unsafe fn release(piece: *mut u8, bytes: usize, child: InChild) {
    let bytes = bytes.next_multiple_of(kernel::page_bytes() as usize);
    let arena = arena(child);
    if !arena.holds(piece) {
        // SAFETY: promised by the caller; it is a mapping of its own.
        unsafe { kernel::unmap(piece, bytes) };
        arena.apart.fetch_sub(bytes as u64, Relaxed);
    } else if confined::may_call() {
        // SAFETY: promised by the caller.
        let _ = unsafe { kernel::advise(piece, bytes, kernel::MADV_DONTNEED) };
    }
}

/// Returns the bytes of address space that the recorder has, without the profile's mapping.
pub fn reserved() -> u64 {
    let of = |arena: &Arena| arena.length.load(Relaxed) as u64 + arena.apart.load(Relaxed);
    arenas().into_iter().map(of).sum()
}

/// Returns whether the recorder's memory is in ranges of its own.
pub fn is_reserved() -> bool {
    arenas().iter().all(|arena| arena.length.load(Relaxed) > 0)
}

/// Returns the parts of these ranges that are in use.
pub fn used_ranges() -> [Range; 3] {
    arenas().map(|arena| {
        let low = arena.start.load(Relaxed) as u64;
        let used = arena.used.load(Relaxed).min(arena.length.load(Relaxed));
        Range { low, high: low + used as u64 }
    })
}

/// Returns the bytes of the recorder's memory outside of these ranges.
pub fn apart() -> u64 {
    arenas().into_iter().map(|arena| arena.apart.load(Relaxed)).sum()
}

/// Returns the ranges of the recorder's own memory, if they are reserved.
pub fn ranges() -> [Range; 3] {
    arenas().map(Arena::range)
}
