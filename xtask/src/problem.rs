//! A violation of a rule, with its location.

use std::fmt;

/// A violation of a rule, with its location.
pub struct Problem {
    path: String,
    line: usize,
    says: String,
}

impl Problem {
    /// Creates a problem at a line, or for the whole file with line 0.
    pub fn new(path: &str, line: usize, says: impl Into<String>) -> Problem {
        Problem { path: path.to_string(), line, says: says.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "tidy: {}:{}: {}", self.path, self.line, self.says)
    }
}
