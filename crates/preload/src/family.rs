//! Families: allocators other than that of the C library, with their own function names
//! (`_rjem_malloc`, `mi_malloc`). Describes the names and meanings of their functions, which
//! [`crate::family_calls`] records.

use heaptide_format::Call;

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
    /// `(text, …)`, or `(heap, text, …)`: a copy with a zero byte.
    AllocateText,
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
    /// `(heap)`: all blocks of a heap.
    FreeHeap,
}

impl Shape {
    /// Returns whether it only creates blocks. If such a function is not intercepted, its blocks
    /// are not recorded, and all others are still correct.
    pub fn only_allocates(self) -> bool {
        use Shape::{Allocate, AllocateFlags, AllocateOut, AllocateSlow};
        use Shape::{AllocateProduct, AllocateProductSecond, AllocateSecond, AllocateText};
        let all = [
            Allocate,
            AllocateSecond,
            AllocateProduct,
            AllocateFlags,
            AllocateOut,
            AllocateProductSecond,
            AllocateText,
            AllocateSlow,
        ];
        all.contains(&self)
    }

    /// Returns whether other functions of the allocator continue in it.
    pub fn is_slow_path(self) -> bool {
        matches!(self, Shape::AllocateSlow | Shape::FreeSlow)
    }

    /// Returns whether the functions of an object can be intercepted without this one, if it cannot
    /// be changed.
    pub fn can_be_omitted(self) -> bool {
        self.only_allocates() || self.is_slow_path() || self == Shape::FreeHeap
    }

    /// Returns the kind of a function with this name after the prefix.
    pub fn kind(self, name: &str) -> Call {
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

/// A statistics function of an allocator that stays loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Statistics {
    /// `mallctl` of jemalloc, which is not called: it waits for locks.
    Jemalloc,
    /// `mi_process_info` of mimalloc.
    Mimalloc,
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
    /// The name, after the prefix, of a function that visits the blocks of a heap, with the
    /// arguments of mimalloc's.
    pub visit: Option<&'static str>,
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
    visit: None,
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
        visit: None,
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
        visit: Some("heap_visit_blocks"),
        functions: functions! {
            Allocate: "malloc" "malloc_small" "zalloc" "zalloc_small" "malloc_aligned";
            Allocate: "zalloc_aligned" "new" "new_nothrow" "new_aligned" "new_aligned_nothrow";
            Allocate: "malloc_aligned_at" "zalloc_aligned_at" "valloc" "pvalloc";
            AllocateSecond: "memalign" "aligned_alloc" "heap_malloc" "heap_zalloc";
            AllocateSecond: "heap_malloc_aligned" "heap_zalloc_aligned" "heap_malloc_small";
            AllocateSecond: "heap_malloc_aligned_at" "heap_zalloc_aligned_at" "heap_alloc_new";
            AllocateProduct: "calloc" "mallocn" "calloc_aligned" "calloc_aligned_at" "new_n";
            AllocateProductSecond: "heap_calloc" "heap_mallocn" "heap_calloc_aligned";
            AllocateProductSecond: "heap_calloc_aligned_at" "heap_alloc_new_n";
            AllocateText: "strdup" "strndup" "mbsdup" "heap_strdup" "heap_strndup";
            AllocateOut: "posix_memalign";
            Reallocate: "realloc" "rezalloc" "realloc_aligned" "rezalloc_aligned" "reallocf";
            Reallocate: "realloc_aligned_at" "rezalloc_aligned_at" "new_realloc" "expand";
            ReallocateProduct: "reallocn" "recalloc" "reallocarray" "new_reallocn";
            ReallocateProduct: "recalloc_aligned" "recalloc_aligned_at" "aligned_recalloc";
            ReallocateProduct: "aligned_offset_recalloc";
            ReallocateSecond: "heap_realloc" "heap_rezalloc" "heap_reallocf";
            ReallocateSecond: "heap_realloc_aligned" "heap_rezalloc_aligned";
            ReallocateSecond: "heap_realloc_aligned_at" "heap_rezalloc_aligned_at";
            ReallocateProductSecond: "heap_reallocn" "heap_recalloc" "heap_recalloc_aligned";
            ReallocateProductSecond: "heap_recalloc_aligned_at";
            Free: "free" "cfree" "free_size" "free_size_aligned" "free_aligned";
            FreeHeap: "heap_destroy";
        },
        inlining: Some(&ANY_INLINING),
    },
    Family {
        prefixes: &["tc_"],
        proof: &["newarray_nothrow", "deletearray_nothrow", "malloc_skip_new_handler"],
        statistics: None,
        usable: &["malloc_size"],
        sizes: Sizes::Requested,
        visit: None,
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
        visit: None,
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
        visit: None,
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
        visit: None,
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
        visit: None,
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
        visit: None,
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
