//! A place where a rule is broken, and how it is printed.

use std::fmt;

/// A place where a rule is broken.
pub struct Problem {
    path: String,
    line: usize,
    says: String,
}

impl Problem {
    /// At a line (0: the file as a whole).
    pub fn new(path: &str, line: usize, says: impl Into<String>) -> Problem {
        Problem { path: path.to_string(), line, says: says.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "tidy: {}:{}: {}", self.path, self.line, self.says)
    }
}
