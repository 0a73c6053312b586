//! The state of the parser, with the operations on words that all clauses use.

use crate::error::QueryError;
use crate::lexer::{Cursor, SEPARATORS, Word};
use crate::query::Query;

/// The result of parsing a part of the text.
pub(crate) type Parsed<T> = Result<T, QueryError>;

pub(crate) struct Parser<'a> {
    pub(crate) cursor: Cursor<'a>,
    pub(crate) query: Query,
}

impl Parser<'_> {
    /// Returns an error at this location.
    pub(crate) fn fail<T>(&self, at: usize, message: impl Into<String>) -> Parsed<T> {
        Err(QueryError::at(self.cursor.query, at, message))
    }

    /// Parses a required word.
    pub(crate) fn word(&mut self, expected: &str, separators: &str) -> Parsed<Word> {
        let word = self.cursor.word(separators);
        if word.is_empty() { self.fail(word.at, format!("expected {expected}")) } else { Ok(word) }
    }

    /// Consumes a keyword if it is next.
    pub(crate) fn keyword(&mut self, keyword: &str) -> bool {
        let next = self.cursor.next_word().keyword() == keyword;
        if next {
            self.cursor.word(SEPARATORS);
        }
        next
    }
}
