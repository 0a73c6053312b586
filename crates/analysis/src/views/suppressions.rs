//! Suppressions of intended live blocks: patterns in the format of LeakSanitizer, and blocks that
//! run-time libraries keep until the process ends.
//!
//! The format is that of <https://github.com/google/sanitizers/wiki/AddressSanitizerLeakSanitizer>:
//! lines `leak:PATTERN`, comments that start with `#`; lines of other sanitizers, such as
//! `race:PATTERN`, are skipped. A pattern matches anywhere in a name; `*` stands for any text, `^`
//! at the start and `$` at the end anchor it.

use std::fmt;

use crate::model::{Frame, Measures, Process, StackId};

/// A pattern such as `leak:^parse*_cache$`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pattern {
    /// The texts between `*`.
    pieces: Vec<String>,
    from_start: bool,
    to_end: bool,
}

impl Pattern {
    fn of(text: &str) -> Pattern {
        let (text, from_start) = text.strip_prefix('^').map_or((text, false), |t| (t, true));
        let (text, to_end) = text.strip_suffix('$').map_or((text, false), |t| (t, true));
        Pattern { pieces: text.split('*').map(str::to_owned).collect(), from_start, to_end }
    }

    /// Returns whether it matches a name; no pattern matches an empty name.
    fn matches(&self, name: &str) -> bool {
        let last = self.pieces.len() - 1;
        let mut rest = name;
        for (i, piece) in self.pieces.iter().enumerate() {
            let (starts, ends) = (i == 0 && self.from_start, i == last && self.to_end);
            let found = match (starts, ends) {
                (true, true) => (rest == piece).then_some(""),
                (true, false) => rest.strip_prefix(piece.as_str()),
                (false, true) => rest.ends_with(piece.as_str()).then_some(""),
                (false, false) => rest.find(piece.as_str()).map(|at| &rest[at + piece.len()..]),
            };
            match found {
                Some(after) => rest = after,
                None => return false,
            }
        }
        !name.is_empty()
    }
}

/// Blocks kept by a library, recognized by their stack in one of two ways.
struct BuiltIn {
    name: &'static str,
    /// One or more innermost frames match one of these …
    inner: &'static [&'static str],
    /// … and the next frame matches one of these, if there are any.
    outer: &'static [&'static str],
    /// Or any frame matches one of these …
    through: &'static [&'static str],
    /// … and it is a single block of one of these sizes, if there are any.
    sizes: &'static [u64],
}

/// Callers of the initialization of a library.
const INITIALISERS: &[&str] =
    &["^call_init", "^_dl_init", "^__libc_csu_init$", "/ld-linux", "/ld-musl"];

/// Blocks that are intentionally not freed, and that users of these libraries cannot free.
const BUILT_IN: [BuiltIn; 7] = [
    BuiltIn {
        // The emergency pool for exceptions, and locales. The sizes are those of GCC up to 12 and
        // from 13 on, for programs without symbols that contain the library.
        name: "libstdc++ at its start",
        inner: &["/libstdc++.so", "^_GLOBAL__sub_I_eh_alloc.cc"],
        outer: INITIALISERS,
        through: INITIALISERS,
        sizes: &[72_704, 73_728],
    },
    BuiltIn {
        // its data about the main thread
        name: "Rust's library at its start",
        inner: &[],
        outer: &[],
        through: &["^std::rt::init$"],
        sizes: &[],
    },
    BuiltIn {
        // link maps of libraries, thread-local storage
        name: "dynamic linker",
        inner: &["/ld-linux", "/ld-musl", "/ld64.so", "^_dl_allocate_tls"],
        outer: &[],
        through: &[],
        sizes: &[],
    },
    BuiltIn {
        name: "buffers of C streams",
        inner: &["_IO_file_doallocate$", "_IO_wfile_doallocate$"],
        outer: &[],
        through: &[],
        sizes: &[],
    },
    BuiltIn {
        name: "locales and character sets of the C library",
        inner: &[],
        outer: &[],
        through: &["^setlocale$", "^__GI_setlocale$", "^_nl_", "^__gconv_load", "^__gconv_find"],
        sizes: &[],
    },
    BuiltIn {
        name: "user and host databases of the C library",
        inner: &["^getpwuid$", "^getpwnam$", "^getgrgid$", "^getgrnam$", "^gethostbyname$"],
        outer: &[],
        through: &["^__nss_", "^nss_"],
        sizes: &[],
    },
    BuiltIn {
        name: "functions to call at exit, and the environment",
        inner: &["^__new_exitfn$", "^__add_to_environ$"],
        outer: &[],
        through: &[],
        sizes: &[],
    },
];

/// Suppressions of a user, and optionally the built-in ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Suppressions {
    patterns: Vec<(String, Pattern)>,
    built_in: bool,
}

/// A line of a file that is not a suppression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: usize,
    /// The text of the line.
    pub found: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadLine { number, found } = self;
        write!(f, "line {number}: found `{found}`, expected leak:PATTERN, or # and a comment")
    }
}

impl std::error::Error for BadLine {}

impl Suppressions {
    /// Returns no suppressions.
    pub fn none() -> Suppressions {
        Suppressions::default()
    }

    /// Returns the suppressions for blocks kept by the C and C++ libraries and the dynamic linker.
    pub fn built_in() -> Suppressions {
        Suppressions { built_in: true, ..Suppressions::default() }
    }

    /// Adds the suppressions of a file.
    ///
    /// Errors: a line has no `kind:` before its pattern, or a `leak:` has no pattern.
    ///
    /// ```
    /// use heaptide_analysis::views::suppressions::Suppressions;
    /// let mut known = Suppressions::none();
    /// known.add("# keeps its cache\nleak:^Cache::*\nrace:elsewhere\n").unwrap();
    /// assert_eq!(known.names(), ["^Cache::*"]);
    /// let wrong = known.add("\nCache::get\n").unwrap_err();
    /// assert_eq!(wrong.number, 2);
    /// ```
    pub fn add(&mut self, text: &str) -> Result<(), BadLine> {
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = || BadLine { number, found: line.chars().take(80).collect() };
            let (kind, pattern) = line.split_once(':').ok_or_else(bad)?;
            match (kind, pattern) {
                ("leak", "") => return Err(bad()),
                ("leak", pattern) => self.patterns.push((pattern.into(), Pattern::of(pattern))),
                // a name without `leak:` before it
                (kind, pattern) if !is_kind(kind) || pattern.starts_with(':') => return Err(bad()),
                // a line for another sanitizer
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the user's patterns, then the names of the built-in suppressions.
    pub fn names(&self) -> Vec<&str> {
        let built_in = BUILT_IN.iter().filter(|_| self.built_in).map(|b| b.name);
        self.patterns.iter().map(|(text, _)| text.as_str()).chain(built_in).collect()
    }

    /// Returns how many of [`Suppressions::names`] are patterns of the user.
    pub fn written(&self) -> usize {
        self.patterns.len()
    }

    /// Returns the first pattern that matches a name, as index into the names.
    pub(crate) fn of_name(&self, name: &str) -> Option<usize> {
        self.patterns.iter().position(|(_, pattern)| pattern.matches(name))
    }
}

/// Returns whether a word can be the kind of a sanitizer's suppression: `leak`, `race`,
/// `signed-integer-overflow`.
fn is_kind(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_lowercase() || b"_-".contains(&b)) && !word.is_empty()
}

/// The suppressions that match the stacks of a process.
pub(crate) struct Matched<'a> {
    process: &'a Process,
    /// The user's pattern that matches each stack, as index, or [`NONE`]; empty if there are no
    /// patterns.
    of_stack: Vec<u32>,
    written: usize,
    /// Built-in matches of each frame; empty if built-in suppressions are off.
    kept: Vec<Kept>,
    /// The union of `through` over all frames of each stack.
    through: Vec<u8>,
}

const NONE: u32 = u32::MAX;

impl<'a> Matched<'a> {
    pub(crate) fn of(process: &'a Process, suppressions: &Suppressions) -> Matched<'a> {
        let (written, built_in) = (suppressions.written(), suppressions.built_in);
        let by = |frame: &Frame| {
            let found = texts(process, frame).into_iter().flatten();
            found.filter_map(|text| suppressions.of_name(text)).next().map_or(NONE, |i| i as u32)
        };
        // Inner frames have priority, in the order of a report.
        let inner_first = |own: u32, callers: u32| if own == NONE { callers } else { own };
        let of_stack = match written {
            0 => Vec::new(),
            _ => {
                let of_frame: Vec<u32> = process.tables.frames.iter().map(by).collect();
                along(process, NONE, |frame| of_frame[frame], inner_first)
            }
        };
        let all = Kept::patterns();
        let kept: Vec<Kept> = if built_in {
            process.tables.frames.iter().map(|frame| Kept::of(process, frame, &all)).collect()
        } else {
            Vec::new()
        };
        let through = if built_in {
            along(process, 0, |frame| kept[frame].through, |own, above| own | above)
        } else {
            Vec::new()
        };
        Matched { process, of_stack, written, kept, through }
    }

    /// Returns the suppression of a stack, as index into the names.
    pub(crate) fn stack(&self, stack: StackId, measures: &Measures) -> Option<usize> {
        let written = self.of_stack.get(stack.0 as usize).filter(|&&found| found != NONE);
        let built_in = || (0..BUILT_IN.len()).find(|&i| self.keeps(i, stack, measures));
        match written {
            Some(&found) => Some(found as usize),
            None if self.kept.is_empty() => None,
            None => built_in().map(|i| self.written + i),
        }
    }

    /// Returns whether a built-in suppression matches the allocations of a stack.
    fn keeps(&self, index: usize, stack: StackId, m: &Measures) -> bool {
        let (bit, BuiltIn { outer, sizes, .. }) = (1 << index, &BUILT_IN[index]);
        let mut frames = self.process.frames_of(stack).map(|id| self.kept[id.0 as usize]);
        if frames.next().is_some_and(|innermost| innermost.inner & bit != 0) {
            let next = frames.find(|frame| frame.inner & bit == 0);
            if outer.is_empty() || next.is_some_and(|frame| frame.outer & bit != 0) {
                return true;
            }
        }
        let of_size = sizes.is_empty() || m.allocations == 1 && sizes.contains(&m.requested_bytes);
        self.through[stack.0 as usize] & bit != 0 && of_size
    }
}

/// Computes a value for each stack from those of its frames, starting at the outermost.
fn along<T: Copy>(
    process: &Process,
    none: T,
    of_frame: impl Fn(usize) -> T,
    join: impl Fn(T, T) -> T,
) -> Vec<T> {
    let mut values = Vec::with_capacity(process.tables.stacks.len());
    values.push(none);
    // Parents come before children.
    for node in process.tables.stacks.iter().skip(1) {
        let above = values[node.parent.0 as usize];
        values.push(join(of_frame(node.frame.0 as usize), above));
    }
    values
}

/// Returns the texts of a frame that a pattern can match, in the order of LeakSanitizer.
fn texts<'a>(process: &'a Process, frame: &'a Frame) -> [Option<&'a str>; 3] {
    let module = frame.module.and_then(|id| process.tables.modules.get(id.0 as usize));
    [module.map(|m| m.path.as_str()), frame.function.as_deref(), frame.file.as_deref()]
}

/// The built-in suppressions with a pattern that matches a frame, as bit masks.
#[derive(Clone, Copy, Default)]
struct Kept {
    inner: u8,
    outer: u8,
    through: u8,
}

const _: () = assert!(BUILT_IN.len() <= u8::BITS as usize);

impl Kept {
    /// Returns the patterns of each built-in suppression: inner, outer, through.
    fn patterns() -> [[Vec<Pattern>; 3]; BUILT_IN.len()] {
        let read = |texts: &[&str]| texts.iter().map(|text| Pattern::of(text)).collect();
        BUILT_IN.each_ref().map(|b| [b.inner, b.outer, b.through].map(read))
    }

    fn of(process: &Process, frame: &Frame, all: &[[Vec<Pattern>; 3]; BUILT_IN.len()]) -> Kept {
        // Source files are not compared, because they can have any name.
        let [module, function, _] = texts(process, frame);
        let is_one = |patterns: &Vec<Pattern>| {
            let mut names = [module, function].into_iter().flatten();
            names.any(|name| patterns.iter().any(|pattern| pattern.matches(name)))
        };
        let mut kept = Kept::default();
        for (i, patterns) in all.iter().enumerate() {
            let [inner, outer, through] = patterns.each_ref().map(|p| u8::from(is_one(p)) << i);
            kept.inner |= inner;
            kept.outer |= outer;
            kept.through |= through;
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_leak_sanitizer_says() {
        let yes = [
            ("bar", "foobarbaz"),
            ("foo*baz", "foobarbaz"),
            ("^foo", "foobar"),
            ("bar$", "foobar"),
            ("^foo*bar$", "foobar"),
            ("^foo*bar$", "foo::bar bar"),
            ("foo$", "foofoo"),
            ("*", "anything"),
            ("^$", ""),
            ("^*bar", "foobar"),
            ("foo*$", "a foo b"),
            ("a*b*c", "xaxbxcx"),
            ("^std::map<int, *>::", "std::map<int, std::vector<int> >::operator[]"),
        ];
        for (pattern, name) in yes {
            assert_eq!(Pattern::of(pattern).matches(name), !name.is_empty(), "{pattern} {name}");
        }
        let no = [
            ("bar", "foo"),
            ("^bar", "foobar"),
            ("foo$", "foobar"),
            ("^foo$", "foofoo"),
            ("foo*baz", "bazfoo"),
            ("ab*ba$", "aba"),
            ("foo", ""),
            ("*", ""),
        ];
        for (pattern, name) in no {
            assert!(!Pattern::of(pattern).matches(name), "{pattern} {name}");
        }
    }

    #[test]
    fn lines_of_other_sanitizers_and_comments_are_left_out() {
        let mut known = Suppressions::none();
        let text = "  leak:one  \r\n# leak:two\n\nvptr:three\nthread:four\nleak:^a b$\n";
        known.add(text).unwrap();
        assert_eq!((known.names(), known.written()), (vec!["one", "^a b$"], 2));
        let wrong = [("leak:ok\nfunction\n", 2), ("leak:\n", 1), ("std::get\n", 1), ("A:b", 1)];
        for (wrong, number) in wrong {
            assert_eq!(known.add(wrong).unwrap_err().number, number);
        }
        assert_eq!(Suppressions::built_in().written(), 0);
        assert_eq!(Suppressions::built_in().names().len(), BUILT_IN.len());
    }
}
