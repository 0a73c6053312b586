//! Formats values as cells of a fixed width, and escapes them for JSON.

use std::borrow::Cow;
use std::io::{self, Write};

use heaptide_analysis::text::{is_unprintable, printable};

use crate::query::Format;
use crate::table::Table;

/// Returns the maximal width of a column; a `column-width` below 1 means no limit.
pub(crate) fn widest(format: &Format, otherwise: usize) -> usize {
    match format.arguments.get("column-width").and_then(|width| width.parse::<i32>().ok()) {
        Some(width) if width > 0 => width as usize,
        Some(_) => usize::MAX,
        None => otherwise,
    }
}

/// Returns the number of characters.
pub(crate) fn length(text: &str) -> usize {
    text.chars().count()
}

/// A text as shown in cells.
pub(crate) struct Shown<'a> {
    text: Cow<'a, str>,
    /// Its number of characters.
    pub(crate) length: usize,
}

impl<'a> Shown<'a> {
    /// Converts a text with [`printable`].
    pub(crate) fn of(text: impl Into<Cow<'a, str>>) -> Shown<'a> {
        let text = match text.into() {
            Cow::Borrowed(text) => printable(text),
            Cow::Owned(text) => Cow::Owned(printable(&text).into_owned()),
        };
        Shown { length: length(&text), text }
    }

    /// Returns at most `width` characters of it in pieces, omitting the middle of longer texts, and
    /// the number of characters.
    fn clamped(&self, width: usize) -> ([&str; 3], usize) {
        match width {
            _ if self.length <= width => ([&self.text, "", ""], self.length),
            0..4 => ([&self.text[..self.place_of(width)], "", ""], width),
            _ => {
                let side = width / 2 - 1;
                let first = &self.text[..self.place_of(side)];
                let last = &self.text[self.place_of(self.length - side)..];
                ([first, "~~", last], 2 * side + 2)
            }
        }
    }

    /// Returns the byte offset of a character.
    fn place_of(&self, character: usize) -> usize {
        if self.length == self.text.len() {
            return character;
        }
        let place = self.text.char_indices().nth(character);
        place.map_or(self.text.len(), |(place, _)| place)
    }
}

/// Appends `count` spaces to a line.
pub(crate) fn spaces(line: &mut String, count: usize) {
    const SPACES: &str = "                                ";
    let mut left = count;
    while left > 0 {
        let some = left.min(SPACES.len());
        line.push_str(&SPACES[..some]);
        left -= some;
    }
}

/// Appends a cell to a line; numbers are right-aligned.
pub(crate) fn cell(line: &mut String, text: &str, width: usize, is_number: bool) {
    shown_cell(line, &Shown::of(text), width, is_number);
}

/// Like `cell`, for a text whose length is known.
pub(crate) fn shown_cell(line: &mut String, text: &Shown, width: usize, is_number: bool) {
    let (pieces, length) = text.clamped(width);
    let space = width.min(1 << 16).saturating_sub(length);
    spaces(line, if is_number { space } else { 0 });
    line.extend(pieces);
    spaces(line, if is_number { 1 } else { space + 1 });
}

/// Writes the values that apply to all records, one per line.
pub(crate) fn globals(out: &mut dyn Write, format: &Format, answer: &Table) -> io::Result<()> {
    if !format.arguments.contains_key("print-globals") {
        return Ok(());
    }
    let width = answer.globals.iter().map(|(name, _)| length(name)).max().unwrap_or(0).min(24);
    for (name, value) in &answer.globals {
        let mut line = String::new();
        cell(&mut line, name, width, false);
        writeln!(out, "{line}: {}", Shown::of(&**value).clamped(52).0.concat())?;
    }
    Ok(())
}

/// Escapes a text for a JSON string.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            c if is_unprintable(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_elided_in_the_middle() {
        let shown = |text: &'static str, width| {
            let shown = Shown::of(text);
            let (pieces, length) = shown.clamped(width);
            let text = pieces.concat();
            assert_eq!(text.chars().count(), length);
            text
        };
        assert_eq!([0, 2, 3].map(|width| shown("abcdefgh", width)), ["", "ab", "abc"]);
        assert_eq!(
            [4, 5, 7, 8].map(|width| shown("abcdefgh", width)),
            ["a~~h", "a~~h", "ab~~gh", "abcdefgh"]
        );
        assert_eq!(
            [2, 4, 6, 7].map(|width| shown("größere", width)),
            ["gr", "g~~e", "gr~~re", "größere"]
        );
        assert_eq!(shown("a\nb", 9), r"a\x0ab");
        assert_eq!(Shown::of("größe".to_owned()).length, 5);
    }

    #[test]
    fn cells_have_the_requested_width() {
        let line = |text, width, is_number| {
            let mut line = "|".to_owned();
            cell(&mut line, text, width, is_number);
            line
        };
        assert_eq!(line("öl", 4, false), "|öl   ");
        assert_eq!(line("12", 4, true), "|  12 ");
        assert_eq!(line("12", 70, true), format!("|{:>70} ", 12));
        assert_eq!(line("x", usize::MAX, false).len(), (1 << 16) + 2);
    }
}
