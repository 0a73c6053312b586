//! The interface that a front of the recorder implements. There are two fronts: a library that is
//! preloaded, and a crate that is part of a program.

use crate::sys::range::Range;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};
use heaptide_format::Unrecorded;
use heaptide_format::shared::FileHeader;

/// A front, through which allocations enter the recorder. It is a type parameter of each entry, so
/// that sizes of blocks are read without a call.
pub trait Front: 'static {
    /// The functions that are called rarely.
    const PLATFORM: Platform;

    /// Returns the usable bytes of a live block.
    fn usable(block: *mut u8) -> u64;

    /// Returns the usable bytes of a new block that was requested with this many bytes.
    fn usable_of_new(block: *mut u8, requested: u64) -> u64;

    /// Returns the usable bytes of the block that the thread has just allocated or is about to
    /// free, if that takes no call. Requires [`sizes_are_at_hand`].
    fn usable_at_hand(block: *mut u8) -> Option<u64>;

    /// Does the same for a block that is about to be freed; none if it has at least
    /// [`MAYBE_UNMAPPED`] bytes.
    fn freed_at_hand(block: *mut u8) -> Option<u64>;
}

/// Frees of at least this many bytes may return memory to the system, possibly a coroutine's stack.
pub const MAYBE_UNMAPPED: u64 = 64 << 10;

/// The part of a [`Front`] that does not depend on a block.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// Returns the address of a function of the C library by its name, which ends with a zero
    /// byte; 0 if there is none.
    pub find_function: fn(&'static [u8]) -> usize,
    /// Returns the usable bytes of a live block ([`Front::usable`]).
    pub usable: fn(*mut u8) -> u64,
    /// Returns whether this process is to be recorded.
    pub is_wanted: fn() -> bool,
    /// Finds the allocator. Errors: why the process cannot be recorded.
    pub find_allocator: fn() -> Result<(), Unrecorded>,
    /// Creates the front's own tables. `scarce`: address space is scarce. Returns none without
    /// memory.
    pub create_tables: fn(scarce: bool) -> Option<()>,
    /// Writes what the front did about other allocators into the header of the profile, after the
    /// search for them.
    pub describe_image: fn(&FileHeader),
    /// Returns whether the program runs under a valgrind tool that replaces the allocator.
    pub is_under_valgrind: fn() -> bool,
    /// Set if the front notices that memory is unmapped.
    pub sees_unmapping: bool,
    /// Releases the front's data of the calling thread, which exits.
    pub thread_exits: fn(),
    /// Returns the allocator's statistics about its memory. Takes time for each of its free chunks,
    /// but waits for no lock. The thread's signals must be blocked.
    pub heap_state: fn() -> HeapState,
    /// Returns the addresses of the front's own library; empty if it is part of the program.
    pub own_code: fn() -> Range,
    /// Returns where the front's entries continue with events of a thread that may take the fast
    /// path of this [`heaptide_format::Mode`]; 0 stands for all other threads.
    pub route: fn(mode: u32) -> Route,
    /// Called now and then, and when Python code runs for the first time.
    pub python_runs: fn(),
}

/// An allocator that has statistics about its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HeapSource {
    #[default]
    None = 0,
    /// The arenas of glibc.
    Glibc = heaptide_format::HEAP_GLIBC as isize,
    /// `mi_process_info`.
    Mimalloc = heaptide_format::HEAP_MIMALLOC as isize,
}

/// An allocator's memory, in bytes. All zeros: unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapState {
    pub source: HeapSource,
    /// Bytes obtained from the system, without blocks that are mappings of their own.
    pub arena: u64,
    /// Bytes of these that are in use, including glibc's headers.
    pub used: u64,
    /// Bytes of these that are free; the remaining ones are tables of the allocator.
    pub free: u64,
    /// Bytes of blocks that are mappings of their own.
    pub mapped: u64,
}

/// Functions of a front to which its entries jump. They are chosen once per lane, because the
/// recorded data is the same for all of its events. `lane` is the one in [`crate::sys::tls::Tls`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Route {
    /// Called after the real function has allocated, inside the recorder, which it leaves. Returns
    /// the block.
    pub allocated:
        Option<extern "C" fn(block: *mut u8, requested: usize, lane: *mut u8) -> *mut u8>,
    /// Called before a block is freed, outside of the recorder. Frees the block; `sp` and `bp` are
    /// those of the entry.
    pub free: Option<extern "C" fn(block: *mut u8, lane: *mut u8, sp: u64, bp: u64)>,
}

impl Route {
    /// The route of a front without such entries.
    pub const NONE: Route = Route { allocated: None, free: None };
    /// Byte offsets of the fields, for entries whose first instructions are not Rust.
    pub const ALLOCATED_AT: usize = offset_of!(Route, allocated);
    pub const FREE_AT: usize = offset_of!(Route, free);
}

/// The front of this process, set by its first entry; forked children inherit it.
static PLATFORM: AtomicPtr<Platform> = AtomicPtr::new(core::ptr::null_mut());
/// Whether the size of an event's block is known without a call; forked children inherit it.
static SIZES_AT_HAND: AtomicBool = AtomicBool::new(false);

/// Makes the front available to code that its entries do not call.
pub fn install<F: Front>() {
    let platform: &'static Platform = const { &F::PLATFORM };
    PLATFORM.store(core::ptr::from_ref(platform).cast_mut(), Release);
}

/// Returns the front of this process; none before its first entry.
pub fn platform() -> Option<&'static Platform> {
    // SAFETY: a constant, or null.
    unsafe { PLATFORM.load(Acquire).as_ref() }
}

/// Returns the usable bytes of a live block, by a call.
pub fn usable(block: *mut u8) -> u64 {
    platform().map_or(0, |platform| (platform.usable)(block))
}

/// Returns whether the program runs under a valgrind tool that replaces the allocator.
pub fn is_under_valgrind() -> bool {
    platform().is_some_and(|platform| (platform.is_under_valgrind)())
}

/// Gives the front an opportunity to look whether an interpreter has reset its allocators.
pub fn python_runs() {
    if let Some(platform) = platform() {
        (platform.python_runs)();
    }
}

/// Returns whether [`Front::usable_at_hand`] may be called.
#[inline(always)]
pub fn sizes_are_at_hand() -> bool {
    SIZES_AT_HAND.load(Relaxed)
}

/// Permits calls of [`Front::usable_at_hand`] from now on.
pub fn set_sizes_at_hand() {
    SIZES_AT_HAND.store(true, Relaxed);
}
