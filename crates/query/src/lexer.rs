//! Words and signs of a query: words end at white space or a separator, `"` quotes anywhere in a
//! word, `\` takes the next character as it is.

/// Characters that end a word.
pub const SEPARATORS: &str = ",;=<>()";
/// Those that end a unit, which may have comparisons in it.
pub const OF_UNITS: &str = ",;=()";
/// Those that end an argument, which may have `=` in it.
pub const OF_ARGUMENTS: &str = ",;()";

/// A word and where it begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Word {
    /// Its text, without quotes and escapes.
    pub text: String,
    /// The byte it begins at.
    pub at: usize,
    /// Byte in `text` of the first `=` outside quotes.
    pub equals: Option<usize>,
    /// Whether any of it was quoted or escaped.
    pub quoted: bool,
}

impl Word {
    /// The word in lower case; nothing of a quoted one, which is no keyword.
    pub fn keyword(&self) -> String {
        if self.quoted { String::new() } else { self.text.to_ascii_lowercase() }
    }

    /// Whether nothing is there. `""` is something.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.quoted
    }
}

/// A place in a query.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    /// The whole query.
    pub query: &'a str,
    /// The next byte.
    pub at: usize,
}

impl<'a> Cursor<'a> {
    /// The beginning.
    pub fn new(query: &'a str) -> Cursor<'a> {
        Cursor { query, at: 0 }
    }

    /// What is left.
    fn rest(&self) -> &'a str {
        &self.query[self.at..]
    }

    /// Goes on to the next character that is no white space, and says which it is.
    pub fn peek(&mut self) -> Option<char> {
        self.at = self.query.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    /// Takes this text if it is next, white space left out.
    pub fn takes(&mut self, text: &str) -> bool {
        self.peek();
        let next = self.rest().starts_with(text);
        self.at += if next { text.len() } else { 0 };
        next
    }

    /// The next word, up to one of the separators; empty if there is none.
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

    /// The next word without going there.
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
