//! The state of parsing: the place in the text and what has been read, with the words that all
//! clauses consist of.

use crate::error::QueryError;
use crate::lexer::{Cursor, SEPARATORS, Word};
use crate::query::Query;

/// What a part of the text is, or what is wrong with it.
pub(crate) type Parsed<T> = Result<T, QueryError>;

pub(crate) struct Parser<'a> {
    pub(crate) cursor: Cursor<'a>,
    pub(crate) query: Query,
}

impl Parser<'_> {
    /// An error at this place.
    pub(crate) fn fail<T>(&self, at: usize, message: impl Into<String>) -> Parsed<T> {
        Err(QueryError::at(self.cursor.query, at, message))
    }

    /// A word that must be there.
    pub(crate) fn word(&mut self, expected: &str, separators: &str) -> Parsed<Word> {
        let word = self.cursor.word(separators);
        if word.is_empty() { self.fail(word.at, format!("expected {expected}")) } else { Ok(word) }
    }

    /// Takes a keyword if it is next.
    pub(crate) fn keyword(&mut self, keyword: &str) -> bool {
        let next = self.cursor.next_word().keyword() == keyword;
        if next {
            self.cursor.word(SEPARATORS);
        }
        next
    }
}
