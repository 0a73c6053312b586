//! The roles of functions, as determined by their names.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};

use super::names::{is_of_rust, last, qualified};
use super::stable_names::name_in_every_build;

/// The role of a function in attribution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Forwards an allocation of the size that its caller requests.
    Wrapper,
    /// Allocates for its caller, which owns the memory.
    Container,
    /// Executes the program: an interpreter, an executor of tasks.
    Runtime,
    /// Starts a program or a thread.
    Starter,
    /// Any other function.
    Owner,
}

impl Role {
    /// Returns the role of a function, given whether its file is a runtime.
    pub(crate) fn in_runtime(self, in_runtime: bool) -> Role {
        match self {
            Role::Owner if in_runtime => Role::Runtime,
            role => role,
        }
    }
}

/// A pattern for a name or a part of it: literal texts separated by `*`.
#[derive(Debug)]
struct Pattern {
    text: &'static str,
    role: Role,
}

/// The patterns of `functions.txt`.
#[derive(Debug, Default)]
pub struct Known {
    whole: FxHashMap<&'static str, Role>,
    /// By their first byte.
    starts: FxHashMap<u8, Vec<Pattern>>,
    /// Patterns that begin with `*`.
    ends: Vec<Pattern>,
    last_whole: FxHashMap<&'static str, Role>,
    last: Vec<Pattern>,
    /// In lower case, like the endings.
    verbs: Vec<(&'static str, Role)>,
    endings: FxHashSet<&'static str>,
    modules: Vec<&'static str>,
    libraries: Vec<&'static str>,
    packages: Vec<&'static str>,
}

/// Parts of the paths of installed Python packages.
const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Prefix of the file of Python functions that are part of the interpreter: imports.
const FROZEN: &str = "<frozen ";

static KNOWN: LazyLock<Known> = LazyLock::new(|| Known::read(include_str!("functions.txt")));

/// Returns the known functions.
pub fn known() -> &'static Known {
    &KNOWN
}

impl Known {
    fn read(text: &'static str) -> Known {
        let mut known = Known::default();
        let mut section = "";
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                Some(name) => section = name,
                None => known.add(section, line),
            }
        }
        known
    }

    fn add(&mut self, section: &str, text: &'static str) {
        let role = match section {
            "wrapper" => Role::Wrapper,
            "container" => Role::Container,
            "runtime" => Role::Runtime,
            "starter" => Role::Starter,
            "package" => return self.packages.push(text),
            "library" => return self.libraries.push(text),
            "ending" => {
                self.endings.insert(text);
                return;
            }
            _ => return self.modules.push(text),
        };
        if let Some(verb) = text.strip_prefix("verb ") {
            return self.verbs.push((verb, role));
        }
        match (text.strip_prefix("last "), text.contains('*')) {
            (Some(text), false) => _ = self.last_whole.insert(text, role),
            (Some(text), true) => self.last.push(Pattern { text, role }),
            (None, false) => _ = self.whole.insert(text, role),
            (None, true) => match text.bytes().next() {
                Some(first) if first != b'*' => {
                    self.starts.entry(first).or_default().push(Pattern { text, role });
                }
                _ => self.ends.push(Pattern { text, role }),
            },
        }
    }

    /// Returns the role of a function with this demangled name.
    ///
    /// ```
    /// use heaptide_analysis::attribution::{Role, known};
    /// let role = |name| known().role(name);
    /// assert_eq!(role("void* default_malloc(void*, unsigned long)"), Role::Wrapper);
    /// assert_eq!(role("std::vector<Order>::push_back(Order&&)"), Role::Container);
    /// assert_eq!(role("<str as core::fmt::Debug>::fmt"), Role::Container);
    /// assert_eq!(role("<app::Store as core::fmt::Debug>::fmt"), Role::Owner);
    /// assert_eq!(role("__libc_start_call_main"), Role::Starter);
    /// assert_eq!(role("pool_malloc_zeroed"), Role::Wrapper);
    /// assert_eq!(role("malloc_table"), Role::Owner);
    /// assert_eq!(role("__GI___strdup"), role("strdup"));
    /// assert_eq!(role("parse_file"), Role::Owner);
    /// ```
    pub fn role(&self, function: &str) -> Role {
        let stable = name_in_every_build(function);
        let name = qualified(&stable);
        if let Some(&role) = self.whole.get(name) {
            return role;
        }
        let first = name.bytes().next().unwrap_or_default();
        let starts = self.starts.get(&first).map_or(&[][..], |patterns| patterns);
        let found = starts.iter().chain(&self.ends).find(|pattern| matches(pattern.text, name));
        if let Some(found) = found {
            return found.role;
        }
        let last = last(name);
        if let Some(&role) = self.last_whole.get(last) {
            return role;
        }
        if let Some(found) = self.last.iter().find(|pattern| matches(pattern.text, last)) {
            return found.role;
        }
        if let Some(role) = self.role_by_verb(last) {
            return role;
        }
        if is_of_rust(name) { Role::Container } else { Role::Owner }
    }

    /// Returns the role of the verb in the last part of a name, if nothing but a known ending
    /// follows it.
    fn role_by_verb(&self, last: &str) -> Option<Role> {
        let name = last.to_ascii_lowercase();
        let is_it = |(verb, _): &&(&'static str, Role)| {
            // The name can contain the verb twice: `realloc_or_malloc`.
            let Some(at) = name.rfind(verb) else { return false };
            let ending = name[at + verb.len()..].trim_matches('_');
            let is_number = ending.bytes().all(|byte| byte.is_ascii_digit());
            let is_other = name[..at].ends_with('p') && *verb == "realloc"; // preallocate
            (is_number || self.endings.contains(ending)) && !is_other
        };
        self.verbs.iter().find(is_it).map(|(_, role)| *role)
    }

    /// Returns whether a file is a runtime, according to its name.
    ///
    /// ```
    /// use heaptide_analysis::attribution::known;
    /// assert!(known().is_runtime("libpython3.11.so.1.0") && !known().is_runtime("libz.so.1"));
    /// ```
    pub fn is_runtime(&self, file_name: &str) -> bool {
        self.modules.iter().any(|pattern| matches(pattern, file_name))
    }

    /// Returns whether functions of a file that have no names allocate for their callers: those of
    /// the standard libraries of C, C++ and Rust.
    pub fn is_library(&self, file_name: &str) -> bool {
        self.libraries.iter().any(|pattern| matches(pattern, file_name))
    }

    /// Returns the role of a Python function, according to its name and the path of its file. A
    /// package owns the code that runs when it is imported.
    ///
    /// ```
    /// use heaptide_analysis::attribution::{Role, known};
    /// let path = "/venv/lib/python3.11/site-packages/numpy/_core/numeric.py";
    /// assert_eq!(known().python_role("ones", path), Role::Container);
    /// assert_eq!(known().python_role("<module numeric.py>", path), Role::Owner);
    /// assert_eq!(known().python_role("ones", "/app/numpy/ones.py"), Role::Owner);
    /// assert_eq!(known().python_role("find", "<frozen importlib._bootstrap>"), Role::Runtime);
    /// ```
    pub fn python_role(&self, function: &str, path: &str) -> Role {
        if path.starts_with(FROZEN) {
            return Role::Runtime;
        }
        let package = INSTALLED.iter().find_map(|place| path.split_once(place)?.1.split_once('/'));
        let is_listed = package.is_some_and(|(package, _)| self.packages.contains(&package));
        if is_listed && !function.starts_with("<module") { Role::Container } else { Role::Owner }
    }
}

/// Returns whether a text matches a pattern, where `*` is any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|head| text.strip_prefix(head)) else {
        return false;
    };
    let Some(tail) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_any_text_for_a_star() {
        let cases = [
            ("malloc", "malloc", true),
            ("malloc", "malloc2", false),
            ("std::*", "std::vector", true),
            ("*::alloc", "a::alloc", true),
            ("*::alloc", "a::alloc2", false),
            ("av_*alloc*", "av_fast_malloc_x", true),
            ("av_*alloc*", "av_free", false),
            ("a*b*a", "aba", true),
            ("a*b*a", "ab", false),
            ("*a", "a", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn every_line_of_the_list_has_a_section_that_is_known() {
        let text = include_str!("functions.txt");
        let is_section = |line: &&str| line.starts_with('[') && line.ends_with(']');
        let sections: Vec<&str> = text.lines().filter(is_section).collect();
        let expected = [
            "[wrapper]",
            "[container]",
            "[runtime]",
            "[starter]",
            "[module]",
            "[library]",
            "[package]",
            "[ending]",
        ];
        assert_eq!(sections, expected);
        let mut seen = std::collections::HashSet::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            assert_eq!(line.trim(), line);
            assert!(seen.insert(line), "twice: {line}");
        }
    }

    /// `phase`, which called some of these, owned what they allocate in loops.
    #[test]
    fn functions_that_only_mention_an_allocator_are_owners() {
        for name in ["callocs", "mallocs_of_load", "preallocate", "xmalloc_test", "realloc_rows"] {
            assert_eq!(known().role(name), Role::Owner, "{name}");
        }
        for name in [
            "xmalloc",
            "my_malloc",
            "malloc0",
            "sqlite3MallocZero",
            "av_malloc_array",
            "je_mallocx",
            "Pool::realloc_n",
            "memalign_internal",
            "mallocz",
            "malloc_or_die",
            "MyCalloc",
        ] {
            assert_eq!(known().role(name), Role::Wrapper, "{name}");
        }
    }

    /// `main` of R, which is a small program around libR.so, owned all vectors of a script.
    #[test]
    fn programs_of_interpreters_are_runtimes_like_their_libraries() {
        for file in ["R", "libR.so", "ruby3.1", "php8.2", "luajit-2.1.0-beta3", "perl"] {
            assert!(known().is_runtime(file), "{file}");
        }
        for file in ["Rows", "r", "libRows.so", "app"] {
            assert!(!known().is_runtime(file), "{file}");
        }
    }

    /// `internal/cpu.doinit` owned all memory that Go mapped at its start.
    #[test]
    fn the_start_of_go_is_its_runtime() {
        for name in ["internal/cpu.doinit", "internal/cpu.Initialize", "runtime.schedinit"] {
            assert_eq!(known().role(name), Role::Runtime, "{name}");
        }
        assert_eq!(known().role("internal/cpuset.Load"), Role::Owner);
    }

    #[test]
    fn functions_of_well_known_libraries() {
        use Role::{Container, Owner, Runtime, Starter, Wrapper};
        let cases = [
            ("malloc", Wrapper),
            ("operator new(unsigned long)", Wrapper),
            ("operator new[](unsigned long, std::align_val_t)", Wrapper),
            ("xmalloc.part.0", Wrapper),
            ("std::__new_allocator<int>::allocate(unsigned long, void const*)", Wrapper),
            ("__rustc::__rust_alloc", Wrapper),
            ("<app::Arena as core::alloc::global::GlobalAlloc>::alloc", Wrapper),
            ("alloc::alloc::exchange_malloc", Wrapper),
            ("x264_malloc", Wrapper),
            ("os::malloc(unsigned long, MEMFLAGS)", Wrapper),
            ("jv_mem_alloc", Wrapper),
            ("ngx_memalign", Wrapper),
            ("AcquireAlignedMemory", Wrapper),
            ("PyDataMem_UserNEW", Wrapper),
            ("ns::Arena::alloc(int)", Wrapper),
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", Container),
            ("void std::vector<Foo>::_M_realloc_insert<Foo const&>(Foo const&)", Container),
            ("std::__detail::_Hash_node<int>* std::__detail::make<int>()", Container),
            ("alloc::raw_vec::finish_grow", Container),
            ("<alloc::vec::Vec<T,A> as core::clone::Clone>::clone", Container),
            ("<T as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", Container),
            ("strdup", Container),
            ("g_hash_table_insert", Container),
            ("tokio::runtime::task::harness::poll_future", Runtime),
            ("start_thread", Starter),
            ("main", Owner),
            ("Foo::make(std::vector<int> const&)", Owner),
            ("std_parse", Owner),
            ("parse(std::string const&)", Owner),
            ("<app::Node as core::clone::Clone>::clone", Owner),
            ("app::main::{closure#0}", Owner),
            ("malloc_info_table::parse", Owner),
        ];
        for (name, role) in cases {
            assert_eq!(known().role(name), role, "{name}");
        }
    }
}
