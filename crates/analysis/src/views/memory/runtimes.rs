//! Language runtimes with a heap of their own, in memory that they map.

use super::row::Row;

/// A language runtime that divides mapped memory into objects itself.
#[derive(Debug)]
pub struct Runtime {
    /// The name of the language or of the runtime.
    pub name: &'static str,
    /// Prefixes of the names of its files.
    files: &'static [&'static str],
    /// Prefixes of the names of its functions that map memory, which programs can contain.
    functions: &'static [&'static str],
    /// What shows the contents of its heap.
    pub hint: &'static str,
}

/// The known runtimes.
pub(super) static RUNTIMES: [Runtime; 12] = [
    Runtime {
        name: "Java",
        files: &["libjvm.so"],
        functions: &[],
        hint: "`java -XX:NativeMemoryTracking=summary` with `jcmd PID VM.native_memory`, and \
               `jcmd PID GC.class_histogram`, show it",
    },
    Runtime {
        name: "JavaScript",
        files: &["node", "libnode.so"],
        functions: &["v8::base::OS::Allocate", "v8::base::OS::SetPermissions"],
        hint: "`node --heap-prof` and `v8.getHeapStatistics()` show it",
    },
    Runtime {
        name: ".NET",
        files: &["libcoreclr.so", "libclrgc.so"],
        functions: &["GCToOSInterface::"],
        hint: "`dotnet-counters` and `dotnet-gcdump` show it",
    },
    Runtime {
        name: "Go",
        files: &[],
        functions: &["x_cgo_mmap", "runtime.mmap", "runtime.sysMap"],
        hint: "`runtime/pprof` with `go tool pprof` shows it",
    },
    Runtime {
        name: "PHP",
        files: &["php", "libphp", "mod_php"],
        functions: &["zend_mm_", "zend_gc_"],
        hint: "with USE_ZEND_ALLOC=0 in the environment, PHP uses malloc for its objects",
    },
    Runtime {
        name: "Ruby",
        files: &["ruby", "libruby"],
        functions: &["heap_page_allocate"],
        hint: "`ObjectSpace.dump_all` of objspace shows it",
    },
    Runtime {
        name: "OCaml",
        files: &["libcamlrun", "libasmrun", "ocamlrun"],
        functions: &["caml_"],
        hint: "`OCAMLRUNPARAM=v=0x400` and memtrace show it",
    },
    Runtime {
        name: "Nim",
        files: &[],
        functions: &["osAllocPages__", "osTryAllocPages__", "requestOsChunks__system_"],
        hint: "compiled with -d:useMalloc, Nim uses malloc for its objects",
    },
    Runtime {
        name: "LuaJIT",
        files: &["luajit", "libluajit"],
        functions: &["lj_alloc_", "lj_mem_"],
        hint: "`collectgarbage(\"count\")` shows its size; built with -DLUAJIT_USE_SYSMALLOC, it \
               uses malloc",
    },
    Runtime {
        name: "Haskell",
        files: &["libHSrts"],
        functions: &[
            "getMBlock",
            "getCommittedMBlocks",
            "osCommitMemory",
            "osGetMBlocks",
            "osReserveHeapMemory",
        ],
        hint: "`+RTS -s` and `+RTS -hT` show it",
    },
    Runtime {
        name: "GCC",
        files: &["cc1", "cc1plus", "f951", "lto1"],
        functions: &["ggc_"],
        hint: "`gcc -fmem-report` shows it",
    },
    Runtime {
        name: "R",
        files: &[], // it takes all memory from malloc
        functions: &[],
        hint: "`Rprofmem()` shows the R functions that allocate in it",
    },
];

/// Functions that take parts of a runtime's own heap from `malloc`, and the runtime.
const CHUNKS: [(&str, &str); 5] = [
    ("caml_alloc_for_heap", "OCaml"),
    ("caml_set_minor_heap_wsz", "OCaml"),
    ("heap_page_allocate", "Ruby"),
    ("Rf_allocVector", "R"),
    ("Rf_allocVector3", "R"),
];

impl Runtime {
    /// Returns whether a file is one of the runtime.
    pub fn has_file(&self, file: &str) -> bool {
        // `node18`, `php8.2` and `libruby-3.1.so.3.1` have versions; `nodemon` is another program.
        self.files.iter().any(|name| {
            let rest = file.strip_prefix(name);
            let is_name = |c: char| c.is_ascii_alphabetic() || c == '_';
            rest.is_some_and(|rest| !rest.starts_with(is_name))
        })
    }

    /// Returns whether a function is one with which the runtime maps memory.
    ///
    /// ```
    /// use heaptide_analysis::views::memory::Runtime;
    /// let r = Runtime::taking_chunks("Rf_allocVector3").unwrap();
    /// assert!(!r.has_function("Rf_eval"));
    /// ```
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.iter().any(|start| name.starts_with(start))
    }

    /// Returns the runtime that takes parts of its own heap from `malloc` with this function.
    ///
    /// ```
    /// use heaptide_analysis::views::memory::Runtime;
    /// let of = |name| Runtime::taking_chunks(name).map(|runtime| runtime.name);
    /// assert_eq!(of("caml_alloc_for_heap"), Some("OCaml"));
    /// assert_eq!(of("caml_ba_alloc"), None); // data of the program
    /// ```
    pub fn taking_chunks(function: &str) -> Option<&'static Runtime> {
        let (_, name) = CHUNKS.iter().find(|(known, _)| *known == function)?;
        RUNTIMES.iter().find(|runtime| runtime.name == *name)
    }
}

/// Returns the runtime that mapped memory; `caller` is the innermost function outside of
/// allocators, with its file: `os::commit_memory [libjvm.so]`, or only the file.
pub(super) fn of_caller(caller: &str) -> Option<&'static Runtime> {
    let file = file_of(caller).unwrap_or_default();
    let calls = |runtime: &&Runtime| runtime.has_file(file) || runtime.has_function(caller);
    RUNTIMES.iter().find(calls)
}

/// Returns the name of the row of a runtime's memory.
pub(super) fn row_name(runtime: &Runtime) -> String {
    format!("{} runtime", runtime.name)
}

/// Returns the runtime of a row of mappings.
pub(super) fn of_row(row: &Row) -> Option<&'static Runtime> {
    RUNTIMES.iter().find(|runtime| row_name(runtime) == row.name)
}

/// Returns the file of a caller.
pub(super) fn file_of(caller: &str) -> Option<&str> {
    match caller.strip_suffix(']').and_then(|caller| caller.rsplit_once(" [")) {
        Some((_, file)) => Some(file),
        None => Some(caller).filter(|caller| !caller.contains(' ')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_of_mmap_are_runtimes_by_file_or_function() {
        for (caller, name) in [
            ("os::pd_commit_memory(char*, unsigned long, bool) [libjvm.so]", Some("Java")),
            ("libjvm.so", Some("Java")),
            ("v8::base::OS::Allocate(void*, unsigned long) [electron]", Some("JavaScript")),
            ("node", Some("JavaScript")),
            ("uv__mmap [node18]", Some("JavaScript")),
            ("x_cgo_mmap [server]", Some("Go")),
            ("zend_mm_chunk_alloc [php8.2]", Some("PHP")),
            ("caml_mem_map [app]", Some("OCaml")),
            ("requestOsChunks__system_4433 [app]", Some("Nim")),
            ("osCommitMemory [app]", Some("Haskell")),
            ("main [nodemon]", None),
            ("main [node_exporter]", None),
            ("camlApp__load [app]", None),
            ("without a stack", None),
            ("", None),
        ] {
            assert_eq!(of_caller(caller).map(|runtime| runtime.name), name, "{caller}");
        }
    }

    #[test]
    fn rows_of_runtimes_are_found_by_name() {
        for runtime in &RUNTIMES {
            let row = Row { name: row_name(runtime), ..Row::default() };
            assert_eq!(of_row(&row).map(|found| found.name), Some(runtime.name));
        }
    }
}
