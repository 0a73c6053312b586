//! Determines the purpose of mappings from their flags and the code that created them.

use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::MappingKey;

use crate::model::{Frame, MappingClass, Module};

/// Prefixes of the file names of allocators.
const ALLOCATOR_FILES: [&str; 12] = [
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "librpmalloc",
    "libsnmalloc",
    "libhoard",
    "libtbbmalloc",
    "libscudo",
    "libmesh",
    "libllalloc",
    "libhardened_malloc",
    "libumem",
];

/// Prefixes of the names of allocator functions that are linked into a program.
const ALLOCATOR_PREFIXES: [&str; 20] = [
    "_rjem_",
    "je_",
    "jemalloc_",
    "mi_",
    "_mi_",
    "tc_",
    "tcmalloc::",
    "rpmalloc",
    "_rpmalloc",
    "snmalloc::",
    "scudo::",
    "partition_alloc::",
    "base::PartitionAlloc",
    "__rust_alloc",
    "__rust_realloc",
    "__rg_",
    "__rdl_",
    "operator new",
    "tikv_jemalloc_",
    "dlmalloc",
];

/// Functions that allocate, regardless of their library.
const ALLOCATING: [&str; 12] = [
    // jemalloc without a prefix
    "pages_map",
    "os_pages_map",
    "extent_alloc_mmap",
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "mallocx",
];

/// Prefixes of other functions that map memory for their callers.
const ALLOCATING_PREFIXES: [&str; 7] =
    ["mmap", "my_mmap", "mremap", "PyMem_", "_PyMem_", "PyObject_Malloc", "_PyObject_Malloc"];

/// Functions of CPython that allocate and free arenas.
const ARENA_FUNCTIONS: [&str; 6] = [
    "_PyMem_ArenaAlloc",
    "_PyObject_Arena",
    "new_arena",
    "allocate_from_new_pool",
    "pymalloc_alloc",
    "_PyMem_mi_",
];

/// Sizes of an arena in bytes: since CPython 3.10, and before.
const ARENA_BYTES: [u64; 2] = [1 << 20, 256 << 10];

/// Functions that create threads.
const THREAD_FUNCTIONS: [&str; 3] = ["pthread_create", "allocate_stack", "thrd_create"];

/// The properties of a mapping that determine its class.
pub(super) struct Described<'a> {
    pub(super) key: MappingKey,
    /// The name of its file, if it has one.
    pub(super) file: Option<&'a str>,
    /// Average size in bytes of the mappings of its site.
    pub(super) bytes: u64,
}

/// Returns the class of a mapping. `stack` returns frames with their modules, innermost first.
pub(super) fn class<'a>(
    of: &Described,
    stack: impl Iterator<Item = (&'a Frame, Option<&'a Module>)> + Clone,
) -> MappingClass {
    match of.key.call {
        call if call == format::MappingCall::Pinned as u32 => return MappingClass::Pinned,
        call if call == format::MappingCall::Managed as u32 => return MappingClass::Managed,
        _ => {}
    }
    let has = |flag| of.key.flags & flag != 0;
    let is_called = |names: &[&str], how: fn(&str, &str) -> bool| {
        let mut functions = stack.clone().filter_map(|(frame, _)| frame.function.as_deref());
        functions.any(|function| names.iter().any(|name| how(function, name)))
    };
    let starts: fn(&str, &str) -> bool = |function, name| function.starts_with(name);
    if has(format::MAP_STACK)
        || has(format::MAP_GROWSDOWN)
        || is_called(&THREAD_FUNCTIONS, |function, name| function == name)
    {
        return MappingClass::ThreadStack;
    }
    let is_anonymous = of.file.is_none() && (has(format::MAP_ANONYMOUS) || is_break(of.key));
    if is_anonymous && !has(format::MAP_SHARED) {
        let is_arena = is_called(&ARENA_FUNCTIONS, starts) || is_arena(of, stack.clone());
        let mut files = stack.clone().filter_map(|(_, module)| module.map(file_name));
        return match () {
            () if is_arena => MappingClass::PythonArena,
            () if is_called(&ALLOCATOR_PREFIXES, starts)
                || is_called(&ALLOCATING, |function, name| function == name)
                || files.any(|file| ALLOCATOR_FILES.iter().any(|name| file.starts_with(name))) =>
            {
                MappingClass::Allocator
            }
            () => MappingClass::Other,
        };
    }
    let in_memory =
        |file: &str| ["/memfd:", "/SYSV", "/dev/shm/"].iter().any(|name| file.starts_with(name));
    match of.file {
        _ if has(format::MAP_SHARED) && has(format::MAP_ANONYMOUS) => MappingClass::Shared,
        Some(file) if in_memory(file) => MappingClass::Shared,
        _ if of.key.call == format::MappingCall::Shmat as u32 => MappingClass::Shared,
        _ if of.key.call != format::MappingCall::Mmap as u32 && of.file.is_none() => {
            MappingClass::Other
        }
        _ if of.key.protection & format::PROT_EXEC != 0 => MappingClass::Library,
        _ => MappingClass::File,
    }
}

/// Returns the innermost function outside of allocators, with the file of its module; without names
/// only the file. `None` without a stack.
pub(super) fn caller<'a>(
    stack: impl Iterator<Item = (&'a Frame, Option<&'a Module>)> + Clone,
) -> Option<Arc<str>> {
    let is_plumbing = |name: &str| {
        let prefixes = ARENA_FUNCTIONS.iter().chain(&ALLOCATOR_PREFIXES);
        prefixes.chain(&ALLOCATING_PREFIXES).any(|prefix| name.starts_with(prefix))
            || ALLOCATING.contains(&name)
    };
    let is_allocator = |file: &str| ALLOCATOR_FILES.iter().any(|name| file.starts_with(name));
    let mut named = stack.clone().filter_map(|(frame, module)| {
        let file = module.map(file_name).unwrap_or_default();
        Some((frame.function.as_deref()?, file)).filter(|_| !is_allocator(file))
    });
    if let Some((function, file)) = named.find(|(function, _)| !is_plumbing(function)) {
        return Some(format!("{function} [{file}]").into());
    }
    stack.into_iter().find_map(|(_, module)| module.map(|module| file_name(module).into()))
}

fn is_break(key: MappingKey) -> bool {
    key.call == format::MappingCall::Break as u32
}

/// Returns whether a mapping is an arena of a CPython without symbols: it has the size of an arena,
/// and the interpreter itself maps it.
fn is_arena<'a>(
    of: &Described,
    mut stack: impl Iterator<Item = (&'a Frame, Option<&'a Module>)>,
) -> bool {
    let is_python = |(frame, module): (&Frame, Option<&Module>)| {
        let name = module.map(file_name).unwrap_or_default();
        let by_object = frame.function.as_deref().is_some_and(|name| name.contains("mmap_object"));
        (name.starts_with("python3") || name.starts_with("libpython3")) && !by_object
    };
    ARENA_BYTES.contains(&of.bytes) && stack.next().is_some_and(is_python)
}

fn file_name(module: &Module) -> &str {
    module.path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{MAP_ANONYMOUS, MAP_SHARED, MAP_STACK, MappingCall};

    const PRIVATE: u32 = 2;

    fn key(call: MappingCall, flags: u32, protection: u32) -> MappingKey {
        MappingKey { call: call as u32, protection, flags, file: 0 }
    }

    /// Returns the class of a mapping of 1 MiB, with frames as FUNCTION@FILE.
    fn of(key: MappingKey, file: Option<&str>, frames: &[&str]) -> MappingClass {
        let parts: Vec<(Frame, Module)> = frames
            .iter()
            .map(|text| {
                let (function, path) = text.split_once('@').expect("FUNCTION@FILE");
                let function = (!function.is_empty()).then(|| function.into());
                let (start, end, bias) = (0, 0, 0);
                let path = format!("/usr/lib/{path}");
                (
                    Frame { function, ..Frame::named("") },
                    Module { path, start, end, bias, build_id: Vec::new(), unloaded: false },
                )
            })
            .collect();
        let described = Described { key, file, bytes: 1 << 20 };
        class(&described, parts.iter().map(|(frame, module)| (frame, Some(module))))
    }

    #[test]
    fn flags_and_files_tell_most_classes() {
        let mmap = |flags, protection| key(MappingCall::Mmap, flags, protection);
        let private = PRIVATE | MAP_ANONYMOUS;
        assert_eq!(of(mmap(private, 3), None, &["main@app"]), MappingClass::Other);
        assert_eq!(of(mmap(private | MAP_STACK, 3), None, &[]), MappingClass::ThreadStack);
        assert_eq!(of(mmap(MAP_SHARED | MAP_ANONYMOUS, 3), None, &[]), MappingClass::Shared);
        assert_eq!(of(mmap(MAP_SHARED, 3), Some("/memfd:a"), &[]), MappingClass::Shared);
        assert_eq!(of(mmap(MAP_SHARED, 3), Some("/srv/a"), &[]), MappingClass::File);
        assert_eq!(of(mmap(PRIVATE, 1), None, &[]), MappingClass::File, "without a name");
        assert_eq!(of(mmap(PRIVATE, 5), Some("/lib/a.so"), &[]), MappingClass::Library);
        assert_eq!(of(key(MappingCall::Break, 0x20, 3), None, &[]), MappingClass::Other);
        assert_eq!(of(key(MappingCall::Shmat, 1, 3), Some("/SYSV0"), &[]), MappingClass::Shared);
    }

    #[test]
    fn stacks_tell_allocators_and_arenas() {
        let private = key(MappingCall::Mmap, PRIVATE | MAP_ANONYMOUS, 3);
        let allocator = |frames: &[&str]| {
            assert_eq!(of(private, None, frames), MappingClass::Allocator, "{frames:?}");
        };
        allocator(&["@libjemalloc.so.2", "main@app"]);
        allocator(&["_rjem_je_pages_map@polars.so", "main@app"]);
        allocator(&["mi_heap_malloc@app"]);
        allocator(&["os_map@app", "malloc@app", "main@app"]);
        allocator(&["os_pages_map@app", "pages_map@app", "malloc_init_hard@app"]);
        assert_eq!(of(private, None, &["remalloc@app"]), MappingClass::Other);
        let arena = |frames: &[&str]| {
            assert_eq!(of(private, None, frames), MappingClass::PythonArena, "{frames:?}");
        };
        arena(&["_PyObject_ArenaMmap@python", "PyList_New@python"]);
        arena(&["@python3.13", "PyUnicode_New@python3.13"]);
        let object = ["new_mmap_object@python3.13"];
        assert_eq!(of(private, None, &object), MappingClass::Other);
    }
}
