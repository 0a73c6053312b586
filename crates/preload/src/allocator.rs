//! The allocator of the process: finds it, and reads the usable sizes of its blocks.

use crate::next_symbol::{self, call_real, real};
use crate::{attachment, intercept, own_allocator};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use heaptide_format::Unrecorded;
use heaptide_recorder::sys::front::{self, MAYBE_UNMAPPED};
use heaptide_recorder::sys::loader::{LinkMap, file_name, look_up, objects};

real! {
    pub static REAL_MALLOC = "malloc", extern "C" fn(usize) -> Address;
    pub static REAL_FREE = "free", extern "C" fn(Address);
    static REAL_USABLE = "malloc_usable_size", extern "C" fn(Address) -> usize;
    static NALLOCX = "nallocx", extern "C" fn(usize, i32) -> usize;
}

/// Finds the allocator, and intercepts it if its functions precede ours.
///
/// Errors: there is none, or it does not report the size of its blocks. (If an allocator in front
/// of libc's lacks malloc_usable_size, libc's must not be called for its blocks.)
pub fn find() -> Result<(), Unrecorded> {
    next_symbol::note_objects();
    intercept::prepare();
    if object().is_some() {
        return Ok(());
    }
    if attachment::is_inserted() && own_allocator::object().is_none() {
        return Ok(()); // its functions are those of a family
    }
    let found = (next_symbol::find(b"malloc\0"), next_symbol::find(b"malloc_usable_size\0"));
    let (Some(malloc), Some(usable)) = found else {
        return Err(Unrecorded::NoUsableSize);
    };
    let is_glibc = malloc.is_in(b"libc.so.6") || is_static_glibc(malloc.body);
    if is_glibc && HEADERS.load(Relaxed) == 0 {
        HEADERS.store(Headers::Checking as u32, Relaxed);
    }
    let is_whole = malloc.object == usable.object && REAL_FREE.get() != 0 && REAL_MALLOC.get() != 0;
    if !is_whole {
        return Err(Unrecorded::NoUsableSize);
    }
    OBJECT.store(malloc.object.cast_mut(), Release);
    Ok(())
}

/// Returns whether a static program's malloc is that of glibc, which has a second name.
fn is_static_glibc(malloc: usize) -> bool {
    let same = |object: &LinkMap| look_up(object, b"__libc_malloc\0").map(|found| found.0);
    attachment::is_inserted() && objects().next().and_then(same) == Some(malloc)
}

/// The object that defines malloc, which is not unloaded; null: not found yet. It is searched only
/// before the first event: later, another thread may unload an object while the loader's list is
/// read, in a forked child, too, whose parent had threads.
static OBJECT: AtomicPtr<LinkMap> = AtomicPtr::new(ptr::null_mut());

/// Returns the object that defines malloc.
pub fn object() -> Option<&'static LinkMap> {
    // SAFETY: null, or an entry of the loader's list that stays in it.
    unsafe { OBJECT.load(Acquire).as_ref() }
}

/// Returns whether the program runs under a valgrind tool that replaces the allocator; most do so
/// with a separate library next to valgrind's core.
pub fn is_under_valgrind() -> bool {
    let files = objects().map(file_name);
    let mut tools = files.filter_map(|file| file.strip_prefix(b"vgpreload_"));
    tools.any(|tool| !tool.starts_with(b"core"))
}

/// Returns whether the allocator is glibc's.
pub fn is_glibc() -> bool {
    HEADERS.load(Relaxed) != 0
}

pub type Address = *mut u8;

pub const NULL: Address = core::ptr::null_mut();

/// Returns the usable size of a block that the program passes in. If there are headers, they are
/// read even before they are trusted: malloc_usable_size may crash on an address that is no block,
/// whereas the allocator's own free reports that.
#[inline(always)]
pub fn usable(block: Address) -> u64 {
    if has_headers() { usable_by_header(header(block)) } else { usable_by_call(block) }
}

/// Returns whether the allocator is glibc's, and no header was found wrong.
#[inline(always)]
fn has_headers() -> bool {
    let state = HEADERS.load(Relaxed);
    state == Headers::Trusted as u32 || state == Headers::Checking as u32
}

/// Returns whether glibc's block headers have been validated.
#[inline(always)]
pub fn headers_are_trusted() -> bool {
    HEADERS.load(Relaxed) == Headers::Trusted as u32
}

/// Reads glibc's block header: the chunk's size in the word before the block, with flags in its low
/// bits.
#[inline(always)]
fn header(block: Address) -> u64 {
    // SAFETY: a live block of glibc has a header there.
    unsafe { *(block as *const u64).wrapping_sub(1) }
}

/// In a header: the chunk is a mapping, which has two words of overhead instead of one.
const MAPPING: u64 = 2;

/// Returns the usable size of a block if its header is trusted and has none of these bits, which
/// must include `MAPPING`.
#[inline(always)]
fn usable_without(block: Address, bits: u64) -> Option<u64> {
    let size = header(block);
    (size & bits == 0).then_some((size & !7).wrapping_sub(8))
}

/// Returns the usable size of a block with a trusted header; `None` for a mapping.
#[inline(always)]
pub fn usable_unmapped(block: Address) -> Option<u64> {
    usable_without(block, MAPPING)
}

/// Like `usable_unmapped`, with one comparison; `None` from [`MAYBE_UNMAPPED`] bytes on, including
/// the chunk's header.
#[inline(always)]
pub fn usable_below_maybe_unmapped(block: Address) -> Option<u64> {
    usable_without(block, !(MAYBE_UNMAPPED - 1) | MAPPING)
}

/// Returns whether an address has the alignment of glibc's blocks.
#[inline(always)]
pub fn is_aligned(address: Address) -> bool {
    (address as usize).is_multiple_of(16)
}

/// Returns whether the allocator cannot have returned a block at this address.
#[inline(always)]
pub fn is_no_block(address: Address) -> bool {
    has_headers() && !is_aligned(address)
}

/// Returns the usable size from a block's header, once headers are trusted.
#[inline(always)]
fn trusted_header(block: Address) -> Option<u64> {
    headers_are_trusted().then(|| usable_by_header(header(block)))
}

/// Returns the usable size from a header.
#[inline(always)]
fn usable_by_header(size: u64) -> u64 {
    (size & !7).wrapping_sub(8 + ((size & MAPPING) << 2))
}

/// glibc's malloc_usable_size only reads the chunk's header; reading it here saves two calls per
/// event. This is done once both have agreed on this many blocks in this process.
const AGREEMENTS: u32 = 64;

/// The state changes from New to Checking to Trusted or Refused.
enum Headers {
    Checking = 1,
    Trusted = 2,
    Refused = 3,
}

static HEADERS: AtomicU32 = AtomicU32::new(0);
static AGREED: AtomicU32 = AtomicU32::new(0);

#[cold]
#[inline(never)]
fn usable_by_call(block: Address) -> u64 {
    let asked = call_real!(REAL_USABLE, (block), 0) as u64;
    if HEADERS.load(Relaxed) == Headers::Checking as u32 {
        if usable_by_header(header(block)) != asked {
            HEADERS.store(Headers::Refused as u32, Relaxed);
        } else if AGREED.fetch_add(1, Relaxed) >= AGREEMENTS {
            HEADERS.store(Headers::Trusted as u32, Relaxed);
            front::set_sizes_at_hand();
        }
    }
    asked
}

/// Returns the usable size of a new block. tcmalloc returns 0 until it is initialized, and the
/// right size later; that equals the size that it would return for the request.
#[inline(always)]
pub fn usable_new(block: Address, requested: u64) -> u64 {
    match trusted_header(block) {
        Some(bytes) => bytes,
        None => match usable_by_call(block) {
            0 if requested > 0 => usable_by_request(requested),
            bytes => bytes,
        },
    }
}

#[cold]
fn usable_by_request(requested: u64) -> u64 {
    let bytes = call_real!(NALLOCX, (requested as usize, 0), 0);
    if bytes == 0 { requested } else { bytes as u64 }
}
