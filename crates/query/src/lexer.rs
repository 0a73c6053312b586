//! Splits a query into words and signs: words end at white space or a separator, `"` quotes parts
//! of a word, `\` escapes the next character.

/// Characters that end a word.
pub const SEPARATORS: &str = ",;=<>()";
/// Characters that end a unit, which may contain comparison signs.
pub const OF_UNITS: &str = ",;=()";
/// Characters that end an argument, which may contain `=`.
pub const OF_ARGUMENTS: &str = ",;()";

/// A word and its location.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Word {
    /// Its text, without quotes and escapes.
    pub text: String,
    /// The byte offset of its start.
    pub at: usize,
    /// Byte in `text` of the first `=` outside quotes.
    pub equals: Option<usize>,
    /// Whether any of it was quoted or escaped.
    pub quoted: bool,
}

impl Word {
    /// Returns the word in lower case; empty if it is quoted, because it is then no keyword.
    pub fn keyword(&self) -> String {
        if self.quoted { String::new() } else { self.text.to_ascii_lowercase() }
    }

    /// Returns whether there is no word. `""` is a word.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.quoted
    }
}

/// A position in a query.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    /// The whole query.
    pub query: &'a str,
    /// The offset of the next byte.
    pub at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the beginning of the query.
    pub fn new(query: &'a str) -> Cursor<'a> {
        Cursor { query, at: 0 }
    }

    /// Returns the remaining text.
    fn rest(&self) -> &'a str {
        &self.query[self.at..]
    }

    /// Skips white space and returns the next character, without consuming it.
    pub fn peek(&mut self) -> Option<char> {
        self.at = self.query.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    /// Skips white space, and consumes this text if it is next.
    pub fn takes(&mut self, text: &str) -> bool {
        self.peek();
        let next = self.rest().starts_with(text);
        self.at += if next { text.len() } else { 0 };
        next
    }

    /// Returns the next word, which ends at one of the separators; empty if there is none.
    pub fn word(&mut self, separators: &str) -> Word {
        self.peek();
        let mut word = Word { at: self.at, ..Word::default() };
        let mut inside = false;
        let mut characters = self.rest().char_indices();
        let mut end = self.query.len();
        while let Some((at, c)) = characters.next() {
            match c {
                '\\' => {
                    word.quoted = true;
                    word.text.extend(characters.next().map(|(_, next)| next));
                }
                '"' => {
                    word.quoted = true;
                    inside = !inside;
                }
                c if !inside && (c.is_whitespace() || separators.contains(c)) => {
                    end = self.at + at;
                    break;
                }
                c => {
                    if c == '=' && !inside && word.equals.is_none() {
                        word.equals = Some(word.text.len());
                    }
                    word.text.push(c);
                }
            }
        }
        self.at = end;
        word
    }

    /// Returns the next word without consuming it.
    pub fn next_word(&self) -> Word {
        let mut ahead = *self;
        ahead.word(SEPARATORS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes() {
        let mut cursor = Cursor::new(r#"d="foo,"\ bar, "" x"#);
        assert_eq!(cursor.word(SEPARATORS).text, "d");
        assert!(cursor.takes("="));
        let value = cursor.word(SEPARATORS);
        assert_eq!((&*value.text, value.quoted, value.at), ("foo, bar", true, 2));
        assert!(cursor.takes(","));
        assert!(!cursor.word(SEPARATORS).is_empty());
        assert_eq!(cursor.next_word().text, "x");
        assert_eq!((cursor.word(SEPARATORS).keyword(), cursor.peek()), ("x".to_owned(), None));
    }
}
