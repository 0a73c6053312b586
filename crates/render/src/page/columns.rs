//! Columns of numbers in a binary form that the page decodes without a parser.
//!
//! Numbers are LEB128, lowest seven bits first, so that zeros and small numbers, of which most
//! columns consist, take one byte. A separate list contains the position of each column.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::shared::leb128;

/// Concatenated columns.
#[derive(Default)]
pub(super) struct Columns {
    bytes: Vec<u8>,
    list: Vec<Column>,
}

/// Position and type of a column.
#[derive(Serialize)]
pub(super) struct Column {
    name: &'static str,
    /// Count of numbers, or of bytes of text.
    count: usize,
    /// Length in bytes.
    length: usize,
    /// The largest number, which determines the element size of the decoded array.
    most: u64,
}

impl Columns {
    /// Adds a column of numbers.
    pub(super) fn add(&mut self, name: &'static str, numbers: impl IntoIterator<Item = u64>) {
        let start = self.bytes.len();
        let (mut count, mut most) = (0, 0);
        for number in numbers {
            leb128::push(&mut self.bytes, number);
            most = most.max(number);
            count += 1;
        }
        self.list.push(Column { name, count, length: self.bytes.len() - start, most });
    }

    /// Adds texts as two columns: their lengths in bytes, `text`, and their contents, `utf8`.
    pub(super) fn add_texts(&mut self, texts: &Texts) {
        self.add("text", texts.lengths.iter().map(|&length| length.into()));
        let length = texts.bytes.len();
        self.bytes.extend_from_slice(texts.bytes.as_bytes());
        self.list.push(Column { name: "utf8", count: length, length, most: u64::from(u8::MAX) });
    }

    /// Returns the bytes, and the position of each column.
    pub(super) fn finish(self) -> (Vec<u8>, Vec<Column>) {
        (self.bytes, self.list)
    }
}

/// Distinct texts, by number. Number 0 is the empty text.
pub(super) struct Texts {
    known: FxHashMap<String, u32>,
    lengths: Vec<u32>,
    bytes: String,
}

impl Texts {
    pub(super) fn new() -> Texts {
        let mut texts =
            Texts { known: FxHashMap::default(), lengths: Vec::new(), bytes: String::new() };
        texts.number("");
        texts
    }

    /// Returns the number of a text, adding it if it is new.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.known.get(text) {
            return number;
        }
        let number = self.lengths.len() as u32;
        self.known.insert(text.to_owned(), number);
        self.lengths.push(text.len() as u32);
        self.bytes.push_str(text);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_leb128() {
        let mut columns = Columns::default();
        columns.add("small", [0, 127, 128]);
        columns.add("large", [u64::MAX]);
        let (bytes, list) = columns.finish();
        assert_eq!(bytes[..4], [0, 127, 0x80, 1]);
        assert_eq!(bytes[4..], [[0xff; 9].as_slice(), &[1]].concat());
        let list: Vec<_> = list.iter().map(|c| (c.name, c.count, c.length, c.most)).collect();
        assert_eq!(list, [("small", 3, 4, 128), ("large", 1, 10, u64::MAX)]);
    }

    #[test]
    fn a_text_is_there_once() {
        let mut texts = Texts::new();
        assert_eq!(["ä", "", "b", "ä"].map(|text| texts.number(text)), [1, 0, 2, 1]);
        let mut columns = Columns::default();
        columns.add_texts(&texts);
        assert_eq!(columns.finish().0, [0, 2, 1, 0xc3, 0xa4, b'b']);
    }
}
