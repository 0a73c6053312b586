//! The text of a source file beside numbers of its lines.

use std::borrow::Cow;

/// Spaces between tab stops.
const TAB: usize = 4;

/// A source file as found on this machine.
#[derive(Clone, Debug, Default)]
pub struct SourceText {
    /// Its lines; `None` if the file was not found.
    pub lines: Option<Vec<String>>,
    /// Why the text is missing or need not be that of the recording.
    pub doubt: Option<String>,
}

impl SourceText {
    /// Returns a text of the file's bytes. Bytes that are not UTF-8 are replaced.
    ///
    /// ```
    /// use heaptide_render::shared::source_text::SourceText;
    /// let text = SourceText::of(b"a\n\tb\r\n", None);
    /// assert_eq!((text.line(1), text.line(2), text.line(3)), ("a", "    b", ""));
    /// ```
    pub fn of(bytes: &[u8], doubt: Option<String>) -> SourceText {
        let text = String::from_utf8_lossy(bytes);
        let lines = text.lines().map(|line| plain(line).into_owned()).collect();
        SourceText { lines: Some(lines), doubt }
    }

    /// Returns the number of lines; 0 if the file was not found.
    pub fn len(&self) -> usize {
        self.lines.as_ref().map_or(0, Vec::len)
    }

    /// Returns whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a line, counted from 1; empty if there is none.
    pub fn line(&self, number: u32) -> &str {
        let index = (number as usize).checked_sub(1);
        let line = index.and_then(|index| self.lines.as_ref()?.get(index));
        line.map_or("", String::as_str)
    }
}

/// Replaces tabs by spaces, and characters that pages reserve for styles.
fn plain(line: &str) -> Cow<'_, str> {
    let is_reserved = |c: char| ('\u{fdd0}'..='\u{fdef}').contains(&c);
    if !line.contains(|c| c == '\t' || is_reserved(c)) {
        return Cow::Borrowed(line);
    }
    let mut shown = String::with_capacity(line.len() + TAB);
    let mut column = 0;
    for c in line.chars() {
        match c {
            '\t' => {
                let width = TAB - column % TAB;
                shown.extend(std::iter::repeat_n(' ', width));
                column += width;
                continue;
            }
            c if is_reserved(c) => shown.push(char::REPLACEMENT_CHARACTER),
            c => shown.push(c),
        }
        column += 1;
    }
    Cow::Owned(shown)
}
