//! What a front of the recorder provides. There are two: a library that is preloaded, and a crate
//! that is part of a program.

use crate::sys::range::Range;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};
use heaptide_format::Unrecorded;
use heaptide_format::shared::FileHeader;

/// A way of allocations into the recorder. Every entry names it, so that the sizes of blocks are
/// read without a call.
pub trait Front: 'static {
    /// What is asked rarely.
    const PLATFORM: Platform;

    /// Returns the usable bytes of a live block.
    fn usable(block: *mut u8) -> u64;

    /// Returns the usable bytes of the block that the thread allocated just now or is about to
    /// free, if that takes no call. Sizes are at hand ([`sizes_are_at_hand`]).
    fn usable_at_hand(block: *mut u8) -> Option<u64>;

    /// The same for a block about to be freed; none of one with [`MAYBE_UNMAPPED`] bytes.
    fn freed_at_hand(block: *mut u8) -> Option<u64>;
}

/// Frees of at least this many bytes may give memory back to the system, a coroutine's stack
/// perhaps.
pub const MAYBE_UNMAPPED: u64 = 64 << 10;

/// The part of a [`Front`] that does not depend on a block.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// Returns the address of a function of the C library by its name, which ends with a zero
    /// byte; 0 if there is none.
    pub find_function: fn(&'static [u8]) -> usize,
    /// Returns the usable bytes of a live block ([`Front::usable`]).
    pub usable: fn(*mut u8) -> u64,
    /// Whether this process is one to record.
    pub is_wanted: fn() -> bool,
    /// Finds the allocator. Errors: why the process cannot be recorded.
    pub find_allocator: fn() -> Result<(), Unrecorded>,
    /// Creates the front's own tables; whether address space is scarce. None without memory.
    pub create_tables: fn(scarce: bool) -> Option<()>,
    /// Writes into the head of the profile what the front did about other allocators, once they
    /// were looked for.
    pub describe_image: fn(&FileHeader),
    /// Whether the program runs under a valgrind tool that replaces the allocator.
    pub is_under_valgrind: fn() -> bool,
    /// Whether the front notices that memory is unmapped.
    pub sees_unmapping: bool,
    /// Releases what the front keeps for the calling thread, which exits.
    pub thread_exits: fn(),
    /// What the allocator knows about its memory. Takes the allocator's locks, and time for each of
    /// its free chunks.
    pub heap_state: fn(Asked) -> HeapState,
    /// The addresses of the front's own library; empty where it is part of the program.
    pub own_code: fn() -> Range,
    /// Where the front's entries continue with events of a thread that may take the fast path of
    /// this [`heaptide_format::Mode`]; with those of any other thread for 0.
    pub route: fn(mode: u32) -> Route,
}

/// Where the allocator is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The thread is not in the allocator.
    AtRest,
    /// The thread has mapped memory and is in no function of the allocator that is replaced: a
    /// thread of the allocator's own perhaps.
    WhereMapping,
}

/// An allocator that knows about its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HeapSource {
    #[default]
    None = 0,
    /// `mallinfo2`.
    Glibc = heaptide_format::HEAP_GLIBC as isize,
    /// `stats.allocated`, `stats.resident` and `stats.metadata`.
    Jemalloc = heaptide_format::HEAP_JEMALLOC as isize,
    /// `mi_process_info`.
    Mimalloc = heaptide_format::HEAP_MIMALLOC as isize,
}

/// An allocator's memory, in bytes. Zeros are: not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapState {
    pub source: HeapSource,
    /// Taken from the system, blocks that are mappings of their own left out.
    pub arena: u64,
    /// In use of that, glibc's headers included.
    pub used: u64,
    /// Free of that; what is neither used nor free are tables of the allocator.
    pub free: u64,
    /// Blocks that are mappings of their own.
    pub mapped: u64,
}

/// Functions of a front that its entries jump to. They are chosen once for each lane, because what
/// is recorded is the same for all of its events. `lane` is the one of [`crate::sys::tls::Tls`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Route {
    /// After the real function has allocated, inside the recorder, which it leaves. Returns the
    /// block.
    pub allocated:
        Option<extern "C" fn(block: *mut u8, requested: usize, lane: *mut u8) -> *mut u8>,
    /// Before a block is freed, outside of the recorder. Frees it; `sp` and `bp` are those of the
    /// entry.
    pub free: Option<extern "C" fn(block: *mut u8, lane: *mut u8, sp: u64, bp: u64)>,
}

impl Route {
    /// Of a front without such entries.
    pub const NONE: Route = Route { allocated: None, free: None };
    /// Byte offsets of the fields for entries, whose first instructions are not Rust.
    pub const ALLOCATED_AT: usize = offset_of!(Route, allocated);
    pub const FREE_AT: usize = offset_of!(Route, free);
}

/// The front of this process, once an entry was called; it outlives forks.
static PLATFORM: AtomicPtr<Platform> = AtomicPtr::new(core::ptr::null_mut());
/// Whether the size of an event's block is known without a call; it outlives forks.
static SIZES_AT_HAND: AtomicBool = AtomicBool::new(false);

/// Makes the front known to all that is not called by its entries.
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

/// Whether the program runs under a valgrind tool that replaces the allocator.
pub fn is_under_valgrind() -> bool {
    platform().is_some_and(|platform| (platform.is_under_valgrind)())
}

/// Whether [`Front::usable_at_hand`] may be asked.
#[inline(always)]
pub fn sizes_are_at_hand() -> bool {
    SIZES_AT_HAND.load(Relaxed)
}

/// From now on it may be asked.
pub fn set_sizes_at_hand() {
    SIZES_AT_HAND.store(true, Relaxed);
}
