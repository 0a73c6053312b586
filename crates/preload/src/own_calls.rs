//! Calls of functions that map memory by the C library of a static program: for its allocator, the
//! stacks of threads, and new processes. In a dynamic program these calls reach no hook.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heaptide_recorder::event::inside::Entry;

/// Those functions of glibc and musl. Compilers append a suffix to the names of some parts.
const CALLERS: [&[u8]; 48] = [
    // The allocator of glibc.
    b"sysmalloc",
    b"sysmalloc_mmap",
    b"sysmalloc_mmap_fallback",
    b"new_heap",
    b"alloc_new_heap",
    b"grow_heap",
    b"shrink_heap",
    b"heap_trim",
    b"systrim",
    b"munmap_chunk",
    b"mremap_chunk",
    b"_int_malloc",
    b"_int_free",
    b"_int_free_maybe_consolidate",
    b"_int_realloc",
    b"_int_memalign",
    b"malloc",
    b"free",
    b"calloc",
    b"realloc",
    b"__libc_malloc",
    b"__libc_free",
    b"__libc_calloc",
    b"__libc_realloc",
    b"__glibc_morecore",
    b"__default_morecore",
    b"__sbrk",
    b"sbrk",
    b"_dl_early_allocate",
    b"__libc_setup_tls",
    // The allocators of musl.
    b"__libc_malloc_impl",
    b"__malloc_alloc_meta",
    b"alloc_slot",
    b"alloc_group",
    b"free_group",
    b"nontrivial_free",
    b"__expand_heap",
    b"expand_heap",
    b"unmap_chunk",
    b"__simple_malloc",
    b"__lite_malloc",
    // Threads and processes.
    b"pthread_create",
    b"__pthread_create",
    b"__pthread_create_2_1",
    b"allocate_stack",
    b"__nptl_free_stacks",
    b"__nptl_deallocate_stack",
    b"__spawnix",
];

/// The most functions: several parts of one have one name.
const FUNCTIONS_MAX: usize = 96;

/// The start and the end of each; 0: none.
static FUNCTIONS: [[AtomicUsize; 2]; FUNCTIONS_MAX] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; FUNCTIONS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Notes a function of a static program if it is one of them.
pub fn note(name: &[u8], start: u64, bytes: usize) {
    let count = COUNT.load(Relaxed);
    if let Some(place) = FUNCTIONS.get(count).filter(|_| is_caller(name)) {
        place[0].store(start as usize, Relaxed);
        place[1].store((start as usize).wrapping_add(bytes), Relaxed);
        COUNT.store(count + 1, Release);
    }
}

/// Returns whether a function is one of them, or a part of one: `sysmalloc.part.0`.
fn is_caller(name: &[u8]) -> bool {
    let whole = name.split(|&byte| byte == b'.').next().unwrap_or(name);
    CALLERS.contains(&whole)
}

/// Returns whether the caller of a hook is one of these functions.
pub fn is_caller_of(entry: Entry) -> bool {
    let count = COUNT.load(Acquire);
    if count == 0 {
        return false;
    }
    // SAFETY: at the entry of a function of a static program, for which there is one processor, the
    // stack pointer is the address of the return address.
    let returns_to = unsafe { *(entry.sp as *const usize) };
    FUNCTIONS.iter().take(count).any(|[start, end]| {
        // The call may be the last instruction.
        returns_to > start.load(Relaxed) && returns_to <= end.load(Relaxed)
    })
}
