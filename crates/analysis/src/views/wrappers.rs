//! Wrappers of allocation functions: a reader wants to know what called them.

/// Whole names: the C library, the wrappers of libiberty and gnulib, redis, glib, CPython, Rust.
const NAMES: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xreallocarray",
    "xzalloc",
    "xnmalloc",
    "zmalloc",
    "zmalloc_usable",
    "zcalloc",
    "zcalloc_usable",
    "zrealloc",
    "zrealloc_usable",
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_realloc",
    "g_realloc_n",
    "g_try_malloc",
    "PyMem_Malloc",
    "PyMem_Calloc",
    "PyMem_Realloc",
    "PyMem_RawMalloc",
    "PyMem_RawCalloc",
    "PyMem_RawRealloc",
    "_PyMem_RawMalloc",
    "_PyMem_RawCalloc",
    "_PyMem_RawRealloc",
    "PyObject_Malloc",
    "_PyObject_Malloc",
    "_PyObject_Calloc",
    "_PyObject_Realloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "alloc::alloc::alloc",
    "alloc::alloc::alloc_zeroed",
    "alloc::alloc::realloc",
    "alloc::alloc::exchange_malloc",
    "alloc::alloc::Global::alloc_impl",
    "alloc::alloc::Global::alloc_impl_runtime",
    "alloc::alloc::Global::grow_impl",
    "alloc::alloc::Global::grow_impl_runtime",
    "<alloc::alloc::Global>::alloc_impl",
    "<alloc::alloc::Global>::alloc_impl_runtime",
    "<alloc::alloc::Global>::grow_impl",
    "<alloc::alloc::Global>::grow_impl_runtime",
    "alloc::boxed::box_new_uninit",
    "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
    "<alloc::alloc::Global as core::alloc::Allocator>::allocate_zeroed",
    "<alloc::alloc::Global as core::alloc::Allocator>::grow",
];

/// Ends of names: Rust's allocation symbols, whatever path they are demangled with.
const ENDS: &[&str] = &[
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "__rdl_alloc",
    "__rdl_alloc_zeroed",
    "__rdl_realloc",
    "__rg_alloc",
    "__rg_alloc_zeroed",
    "__rg_realloc",
    "GlobalAlloc>::alloc",
    "GlobalAlloc>::alloc_zeroed",
    "GlobalAlloc>::realloc",
    "for std::alloc::System>::alloc",
    "for std::alloc::System>::alloc_zeroed",
    "for std::alloc::System>::realloc",
];

/// Starts of names: methods of a program's own allocator in Rust (`heaptide::Recorder` is one), as
/// line tables have them, without the type that they are of.
const STARTS: &[&str] = &["alloc<", "alloc_zeroed<", "realloc<"];

/// Classes whose `allocate` is meant, by the start of their names.
const ALLOCATORS: &[&str] = &[
    "std::allocator<",
    "std::allocator_traits<",
    "std::__new_allocator<",
    "__gnu_cxx::new_allocator<",
    "__gnu_cxx::__alloc_traits<",
    "std::__1::allocator<",
    "std::__1::allocator_traits<",
];

/// Whether a function of this (demangled) name only hands allocations on.
///
/// ```
/// use heaptide_analysis::views::wrappers::is_wrapper;
/// assert!(is_wrapper("operator new(unsigned long)") && is_wrapper("__rustc::__rust_alloc"));
/// assert!(is_wrapper("std::__new_allocator<int>::allocate(unsigned long, void const*)"));
/// assert!(is_wrapper("<app::Arena as core::alloc::global::GlobalAlloc>::alloc"));
/// assert!(!is_wrapper("std::vector<int>::push_back(int&&)") && !is_wrapper("mallocate"));
/// ```
pub fn is_wrapper(function: &str) -> bool {
    NAMES.contains(&function)
        || function.starts_with("operator new")
        || STARTS.iter().any(|start| function.starts_with(start))
        || ENDS.iter().any(|end| function.ends_with(end))
        || function.contains(">::allocate(") && ALLOCATORS.iter().any(|a| function.starts_with(a))
}
