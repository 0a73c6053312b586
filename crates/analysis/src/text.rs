//! Texts from programs and file names: conversion of bytes to text, and display of texts.

use std::borrow::Cow;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns bytes as text. Bytes that are not valid UTF-8 become `\xff`, so that different bytes
/// remain different texts.
///
/// ```
/// use heaptide_analysis::text::from_bytes;
/// assert_eq!(from_bytes(b"l\xf6ve"), r"l\xf6ve");
/// assert_eq!(from_bytes("löve\n".as_bytes()), "löve\n");
/// ```
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}"); // writing to a String cannot fail
        }
    }
    text
}

/// Returns a path as one line for display: the text of its bytes, [`printable`].
///
/// ```
/// assert_eq!(heaptide_analysis::text::of_path("a\nb".as_ref()), r"a\x0ab");
/// ```
pub fn of_path(path: &Path) -> String {
    printable(&from_bytes(path.as_os_str().as_bytes())).into_owned()
}

/// Returns the text with characters escaped as `\x1b` that would control a terminal, break a line
/// or change the direction of writing. Names come from programs and must not affect a page or
/// picture otherwise.
///
/// ```
/// use heaptide_analysis::text::printable;
/// assert_eq!(printable("red\x1b[31m\n"), r"red\x1b[31m\x0a");
/// assert_eq!(printable("größe"), "größe");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if is_plain(text) || !text.chars().any(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unprintable(c) {
            let _ = write!(shown, "\\x{:02x}", u32::from(c)); // writing to a String cannot fail
        } else {
            shown.push(c)
        }
    }
    Cow::Owned(shown)
}

/// Returns whether a text is printable ASCII, as most are; fast, because it checks many bytes at
/// once.
fn is_plain(text: &str) -> bool {
    let is_plain = |plain, byte: &u8| plain & matches!(byte, b' '..=b'~');
    text.as_bytes().chunks(32).all(|bytes| bytes.iter().fold(true, is_plain))
}

/// Returns whether a character is a control, changes the direction of writing, or is not allowed in
/// XML.
pub fn is_unprintable(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}');
    c.is_control() || turns || matches!(c, '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_is_found_wherever_it_is() {
        for length in 0..100 {
            let plain = "~".repeat(length);
            assert_eq!(printable(&plain), plain);
            assert_eq!(printable(&format!("{plain}\x7f{plain}")), format!(r"{plain}\x7f{plain}"));
        }
    }
}
