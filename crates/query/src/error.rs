//! Errors of queries, with their location.

use std::fmt;

/// An error at a location in a query. Two lines below the message show it: the line of the query,
/// and a caret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryError {
    /// The message: lower case, no full stop.
    pub message: String,
    /// The line of the query.
    line: String,
    /// Characters before the location in that line.
    column: usize,
}

/// In long queries, the characters shown on each side of the location.
const AROUND: usize = 48;

impl QueryError {
    /// Creates an error at a byte offset of a query.
    pub fn at(query: &str, byte: usize, message: impl Into<String>) -> QueryError {
        let mut byte = byte.min(query.len());
        while !query.is_char_boundary(byte) {
            byte -= 1;
        }
        let start = query[..byte].rfind('\n').map_or(0, |end| end + 1);
        let before: Vec<char> = query[start..byte].chars().collect();
        let after = query[byte..].chars().take_while(|&c| c != '\n');
        let (skipped, cut) = (before.len().saturating_sub(AROUND), before.len() > AROUND);
        let mut line: String = if cut { "…" } else { "" }.to_owned();
        line.extend(&before[skipped..]);
        let column = line.chars().count();
        let after: Vec<char> = after.take(AROUND + 1).collect();
        line.extend(after.iter().take(AROUND));
        line.extend((after.len() > AROUND).then_some('…'));
        let line = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        QueryError { message: message.into(), line, column }
    }

    /// Returns the line of the query, and the caret below it.
    pub fn excerpt(&self) -> String {
        format!("  {}\n  {:width$}^", self.line, "", width = self.column)
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query: {}\n{}", self.message, self.excerpt())
    }
}

impl std::error::Error for QueryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_is_below_the_error() {
        let error = QueryError::at("select\n größe x", 7 + 9, "odd");
        assert_eq!(error.to_string(), "query: odd\n   größe x\n         ^");
        let long = "a ".repeat(100);
        let error = QueryError::at(&long, 120, "odd").to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines[2].chars().count() - 1, 2 + 1 + AROUND);
        assert!(lines[1].starts_with("  …") && lines[1].ends_with('…'));
    }
}
