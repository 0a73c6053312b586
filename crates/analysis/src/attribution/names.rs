//! Parts of demangled names: function names without return type, arguments and suffixes of
//! compilers, and detection of functions of Rust's standard libraries.

/// Crates of Rust's standard library.
const RUST: [&str; 4] = ["core", "alloc", "std", "hashbrown"];

/// Returns the qualified name of a function: without return type and arguments.
///
/// ```
/// use heaptide_analysis::attribution::names::qualified;
/// let push = "std::vector<int>::push_back<int>";
/// assert_eq!(qualified(&format!("void {push}(int&&) const")), push);
/// assert_eq!(qualified("(anonymous namespace)::parse(int)"), "(anonymous namespace)::parse");
/// assert_eq!(qualified("operator new(unsigned long)"), "operator new");
/// assert_eq!(qualified("decltype(auto) std::apply<F>(F&&)"), "std::apply<F>");
/// assert_eq!(qualified("decltype ((f)({parm#1})) std::call<F>(F)"), "std::call<F>");
/// assert_eq!(qualified("<(A, B) as app::Read>::read"), "<(A, B) as app::Read>::read");
/// ```
pub fn qualified(name: &str) -> &str {
    const ANONYMOUS: &str = "(anonymous namespace)";
    const DECLTYPE: &str = "decltype";
    let (mut depth, mut start, mut at) = (0usize, 0, 0);
    let bytes = name.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        match byte {
            b'<' | b'{' | b'[' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {} // `->`
            b'>' | b'}' | b']' => depth = depth.saturating_sub(1),
            b'(' if rest.starts_with(ANONYMOUS.as_bytes()) => at += ANONYMOUS.len() - 1,
            b'(' if depth == 0 && at > start && &name[start..at] != DECLTYPE => {
                return &name[start..at];
            }
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 => start = at + 1,
            b'o' if depth == 0 && rest.starts_with(b"operator") && ends_a_word(bytes, at) => {
                return &name[start..at + operator(&name[at..])];
            }
            _ => {}
        }
        at += 1;
    }
    &name[start.min(name.len())..]
}

/// Returns whether a word can begin here.
fn ends_a_word(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(1)
        .is_none_or(|before| !bytes[before].is_ascii_alphanumeric() && bytes[before] != b'_')
}

/// Returns the length of an operator's name, from `operator` up to its arguments.
fn operator(name: &str) -> usize {
    let after = "operator".len();
    let skipped = if name[after..].starts_with("()") { 2 } else { 0 };
    name[after + skipped..].find('(').map_or(name.len(), |at| after + skipped + at)
}

/// Returns the last part of a qualified name, without template arguments.
///
/// ```
/// use heaptide_analysis::attribution::names::last;
/// assert_eq!(last("ns::Arena<ns::Page>::alloc<int>"), "alloc");
/// assert_eq!(last("app::read::<u8>"), "read");
/// assert_eq!(last("<app::Arena as alloc::Source>::take"), "take");
/// ```
pub fn last(qualified: &str) -> &str {
    let (mut depth, mut start, mut end) = (0usize, 0, qualified.len());
    let bytes = qualified.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'{' | b'(' => {
                if depth == 0 && at > start {
                    end = at;
                }
                depth += 1;
            }
            b'>' | b'}' | b')' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                // The last part of `read::<u8>` is `read`.
                if bytes.get(at + 2) == Some(&b'<') {
                    return &qualified[start..end.min(at)];
                }
                (start, end) = (at + 2, qualified.len());
            }
            _ => {}
        }
    }
    qualified.get(start..end).unwrap_or(qualified)
}

/// Returns whether a function belongs to Rust's standard libraries: by its path, or as an
/// implementation of their trait for their type.
///
/// ```
/// use heaptide_analysis::attribution::names::is_of_rust;
/// assert!(is_of_rust("core::ptr::drop_in_place::<app::Node>"));
/// assert!(is_of_rust("<str as core::fmt::Debug>::fmt"));
/// assert!(is_of_rust("<T as alloc::vec::Join>::join") && is_of_rust("<[u8]>::to_vec"));
/// assert!(is_of_rust("<alloc::vec::Vec<app::Node> as core::clone::Clone>::clone"));
/// assert!(is_of_rust("<u8 as <[_]>::to_vec_in::ConvertVec>::to_vec"));
/// assert!(!is_of_rust("<app::Node as core::clone::Clone>::clone"));
/// assert!(!is_of_rust("<alloc::vec::Vec<u8> as app::Encode>::encode"));
/// assert!(!is_of_rust("coreutils::main"));
/// ```
pub fn is_of_rust(qualified: &str) -> bool {
    let Some(inside) = qualified.strip_prefix('<') else {
        return is_in_library(qualified);
    };
    let (kind, of) = split_as(inside);
    match of {
        // The trait can be defined in a function of a library's type: `<[_]>::to_vec::ConvertVec`.
        Some(of) => is_library_type(kind) && is_of_rust(of),
        None => is_library_type(kind),
    }
}

/// Returns type and trait of `T as Trait>::…`; without a trait only the type.
fn split_as(inside: &str) -> (&str, Option<&str>) {
    let mut depth = 0usize;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' if depth == 0 => return (&inside[..at], None),
            b'>' | b')' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && inside[at..].starts_with(" as ") => {
                return (&inside[..at], Some(&inside[at + 4..]));
            }
            _ => {}
        }
    }
    (inside, None)
}

fn is_in_library(path: &str) -> bool {
    path.split_once("::").is_some_and(|(first, _)| {
        // Without the hash of the crate: `core[0123456789abcdef]`.
        let first = first.split_once('[').map_or(first, |(name, _)| name);
        RUST.contains(&first)
    })
}

/// Returns whether a type is defined by Rust's libraries or the language: without a path, or with a
/// path of theirs.
fn is_library_type(kind: &str) -> bool {
    let kind = kind.trim_start_matches(['&', '*']);
    let kind =
        ["mut ", "const ", "dyn "].iter().fold(kind, |k, word| k.strip_prefix(word).unwrap_or(k));
    kind.starts_with(['[', '(']) || is_in_library(kind) || !kind.contains("::")
}
