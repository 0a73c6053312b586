//! The free memory of glibc's malloc, read from its own structures.
//!
//! `mallinfo2` returns the same numbers, but waits for the lock of each arena. A signal handler
//! that interrupted malloc would wait for its own thread, and with blocked signals no other thread
//! could continue either. Here the lock of an arena is tried for a bounded time; without it, the
//! numbers are unknown.
//!
//! The structures have no symbols. They are found by their contents, and every address that is
//! followed is checked before it is read: a program may have damaged its heap, and a handler may
//! have interrupted a thread that changes it without a lock, as glibc does while there is only one
//! thread. Layout: `struct malloc_state`, `struct malloc_par` and `heap_info` of glibc 2.26 to
//! 2.42.

use crate::attachment;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heaptide_recorder::sys::front::{HeapSource, HeapState};
use heaptide_recorder::sys::kernel;
use heaptide_recorder::sys::loader::LinkMap;
use heaptide_recorder::sys::program_headers::{writable_data, writable_data_of_program};
use heaptide_recorder::sys::range::Range;

/// Number of bins of an arena, and of those for small chunks that are not merged.
const BINS: usize = 127;
const FAST_BINS: usize = 10;

/// The part of `struct malloc_state` from `top` on, which is equal in all versions.
#[repr(C)]
struct Arena {
    top: u64,
    last_remainder: u64,
    /// The first and the last chunk of each bin.
    bins: [[u64; 2]; BINS],
    bin_map: [u32; 4],
    /// The `struct malloc_state` of the next arena; the last one is followed by the main arena.
    next: u64,
    next_free: u64,
    attached_threads: u64,
    system_bytes: u64,
    most_system_bytes: u64,
}

/// The part of `struct malloc_par` from `mmapped_mem` on, which is equal in all versions.
#[derive(Clone, Copy)]
#[repr(C)]
struct Parameters {
    mapped_bytes: u64,
    most_mapped_bytes: u64,
    /// The first address of the main arena.
    base: u64,
}

/// `heap_info`, at the beginning of each heap of an arena other than the main one.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct HeapInfo {
    arena: u64,
    previous: u64,
    bytes: u64,
}

/// A chunk: the size has flags in its low bits; the links are those of a free chunk.
#[repr(C)]
struct Chunk {
    previous_bytes: u64,
    size: u64,
    next: u64,
    previous: u64,
}

/// Offset of the next arena from `top`.
const NEXT_AT: usize = core::mem::offset_of!(Arena, next);
/// Offsets of `top` in `struct malloc_state`: since glibc 2.27, and before.
const TOP_OFFSETS: [usize; 2] = [96, 88];
/// Number of empty bins by which the main arena is recognised. Those for the largest chunks are
/// empty in nearly all programs.
const EMPTY_BINS: usize = 24;
/// Maximum number of arenas: glibc creates eight for each processor.
const ARENAS_MAX: usize = 8 * 8192;
/// Number of free chunks of an arena at which reading ends: it takes about a second.
const CHUNKS_MAX: usize = 1 << 24;
/// Number of attempts to take an arena's lock, some microseconds: usually its holder is running.
const LOCK_TRIES: usize = 2000;
/// Alignment and maximum size of heaps.
const HEAP_BYTES: u64 = 64 << 20;
/// Upper bound of the offset of an arena in its first heap, behind the heap's own data.
const HEAP_HEAD_MAX: u64 = 4096;
/// In the flags of an arena: its memory is not contiguous.
const NOT_CONTIGUOUS: i32 = 2;
/// Size of the smallest chunk, and the difference between sizes.
const CHUNK_MIN: u64 = 32;
const CHUNK_ALIGN: u64 = 16;
/// The part of a chunk's `size` that is no flag.
const SIZE_MASK: u64 = !7;

/// The address of `top` in the main arena, and its offset there; 0: not found yet. Forked children
/// inherit them.
static MAIN_TOP: AtomicUsize = AtomicUsize::new(0);
static TOP_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Returns the state of glibc's malloc. It is unknown if the structures are not found, if an arena
/// stays locked, or if free chunks are not linked as expected.
///
/// `libc` is the object that defines malloc. The thread's signals must be blocked, since other
/// threads wait while an arena is read.
pub fn state(libc: &LinkMap) -> HeapState {
    read(libc).unwrap_or_default()
}

fn read(libc: &LinkMap) -> Option<HeapState> {
    let is_static = attachment::is_inserted();
    let data = if is_static { writable_data_of_program(libc) } else { writable_data(libc) }?;
    let main = Place::of_main(data)?;
    let parameters = find_parameters(data, main)?;
    let (mut bytes, mut free) = (0u64, 0u64);
    let mut place = main;
    for _ in 0..ARENAS_MAX {
        let usage = place.lock()?.usage((place == main).then_some(parameters.base))?;
        bytes = bytes.checked_add(usage.bytes)?;
        free = free.checked_add(usage.free)?;
        place = place.next()?;
        if place == main {
            let (source, mapped) = (HeapSource::Glibc, parameters.mapped_bytes);
            let used = bytes.checked_sub(free)?;
            return Some(HeapState { source, arena: bytes, used, free, mapped });
        }
    }
    None
}

/// Where an arena is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The address of its `top`.
    top: usize,
    /// The offset of `top` in its `struct malloc_state`.
    offset: usize,
}

impl Place {
    /// Finds the main arena in the data of the C library: most of its bins refer to themselves, and
    /// the list of arenas returns to it.
    fn of_main(data: Range) -> Option<Place> {
        let known = MAIN_TOP.load(Acquire);
        if known != 0 {
            return Some(Place { top: known, offset: TOP_OFFSET.load(Relaxed) });
        }
        let first = (data.low as usize).next_multiple_of(8) + TOP_OFFSETS[0] + NEXT_AT;
        let end = (data.high as usize + 1).checked_sub(size_of::<Arena>())? + NEXT_AT;
        let found = (first..end).step_by(8).find_map(|at| {
            // SAFETY: within readable data; volatile because other threads may change it.
            let next = unsafe { core::ptr::read_volatile(at as *const u64) };
            let top = at - NEXT_AT;
            let (is_heap, to_itself) = (may_be_heap(next), top.wrapping_sub(next as usize));
            // Most words of the data fail this condition.
            if !is_heap && !TOP_OFFSETS.contains(&to_itself) {
                return None;
            }
            let mut places = TOP_OFFSETS.into_iter().map(|offset| Place { top, offset });
            places.find(|place| {
                (is_heap || place.offset == to_itself)
                    && has_empty_bins(top)
                    && place.is_in_its_list()
            })
        })?;
        TOP_OFFSET.store(found.offset, Relaxed);
        MAIN_TOP.store(found.top, Release);
        Some(found)
    }

    /// The address of the `struct malloc_state`.
    fn start(self) -> usize {
        self.top - self.offset
    }

    /// Returns whether following the arenas from this one returns to it.
    fn is_in_its_list(self) -> bool {
        let mut next = self.next();
        for _ in 0..ARENAS_MAX {
            match next {
                Some(place) if place == self => return true,
                Some(place) => next = place.next(),
                None => return false,
            }
        }
        false
    }

    fn next(self) -> Option<Place> {
        let next = usize::from_ne_bytes(read_own((self.top + NEXT_AT) as u64)?);
        let is_aligned = next != 0 && next.is_multiple_of(8);
        is_aligned.then(|| Place { top: next.wrapping_add(self.offset), ..self })
    }

    /// Tries to take the arena's lock for a bounded time.
    fn lock(self) -> Option<LockedArena> {
        // SAFETY: an arena of the list of arenas, which stay mapped. Its first word is the lock.
        let word = unsafe { AtomicI32::from_ptr(self.start() as *mut i32) };
        for _ in 0..LOCK_TRIES {
            if word.compare_exchange_weak(0, 1, Acquire, Relaxed).is_ok() {
                return Some(LockedArena { place: self, word });
            }
            core::hint::spin_loop();
        }
        None
    }
}

/// Returns whether an arena other than the main one may begin here: at the beginning of a heap.
fn may_be_heap(address: u64) -> bool {
    address >= HEAP_BYTES && address % HEAP_BYTES < HEAP_HEAD_MAX
}

/// Returns whether many bins of a `struct malloc_state` with this `top` would be empty: an empty
/// bin refers to itself as if it were a chunk.
fn has_empty_bins(top: usize) -> bool {
    // SAFETY: the caller has checked that the structure is within readable data; volatile because
    // other threads may change it.
    let bins = unsafe { core::ptr::read_volatile(&raw const (*(top as *const Arena)).bins) };
    let is_empty = |&(bin, ends): &(usize, [u64; 2])| ends == [head_of_bin(top, bin); 2];
    bins.into_iter().enumerate().filter(is_empty).count() >= EMPTY_BINS
}

/// Returns the address of the chunk that stands for a bin: its links are those of the bin.
fn head_of_bin(top: usize, bin: usize) -> u64 {
    const LINKS_AT: usize = core::mem::offset_of!(Chunk, next);
    const BINS_AT: usize = core::mem::offset_of!(Arena, bins);
    (top + BINS_AT + bin * size_of::<[u64; 2]>() - LINKS_AT) as u64
}

/// Finds the parameters in the data of the C library: the main arena reaches from their base to the
/// end of its top chunk. None if its memory is not contiguous or it has none.
fn find_parameters(data: Range, main: Place) -> Option<Parameters> {
    let base = {
        let arena = main.lock()?;
        let top = arena.top()?;
        top.high.checked_sub(arena.arena().system_bytes)?
    };
    const BASE_AT: u64 = core::mem::offset_of!(Parameters, base) as u64;
    let (first, end) = (data.low.next_multiple_of(8) + BASE_AT, data.high.checked_sub(7)?);
    (first..end).step_by(8).find_map(|at| {
        // SAFETY: within readable data; volatile because other threads may change it.
        if unsafe { core::ptr::read_volatile(at as *const u64) } != base {
            return None;
        }
        // SAFETY: as above.
        let found = unsafe { core::ptr::read_volatile((at - BASE_AT) as *const Parameters) };
        let is_plausible = found.mapped_bytes <= found.most_mapped_bytes
            && found.mapped_bytes.is_multiple_of(kernel::page_bytes());
        is_plausible.then_some(found)
    })
}

/// Bytes that an arena has from the system, and the free ones of them.
struct Usage {
    bytes: u64,
    free: u64,
}

/// An arena whose lock this thread holds.
struct LockedArena {
    place: Place,
    word: &'static AtomicI32,
}

impl LockedArena {
    fn arena(&self) -> &Arena {
        // SAFETY: an arena of the list of arenas, which only the holder of its lock changes.
        unsafe { &*(self.place.top as *const Arena) }
    }

    /// Returns the addresses of the top chunk; `None` if the arena has no memory or it is not
    /// contiguous.
    fn top(&self) -> Option<Range> {
        // SAFETY: the flags are the second word of the arena.
        let flags = unsafe { *(self.place.start() as *const i32).add(1) };
        let low = self.arena().top;
        let size = u64::from_ne_bytes(read_own(low.checked_add(8)?)?) & SIZE_MASK;
        let is_usable = flags & NOT_CONTIGUOUS == 0 && self.arena().system_bytes > 0;
        is_usable.then_some(Range { low, high: low.checked_add(size)? })
    }

    /// Adds up the free chunks. `base` is the first address of the main arena.
    fn usage(&self, base: Option<u64>) -> Option<Usage> {
        let arena = self.arena();
        let mut area = match base {
            Some(low) => Area::Main(Range { low, high: self.top()?.high }),
            None => Area::Heaps { arena: self.place.start() as u64, last: Range::EMPTY },
        };
        let mut free = area.chunk(arena.top)?.size & SIZE_MASK;
        let mut count = 0;
        for (bin, ends) in arena.bins.iter().enumerate() {
            let head = head_of_bin(self.place.top, bin);
            let (mut previous, mut at) = (head, ends[0]);
            while at != head {
                let chunk = area.chunk(at)?;
                count += 1;
                if chunk.previous != previous || count > CHUNKS_MAX {
                    return None;
                }
                free = free.checked_add(chunk.size & SIZE_MASK)?;
                (previous, at) = (at, chunk.next);
            }
        }
        let fast = self.fast_bins(&mut area)?;
        Some(Usage { bytes: arena.system_bytes, free: free.checked_add(fast)? })
    }

    /// Adds up the chunks in the bins for small ones, which are linked in one direction.
    fn fast_bins(&self, area: &mut Area) -> Option<u64> {
        let first = (self.place.top as *const u64).wrapping_sub(FAST_BINS);
        let (mut free, mut count) = (0, 0);
        for bin in 0..FAST_BINS {
            // SAFETY: the bins are the words before `top`; volatile because threads that free push
            // onto them without the lock.
            let mut at = unsafe { first.wrapping_add(bin).read_volatile() };
            let bytes = CHUNK_MIN + bin as u64 * CHUNK_ALIGN;
            while at != 0 {
                let chunk = area.chunk(at)?;
                count += 1;
                if chunk.size & SIZE_MASK != bytes || count > CHUNKS_MAX {
                    return None;
                }
                free += bytes;
                at = next_fast(area, at, chunk, bytes)?;
            }
        }
        Some(free)
    }
}

/// Returns the chunk after one in a bin for small chunks; 0: none. Since glibc 2.32 the link is
/// combined with its own address.
fn next_fast(area: &mut Area, at: u64, chunk: &Chunk, bytes: u64) -> Option<u64> {
    const LINK_AT: u64 = core::mem::offset_of!(Chunk, next) as u64;
    let link = chunk.next;
    let combined = link ^ ((at + LINK_AT) >> 12);
    let mut fits =
        |at| at == 0 || area.chunk(at).is_some_and(|next| next.size & SIZE_MASK == bytes);
    [combined, link].into_iter().find(|&next| fits(next))
}

impl Drop for LockedArena {
    /// Unlocks as glibc does: 2 means that threads wait.
    fn drop(&mut self) {
        if self.word.swap(0, Release) > 1 {
            kernel::wake_one(self.word);
        }
    }
}

/// The memory in which the chunks of an arena may be.
enum Area {
    Main(Range),
    /// Heaps of this arena, and the memory of the one that was seen last.
    Heaps {
        arena: u64,
        last: Range,
    },
}

impl Area {
    /// Returns the chunk at an address, if all of it is in this memory.
    fn chunk(&mut self, at: u64) -> Option<&'static Chunk> {
        let range = match self {
            Area::Main(range) => *range,
            Area::Heaps { last, .. } if last.holds(at) => *last,
            Area::Heaps { arena, last } => {
                *last = heap_at(at, *arena)?;
                *last
            }
        };
        let is_inside = range.holds(at) && at.is_multiple_of(16) && range.high - at >= CHUNK_MIN;
        if !is_inside {
            return None;
        }
        // SAFETY: within memory of the arena.
        let chunk = unsafe { &*(at as *const Chunk) };
        let size = chunk.size & SIZE_MASK;
        (CHUNK_MIN / 2 <= size && size <= range.high - at).then_some(chunk)
    }
}

/// Returns the memory of the heap of an arena that contains an address.
fn heap_at(address: u64, arena: u64) -> Option<Range> {
    const BYTES: usize = size_of::<HeapInfo>();
    let low = address & !(HEAP_BYTES - 1);
    let words: [u8; BYTES] = read_own(low)?;
    // SAFETY: three numbers, for which any bytes are valid.
    let info: HeapInfo = unsafe { core::mem::transmute(words) };
    let is_of_arena = info.arena == arena && info.bytes <= HEAP_BYTES;
    is_of_arena.then(|| Range { low, high: low + info.bytes })
}

/// Reads memory of this process that may not be mapped.
fn read_own<const BYTES: usize>(address: u64) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    (kernel::try_read_own(address, &mut bytes) == Ok(BYTES)).then_some(bytes)
}
