//! Build-independent names of functions and files: without the parts that compilers and versions
//! add.

use std::borrow::Cow;

/// Suffixes that compilers append to the name of a part or copy of a function, before an optional
/// number.
const PARTS: [&str; 12] = [
    "constprop",
    "isra",
    "part",
    "cold",
    "lto_priv",
    "llvm",
    "localalias",
    "simdclone",
    "ipa",
    "clone",
    "str",
    "__uniq",
];

/// Returns the name without the parts that differ between builds of the same source: suffixes of
/// parts and copies, hashes of crates, versions of symbols, counters of functions in a file, and
/// the prefix that functions of glibc have only in its debug information.
///
/// ```
/// use heaptide_analysis::attribution::name_in_every_build;
/// assert_eq!(name_in_every_build("copy_tree.constprop.0.isra.1"), "copy_tree");
/// assert_eq!(name_in_every_build("Tree::add(int) [clone .cold]"), "Tree::add(int)");
/// assert_eq!(name_in_every_build("app::read::h0123456789abcdef"), "app::read");
/// assert_eq!(name_in_every_build("__GI___strdup"), "__strdup");
/// assert_eq!(name_in_every_build("operator new(unsigned long)"), "operator new(unsigned long)");
/// ```
pub fn name_in_every_build(name: &str) -> Cow<'_, str> {
    let name = without_suffixes(name.strip_prefix("__GI_").unwrap_or(name));
    // Few names have any of these; most need no copy.
    if name.contains(['[', '$']) || name.contains("{impl#") {
        Cow::Owned(without_numbers(name))
    } else {
        Cow::Borrowed(name)
    }
}

/// Returns the file name of a module without its version: `libz.so` for `libz.so.1.2.13`.
pub fn file_in_every_build(file: &str) -> &str {
    file.find(".so.").map_or(file, |at| &file[..at + ".so".len()])
}

fn without_suffixes(mut name: &str) -> &str {
    loop {
        let shorter = without_suffix(name);
        if shorter.is_empty() || shorter.len() == name.len() {
            return name;
        }
        name = shorter;
    }
}

/// Returns the name without its last suffix, if it has one.
fn without_suffix(name: &str) -> &str {
    if name.ends_with([']', ')']) {
        let last = name.rfind(['[', '(']).unwrap_or(0);
        let is_part = name[last..].starts_with("[clone .") || name[last..].starts_with("(.");
        return name[..last].strip_suffix(' ').filter(|_| is_part).unwrap_or(name);
    }
    if let Some((start, version)) = name.rsplit_once('@')
        && version.starts_with(|c: char| c.is_ascii_alphabetic())
        && version.contains('_')
    {
        return start.trim_end_matches('@');
    }
    if let Some((start, hash)) = name.len().checked_sub(19).and_then(|at| name.split_at_checked(at))
    {
        let is_hash = |digits: &str| digits.bytes().all(|b| b.is_ascii_hexdigit());
        if hash.strip_prefix("::h").is_some_and(is_hash) {
            return start;
        }
    }
    let Some((start, last)) = name.rsplit_once('.') else {
        return name;
    };
    let is_number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    if is_number || PARTS.contains(&last) { start } else { name }
}

/// Returns the name without disambiguators of crates, and without numbers that change when another
/// function is added: `core[8a1f…]::fmt`, `{impl#3}`, `main::$_7`.
fn without_numbers(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (shown, length) = match c {
            '[' if hash_length(rest) > 0 => ("", hash_length(rest)),
            '$' if rest.starts_with("$_") => ("$_", 2 + digits(&rest[2..])),
            '{' if rest.starts_with("{impl#") => ("{impl", 6 + digits(&rest[6..])),
            _ => (&rest[..c.len_utf8()], c.len_utf8()),
        };
        kept.push_str(shown);
        rest = &rest[length..];
    }
    kept
}

/// Returns the length of the disambiguator in brackets at the beginning of a text, or 0.
fn hash_length(rest: &str) -> usize {
    let inside = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or("", |s| s.0);
    let is_hash = inside.len() >= 8 && inside.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hash { inside.len() + 2 } else { 0 }
}

/// Returns the number of digits at the beginning of a text.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_builds_goes() {
        let alike = [
            ("grow.part.0", "grow"),
            ("grow.cold", "grow"),
            ("grow.lto_priv.12.cold", "grow"),
            ("grow.1234", "grow"),
            ("grow.llvm.8123456789", "grow"),
            ("app::grow::h0123456789abcdef.llvm.77", "app::grow"),
            ("Tree::grow(int) (.isra.0)", "Tree::grow(int)"),
            ("Tree::grow(int) [clone .constprop.0] [clone .cold]", "Tree::grow(int)"),
            ("<core[8a1f5e0d3c2b1a09]::iter::Map<I>>::next", "<core::iter::Map<I>>::next"),
            ("app::{impl#12}::next", "app::{impl}::next"),
            ("main::$_7::operator()() const", "main::$_::operator()() const"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("größe.isra.0", "größe"),
        ];
        for (name, expected) in alike {
            assert_eq!(name_in_every_build(name), expected, "{name}");
        }
    }

    #[test]
    fn what_tells_functions_apart_stays() {
        for name in [
            "main",
            "",
            ".cold",
            "12",
            "f(int) const",
            "std::__cxx11::basic_string<char>::basic_string[abi:cxx11](int)",
            "main::{lambda(int)#2}::operator()(int) const",
            "app::main::{closure#1}",
            "Tree::operator[](int)",
            "app::handle::h0123",
            "mail@example",
            "go.shape.string",
            "[",
            "$",
            "a[ü",
        ] {
            assert_eq!(name_in_every_build(name), name);
        }
    }

    #[test]
    fn libraries_are_known_without_their_version() {
        assert_eq!(file_in_every_build("libz.so.1.2.13"), "libz.so");
        assert_eq!(file_in_every_build("libz.so"), "libz.so");
        assert_eq!(file_in_every_build("app.sock"), "app.sock");
    }
}
