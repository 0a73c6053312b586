//! Texts that come from programs and file names: how bytes become text, and how text is shown.

use std::borrow::Cow;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The text of bytes that need not be UTF-8: what is not stands there as `\xff`, so that different
/// bytes stay different texts.
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
            let _ = write!(text, "\\x{byte:02x}"); // a String takes all
        }
    }
    text
}

/// A path in one line for people: the text of its bytes, [`printable`].
///
/// ```
/// assert_eq!(heaptide_analysis::text::of_path("a\nb".as_ref()), r"a\x0ab");
/// ```
pub fn of_path(path: &Path) -> String {
    printable(&from_bytes(path.as_os_str().as_bytes())).into_owned()
}

/// The text with what would control a terminal, break a line or turn the direction of writing
/// written as `\x1b`: names come from programs, and a page or picture is to hold no more than their
/// letters.
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
            let _ = write!(shown, "\\x{:02x}", u32::from(c)); // a String takes all
        } else {
            shown.push(c)
        }
    }
    Cow::Owned(shown)
}

/// Whether a text is printable ASCII, as most are: checked many bytes at once.
fn is_plain(text: &str) -> bool {
    let is_plain = |plain, byte: &u8| plain & matches!(byte, b' '..=b'~');
    text.as_bytes().chunks(32).all(|bytes| bytes.iter().fold(true, is_plain))
}

/// Whether a character is a control, turns the direction of writing, or cannot stand in XML.
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
