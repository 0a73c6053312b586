//! Families: allocators other than that of the C library, with their own function names
//! (`_rjem_malloc`, `mi_malloc`). Describes the names and meanings of their functions, and records
//! their calls.
//!
//! The size of each live block is stored, because many programs contain no function of the family
//! that returns it: the linker removes unused functions.

use crate::Preload;
use crate::allocator::{Address, NULL};
use crate::statistics::Statistics;
use crate::{arch, inlined};
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::Call;
use heaptide_recorder::event::inside::{Entry, Inside};
use heaptide_recorder::event::lane::LaneState;
use heaptide_recorder::event::record::{self, Moving, MovingNested};
use heaptide_recorder::event::step;
use heaptide_recorder::store::shadow::take_word;
use heaptide_recorder::store::shared::store;

/// The arguments and effect of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `(size, alignment?)`
    Allocate,
    /// `(heap or alignment, size)`
    AllocateSecond,
    /// `(count, size)`
    AllocateProduct,
    /// `(size, flags)`: jemalloc's.
    AllocateFlags,
    /// `(&out, alignment, size)`
    AllocateOut,
    /// `(old, size)`
    Reallocate,
    /// `(old, size, flags)`: jemalloc's.
    ReallocateFlags,
    /// `(old, count, size)`
    ReallocateProduct,
    /// `(block)`
    Free,
    /// `(heap, count, size)`
    AllocateProductSecond,
    /// `(heap, old, size)`
    ReallocateSecond,
    /// `(heap, old, count, size)`
    ReallocateProductSecond,
    /// `(old, alignment, size, …)`
    ReallocateThird,
    /// `(old, alignment, old size, size)`: the layout of Rust.
    ReallocateFourth,
    /// `(block, size, extra, flags)`: jemalloc's. In place; returns the size.
    Resize,
    /// `(allocator, block)`
    FreeSecond,
    /// `(allocator, old, old size, size)`
    ReallocateSecondFourth,
    /// `(size)`: see [`Inlining::slow_paths`].
    AllocateSlow,
    /// `(block)`: see [`Inlining::slow_paths`].
    FreeSlow,
}

impl Shape {
    /// Returns whether it only creates blocks. If such a function is not intercepted, its blocks
    /// are not recorded, and all others are still correct.
    pub fn only_allocates(self) -> bool {
        use Shape::{Allocate, AllocateFlags, AllocateOut, AllocateSlow};
        use Shape::{AllocateProduct, AllocateProductSecond, AllocateSecond};
        let all = [
            Allocate,
            AllocateSecond,
            AllocateProduct,
            AllocateFlags,
            AllocateOut,
            AllocateProductSecond,
            AllocateSlow,
        ];
        all.contains(&self)
    }

    /// Returns whether other functions of the allocator continue in it.
    pub fn is_slow_path(self) -> bool {
        matches!(self, Shape::AllocateSlow | Shape::FreeSlow)
    }

    /// Returns the kind of a function with this name after the prefix.
    fn kind(self, name: &str) -> Call {
        let is = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        if !self.only_allocates() {
            Call::Realloc
        } else if self == Shape::AllocateFlags {
            Call::Other
        } else if name.starts_with("new") || name.starts_with("_Zn") {
            Call::New
        } else if is(&["calloc", "zalloc", "zeroed"]) {
            Call::Calloc
        } else if is(&["align", "valloc"]) {
            Call::Aligned
        } else {
            Call::Malloc
        }
    }
}

macro_rules! functions {
    ($($shape:ident: $($name:literal)*;)*) => {
        &[$($(($name, Shape::$shape),)*)*]
    };
}

/// The usable size of a requested block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// The size class of jemalloc.
    Jemalloc,
    /// The requested size.
    Requested,
}

/// How callers of an allocator's functions may do without the call, because the compiler inlined
/// the function.
pub struct Inlining {
    /// The functions in which inlined functions continue if their fast path fails, which includes
    /// the first call of each thread. Names after the prefix, or after the prefix and `je_`.
    pub slow_paths: &'static [(&'static str, Shape)],
    /// Callers of known libraries, which are recorded in place of what they inline: the prefix of
    /// the library's allocator, the symbol, and its shape.
    pub callers: &'static [(&'static str, &'static str, Shape)],
}

/// The common start of the symbols of [`Inlining::callers`].
pub const CALLERS: &[u8] = b"_ZN6duckdb9Allocator";

static JEMALLOC_INLINING: Inlining = Inlining {
    slow_paths: functions! {
        AllocateSlow: "malloc_default";
        FreeSlow: "free_default" "sdallocx_default";
    },
    callers: &[
        (
            "duckdb_je_",
            "_ZN6duckdb9Allocator15DefaultAllocateEPNS_20PrivateAllocatorDataEm",
            Shape::AllocateSecond,
        ),
        (
            "duckdb_je_",
            "_ZN6duckdb9Allocator11DefaultFreeEPNS_20PrivateAllocatorDataEPhm",
            Shape::FreeSecond,
        ),
        (
            "duckdb_je_",
            "_ZN6duckdb9Allocator17DefaultReallocateEPNS_20PrivateAllocatorDataEPhmm",
            Shape::ReallocateSecondFourth,
        ),
    ],
};

/// An allocator whose slow paths have no known names.
static ANY_INLINING: Inlining = Inlining { slow_paths: &[], callers: &[] };

/// An allocator.
pub struct Family {
    /// The prefixes of its functions' names that are known.
    pub prefixes: &'static [&'static str],
    /// Names after the prefix, which together occur only in this allocator: with all of them, any
    /// prefix is one of the family. A library that only wraps an allocator has `malloc` and `free`,
    /// too, but not these.
    pub proof: &'static [&'static str],
    /// The name, after the prefix, of a function that returns statistics.
    pub statistics: Option<(&'static str, Statistics)>,
    /// Names, after the prefix, of functions that return the size of a block.
    pub usable: &'static [&'static str],
    /// Sizes without such a function.
    pub sizes: Sizes,
    /// Names after the prefix.
    pub functions: &'static [(&'static str, Shape)],
    /// Whether its functions have fast paths that are short enough to be inlined.
    pub inlining: Option<&'static Inlining>,
}

impl Family {
    /// Returns the names of its functions after the prefix, and those of operators.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let rows = self.functions.iter().chain(OPERATORS).map(|(name, _)| *name);
        rows.chain(self.usable.iter().copied())
    }

    /// Returns the arguments and effect of a function by its name after the prefix.
    pub fn shape(&self, name: &[u8]) -> Option<(&'static str, Shape)> {
        let mut rows = self.functions.iter().chain(OPERATORS);
        rows.find(|(known, _)| known.as_bytes() == name).copied()
    }

    /// Returns whether a prefix is known without proof.
    pub fn is_known(&self, prefix: &str) -> bool {
        self.prefixes.contains(&prefix)
    }
}

impl Inlining {
    /// Returns the slow path with this name after the allocator's prefix. Internal functions can
    /// have a private prefix that ends with `je_` (`--with-private-namespace`).
    pub fn slow_path(&self, name: &[u8]) -> Option<(&'static str, Shape)> {
        let private = name.windows(3).rposition(|bytes| bytes == b"je_");
        let name = private.map_or(name, |at| &name[at + 3..]);
        self.slow_paths.iter().find(|(known, _)| known.as_bytes() == name).copied()
    }

    /// Returns the caller with this symbol, if its library has an allocator of this prefix.
    pub fn caller(&self, prefix: &str, symbol: &[u8]) -> Option<(&'static str, Shape)> {
        let is_it =
            |(of, known, _): &&(&str, &str, Shape)| *of == prefix && known.as_bytes() == symbol;
        self.callers.iter().find(is_it).map(|&(_, known, shape)| (known, shape))
    }
}

/// The operators of C++, which have no prefix.
const OPERATORS: &[(&str, Shape)] = functions! {
    Allocate: "_Znwm" "_Znam" "_ZnwmRKSt9nothrow_t" "_ZnamRKSt9nothrow_t";
    Allocate: "_ZnwmSt11align_val_t" "_ZnamSt11align_val_t";
    Allocate: "_ZnwmSt11align_val_tRKSt9nothrow_t" "_ZnamSt11align_val_tRKSt9nothrow_t";
    Free: "_ZdlPv" "_ZdaPv" "_ZdlPvm" "_ZdaPvm" "_ZdlPvRKSt9nothrow_t" "_ZdaPvRKSt9nothrow_t";
    Free: "_ZdlPvSt11align_val_t" "_ZdaPvSt11align_val_t" "_ZdlPvmSt11align_val_t";
    Free: "_ZdaPvmSt11align_val_t" "_ZdlPvSt11align_val_tRKSt9nothrow_t";
    Free: "_ZdaPvSt11align_val_tRKSt9nothrow_t";
};

/// An allocator with the names of the C library's, in an object whose functions the program does
/// not use: a second C library (`dlmopen`, `LD_AUDIT`), or a library that uses its own `malloc`
/// (`RTLD_DEEPBIND`, `-Bsymbolic`).
pub static STANDARD: Family = Family {
    prefixes: &[""],
    proof: &[],
    statistics: None,
    usable: &["malloc_usable_size"],
    sizes: Sizes::Requested,
    functions: functions! {
        Allocate: "malloc" "valloc" "pvalloc";
        AllocateSecond: "memalign" "aligned_alloc";
        AllocateProduct: "calloc";
        AllocateFlags: "mallocx";
        AllocateOut: "posix_memalign";
        Reallocate: "realloc";
        ReallocateFlags: "rallocx";
        ReallocateProduct: "reallocarray";
        Resize: "xallocx";
        Free: "free" "cfree" "dallocx" "sdallocx" "free_sized" "free_aligned_sized";
    },
    inlining: None,
};

/// All known families with names of their own.
pub static FAMILIES: [Family; 8] = [
    Family {
        prefixes: &["_rjem_", "je_"],
        proof: &["mallocx", "sdallocx", "nallocx", "mallctl"],
        statistics: Some(("mallctl", Statistics::Jemalloc)),
        usable: &["malloc_usable_size", "sallocx"],
        sizes: Sizes::Jemalloc,
        functions: functions! {
            Allocate: "malloc" "valloc" "pvalloc";
            AllocateSecond: "memalign" "aligned_alloc";
            AllocateProduct: "calloc";
            AllocateFlags: "mallocx";
            AllocateOut: "posix_memalign";
            Reallocate: "realloc";
            ReallocateFlags: "rallocx";
            Resize: "xallocx";
            Free: "free" "cfree" "dallocx" "sdallocx" "free_sized" "free_aligned_sized";
            Free: "je_free_sized" "je_free_aligned_sized";
        },
        inlining: Some(&JEMALLOC_INLINING),
    },
    Family {
        prefixes: &["mi_"],
        proof: &["heap_malloc", "heap_zalloc", "usable_size", "process_info"],
        statistics: Some(("process_info", Statistics::Mimalloc)),
        usable: &["usable_size", "malloc_usable_size"],
        sizes: Sizes::Requested,
        functions: functions! {
            Allocate: "malloc" "malloc_small" "zalloc" "zalloc_small" "malloc_aligned";
            Allocate: "zalloc_aligned" "new" "new_nothrow" "new_aligned" "new_aligned_nothrow";
            AllocateSecond: "memalign" "aligned_alloc" "heap_malloc" "heap_zalloc";
            AllocateSecond: "heap_malloc_aligned" "heap_zalloc_aligned" "heap_malloc_small";
            AllocateProduct: "calloc" "mallocn" "calloc_aligned";
            AllocateProductSecond: "heap_calloc" "heap_mallocn" "heap_calloc_aligned";
            AllocateOut: "posix_memalign";
            Reallocate: "realloc" "rezalloc" "realloc_aligned" "rezalloc_aligned" "reallocf";
            Reallocate: "expand";
            ReallocateProduct: "reallocn" "recalloc" "reallocarray";
            ReallocateSecond: "heap_realloc" "heap_rezalloc" "heap_reallocf";
            ReallocateSecond: "heap_realloc_aligned" "heap_rezalloc_aligned";
            ReallocateProductSecond: "heap_reallocn" "heap_recalloc";
            Free: "free" "cfree" "free_size" "free_size_aligned" "free_aligned";
        },
        inlining: Some(&ANY_INLINING),
    },
    Family {
        prefixes: &["tc_"],
        proof: &["newarray_nothrow", "deletearray_nothrow", "malloc_skip_new_handler"],
        statistics: None,
        usable: &["malloc_size"],
        sizes: Sizes::Requested,
        functions: functions! {
            Allocate: "malloc" "valloc" "pvalloc" "new" "newarray" "new_nothrow";
            Allocate: "newarray_nothrow" "new_aligned" "newarray_aligned";
            AllocateSecond: "memalign";
            AllocateProduct: "calloc";
            AllocateOut: "posix_memalign";
            Reallocate: "realloc";
            Free: "free" "free_sized" "cfree" "delete" "delete_sized" "delete_nothrow";
            Free: "deletearray" "deletearray_sized" "deletearray_nothrow" "delete_aligned";
            Free: "deletearray_aligned" "delete_sized_aligned" "deletearray_sized_aligned";
        },
        inlining: Some(&ANY_INLINING),
    },
    Family {
        prefixes: &["rp"],
        proof: &["malloc_thread_initialize", "malloc_finalize", "aligned_realloc"],
        statistics: None,
        usable: &["malloc_usable_size"],
        sizes: Sizes::Requested,
        functions: functions! {
            Allocate: "malloc" "zalloc";
            AllocateSecond: "aligned_alloc" "memalign";
            AllocateProduct: "calloc";
            AllocateProductSecond: "aligned_calloc";
            AllocateOut: "posix_memalign";
            Reallocate: "realloc";
            ReallocateThird: "aligned_realloc";
            Free: "free";
        },
        inlining: Some(&ANY_INLINING),
    },
    Family {
        prefixes: &["sn_rust_"],
        proof: &[],
        statistics: None,
        usable: &["usable_size"],
        sizes: Sizes::Requested,
        functions: functions! {
            AllocateSecond: "alloc" "alloc_zeroed";
            ReallocateFourth: "realloc";
            Free: "dealloc";
        },
        inlining: None,
    },
    // The scalable allocator of oneTBB.
    Family {
        prefixes: &["scalable_"],
        proof: &["allocation_mode", "allocation_command", "msize"],
        statistics: None,
        usable: &["msize"],
        sizes: Sizes::Requested,
        functions: functions! {
            Allocate: "malloc" "aligned_malloc";
            AllocateProduct: "calloc";
            AllocateOut: "posix_memalign";
            Reallocate: "realloc" "aligned_realloc";
            Free: "free" "aligned_free";
        },
        inlining: None,
    },
    // dlmalloc with `USE_DL_PREFIX`.
    Family {
        prefixes: &[],
        proof: &["malloc_footprint", "malloc_max_footprint", "malloc_trim", "malloc_usable_size"],
        statistics: None,
        usable: &["malloc_usable_size"],
        sizes: Sizes::Requested,
        functions: functions! {
            Allocate: "malloc" "valloc" "pvalloc";
            AllocateSecond: "memalign";
            AllocateProduct: "calloc";
            AllocateOut: "posix_memalign";
            Reallocate: "realloc" "realloc_in_place";
            Free: "free";
        },
        inlining: None,
    },
    // GrapheneOS' hardened_malloc.
    Family {
        prefixes: &[],
        proof: &["malloc_object_size", "malloc_object_size_fast", "malloc_usable_size"],
        statistics: None,
        usable: &["malloc_usable_size"],
        sizes: Sizes::Requested,
        functions: functions! {
            Allocate: "malloc" "valloc" "pvalloc";
            AllocateSecond: "memalign" "aligned_alloc";
            AllocateProduct: "calloc";
            AllocateOut: "posix_memalign";
            Reallocate: "realloc";
            Free: "free" "cfree" "free_sized";
        },
        inlining: None,
    },
];

/// A function with up to six arguments; additional ones are ignored.
pub type Moved = extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// The argument registers in order, followed by the result register.
type Registers = [usize; 7];

/// The body of an intercepted function. Returns the value for the result register.
type Body = extern "C" fn(&Registers, sp: u64, bp: u64, function: &Function) -> usize;

/// An intercepted function. The stub at its entry passes it to [`entry`].
#[repr(C)]
pub struct Function {
    /// The first field, because `entered` calls it.
    body: Body,
    /// The moved function, callable with the function's arguments.
    pub moved: Moved,
    /// Returns the size of a block, if the object's allocator has such a function.
    pub usable: Option<extern "C" fn(Address, usize) -> usize>,
    pub sizes: Sizes,
    pub shape: Shape,
    /// Its kind, for sites recorded by call.
    pub kind: Call,
}

impl Function {
    pub fn new(
        name: &str,
        moved: Moved,
        usable: Option<extern "C" fn(Address, usize) -> usize>,
        sizes: Sizes,
        shape: Shape,
    ) -> Function {
        let body: Body = match shape {
            Shape::AllocateOut => allocate_out,
            Shape::Reallocate
            | Shape::ReallocateFlags
            | Shape::ReallocateProduct
            | Shape::ReallocateSecond => reallocate,
            Shape::ReallocateProductSecond
            | Shape::ReallocateSecondFourth
            | Shape::ReallocateThird
            | Shape::ReallocateFourth
            | Shape::Resize => long,
            Shape::Free | Shape::FreeSecond | Shape::FreeSlow => free,
            Shape::AllocateSlow => allocate_slow,
            _ => allocate,
        };
        Function { body, moved, usable, sizes, shape, kind: shape.kind(name) }
    }

    fn call(&self, a: usize, b: usize, c: usize) -> usize {
        (self.moved)(a, b, c, 0, 0, 0)
    }

    /// Returns the requested size, and the alignment in jemalloc's flags, if any.
    fn request(&self, a: usize, b: usize, c: usize) -> (usize, u32) {
        /// The logarithm of the alignment in jemalloc's flags.
        const LG_ALIGN: usize = 63;
        match self.shape {
            Shape::Allocate | Shape::AllocateSlow | Shape::Free | Shape::FreeSlow => (a, 0),
            Shape::AllocateSecond | Shape::FreeSecond | Shape::Reallocate => (b, 0),
            Shape::AllocateProduct => (a.saturating_mul(b), 0),
            Shape::AllocateFlags => (a, (b & LG_ALIGN) as u32),
            Shape::AllocateOut => (c, 0),
            Shape::ReallocateFlags => (b, (c & LG_ALIGN) as u32),
            Shape::ReallocateProduct | Shape::AllocateProductSecond => (b.saturating_mul(c), 0),
            Shape::ReallocateSecond => (c, 0),
            // These need all arguments: see `long`.
            Shape::ReallocateProductSecond
            | Shape::ReallocateSecondFourth
            | Shape::ReallocateThird
            | Shape::ReallocateFourth
            | Shape::Resize => (0, 0),
        }
    }

    /// Returns the usable size of a new block.
    fn usable(&self, block: Address, (size, lg_align): (usize, u32)) -> u64 {
        match (self.usable, self.sizes) {
            (Some(usable), _) => usable(block, 0) as u64,
            (None, Sizes::Jemalloc) => {
                let aligned = (size as u64).checked_next_multiple_of(1 << lg_align);
                size_class(aligned.unwrap_or(size as u64))
            }
            (None, Sizes::Requested) => size as u64,
        }
    }
}

/// Returns jemalloc's size class for a request: four per power of two, at least 16 apart, and 8
/// (`sz_s2u_compute` in jemalloc).
fn size_class(size: u64) -> u64 {
    const TINY: u64 = 8;
    const QUANTUM_LG: u32 = 4;
    const GROUP_LG: u32 = 2;
    if size <= TINY {
        return TINY;
    }
    let lg = (2 * size - 1).ilog2();
    let step = lg.saturating_sub(GROUP_LG + 1).max(QUANTUM_LG);
    size.checked_next_multiple_of(1 << step).unwrap_or(size)
}

/// Larger sizes are stored in pages, with this bit set.
const IN_PAGES: u32 = 1 << 31;
const PAGE_BITS: u32 = 12;

/// Returns the number that stands for a size in the table.
#[inline(always)]
fn number_of(usable: u64) -> u32 {
    let bytes = u32::try_from(usable).ok().filter(|bytes| bytes & IN_PAGES == 0);
    bytes.unwrap_or(IN_PAGES | (usable >> PAGE_BITS) as u32).max(1)
}

/// Stores the size of a new block.
pub fn keep_size(block: Address, usable: u64) {
    store().sizes.put(block, number_of(usable));
}

/// Does the same with the lane's cache of the table.
#[inline(always)]
pub fn keep_size_in(lane: &mut LaneState, block: Address, usable: u64) {
    match lane.size_leaves.word(block) {
        Some(word) => word.store(number_of(usable), Relaxed),
        None => keep_size_in_leaf(lane, block, usable),
    }
}

#[inline(never)]
fn keep_size_in_leaf(lane: &mut LaneState, block: Address, usable: u64) {
    let sizes = &store().sizes;
    if sizes.is_made() {
        keep_size(block, usable);
        lane.size_leaves.find(sizes, block);
    }
}

/// Returns and removes the size of a block likewise; `None` if it was not recorded.
#[inline(always)]
pub fn take_size_in(lane: &mut LaneState, block: Address) -> Option<u64> {
    match lane.size_leaves.word(block) {
        Some(word) => bytes(take_word(word)),
        None => take_size_in_leaf(lane, block),
    }
}

#[inline(never)]
fn take_size_in_leaf(lane: &mut LaneState, block: Address) -> Option<u64> {
    let sizes = &store().sizes;
    if !sizes.is_made() {
        return None;
    }
    bytes(take_word(lane.size_leaves.find(sizes, block)?))
}

#[inline(always)]
fn bytes(number: u32) -> Option<u64> {
    let pages = (number & !IN_PAGES) as u64;
    let bytes = if number & IN_PAGES != 0 { pages << PAGE_BITS } else { pages };
    (number != 0).then_some(bytes)
}

/// Returns the size of a live block of any family.
pub fn size_of(block: Address) -> Option<u64> {
    let sizes = &store().sizes;
    if !sizes.is_made() {
        return None;
    }
    bytes(sizes.get(block as u64))
}

/// Returns and removes the size of a block; `None` if it was not recorded.
pub fn take_size(block: Address) -> Option<u64> {
    let sizes = &store().sizes;
    if !sizes.is_made() {
        return None;
    }
    bytes(sizes.take(block))
}

fn record_new(inside: &mut Inside, function: &Function, block: Address, request: (usize, u32)) {
    inside.lane().gate.note_call(function.kind);
    if block.is_null() {
        return step::on_failed_alloc(inside);
    }
    inside.lane().count_call(function.kind);
    let usable = function.usable(block, request);
    keep_size(block, usable);
    step::on_alloc_of_size(inside, block, (request.0 as u64).min(usable), usable);
}

extern "C" fn allocate(&[a, b, c, ..]: &Registers, sp: u64, bp: u64, function: &Function) -> usize {
    let entry = Entry { sp, bp };
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return function.call(a, b, c);
    };
    let block = function.call(a, b, c);
    record_new(&mut inside, function, block as Address, function.request(a, b, c));
    block
}

/// Blocks of at least this size never take an inlined fast path, to be allocated or freed: those of
/// jemalloc take blocks that share pages, which have at most 14 KiB, and 224 KiB with pages of
/// 64 KiB.
const ALWAYS_SLOW_BYTES: usize = 256 << 10;

/// The slow path of an allocation. If no function of the allocator was entered before, the compiler
/// inlined one: the allocations and frees of its fast path are unknown, so a recorded block could
/// seem to stay live. Only blocks that never take the fast path are recorded.
extern "C" fn allocate_slow(
    &[size, b, c, ..]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return function.call(size, b, c);
    };
    inlined::note();
    let block = function.call(size, b, c);
    if size >= ALWAYS_SLOW_BYTES {
        record_new(&mut inside, function, block as Address, (size, 0));
    }
    block
}

extern "C" fn allocate_out(
    &[a, b, c, ..]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return function.call(a, b, c);
    };
    let status = function.call(a, b, c);
    let block = match status as i32 {
        // SAFETY: posix_memalign's contract: it succeeded, so the first argument points to the
        // block.
        0 => unsafe { *(a as *const Address) },
        _ => NULL,
    };
    record_new(&mut inside, function, block, function.request(a, b, c));
    status
}

extern "C" fn reallocate(
    &[a, b, c, ..]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let old = if function.shape == Shape::ReallocateSecond { b } else { a } as Address;
    let request = function.request(a, b, c);
    change(old, request, entry, function, || function.call(a, b, c))
}

/// Resizes a block with `call`, usually moving it.
#[inline(always)]
fn change(
    old: Address,
    request: (usize, u32),
    entry: Entry,
    function: &Function,
    call: impl FnOnce() -> usize,
) -> usize {
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return reallocate_nested(old, call);
    };
    let Some(had) = take_size(old) else {
        let block = call();
        record_new(&mut inside, function, block as Address, request);
        return block;
    };
    let moving = Moving::begin(&mut inside, old, had);
    let result = call();
    let block = result as Address;
    if !block.is_null() {
        let usable = function.usable(block, request);
        keep_size(block, usable);
        step::on_realloc(&mut inside, moving, block, request.0 as u64, usable);
    } else if request.0 == 0 {
        step::on_realloc_to_nothing(&mut inside, moving);
    } else {
        keep_size(old, had);
        step::on_failed_realloc(&mut inside, moving);
    }
    result
}

/// A reallocation in a signal handler or in the allocator itself: the new block is not recorded.
#[cold]
fn reallocate_nested(old: Address, call: impl FnOnce() -> usize) -> usize {
    let Some(had) = take_size(old) else {
        return call();
    };
    let moving = MovingNested::begin(old, |_| had);
    let block = call();
    if block == 0 {
        keep_size(old, had);
    }
    moving.end(block as Address);
    block
}

extern "C" fn free(
    &[a, b, c, .., result]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let block = if function.shape == Shape::FreeSecond { b } else { a } as Address;
    // A block that was not recorded, or that an outer call has freed, counts nothing.
    if let Some(usable) = take_size(block) {
        if function.shape == Shape::FreeSlow {
            inlined::note();
        }
        match Inside::enter::<Preload>(entry) {
            Some(mut inside) => step::on_free_of_size(&mut inside, block, usable),
            None => record::count_nested_free(block, || usable),
        }
    }
    function.call(a, b, c);
    result
}

/// Returns the target of the stubs of all functions.
pub fn entry() -> u64 {
    arch::family_entry!()
}

/// Functions with more than three arguments.
extern "C" fn long(
    &[a, b, c, d, e, f, _]: &Registers,
    sp: u64,
    bp: u64,
    function: &Function,
) -> usize {
    let entry = Entry { sp, bp };
    let call = || (function.moved)(a, b, c, d, e, f);
    let (old, size) = match function.shape {
        Shape::Resize => return resize(a as Address, b, entry, call),
        Shape::ReallocateProductSecond => (b, c.saturating_mul(d)),
        Shape::ReallocateSecondFourth => (b, d),
        Shape::ReallocateFourth => (a, d),
        _ => (a, c),
    };
    change(old as Address, (size, 0), entry, function, call)
}

/// Resizes a block in place with `call`, as far as possible; `call` returns the size.
fn resize(block: Address, size: usize, entry: Entry, call: impl FnOnce() -> usize) -> usize {
    let Some(mut inside) = Inside::enter::<Preload>(entry) else {
        return call();
    };
    let before = size_of(block);
    let after = call();
    if let Some(before) = before.filter(|&before| before != after as u64) {
        keep_size(block, after as u64);
        step::on_resize(&mut inside, block, size as u64, before, after as u64);
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_paths_are_found_behind_a_private_prefix() {
        let slow_path = |name: &[u8]| JEMALLOC_INLINING.slow_path(name).map(|(known, _)| known);
        for name in ["malloc_default", "je_malloc_default", "private_je_malloc_default"] {
            assert_eq!(slow_path(name.as_bytes()), Some("malloc_default"), "{name}");
        }
        for name in ["malloc", "je_", "je_malloc_default_", "xmalloc_default"] {
            assert_eq!(slow_path(name.as_bytes()), None, "{name}");
        }
    }
}
