//! The error of the command: a chain of causes, printed on one line; of a query, with its place
//! below.

use std::fmt;
use std::io;
use std::path::Path;

use crate::{FAILED, NEGATIVE};

/// What went wrong, and why.
#[derive(Debug)]
pub struct Error {
    what: String,
    source: Option<io::Error>,
    /// Lines below the error.
    excerpt: String,
    /// The status to exit with.
    status: u8,
}

impl Error {
    /// An error without a cause.
    pub fn new(what: impl Into<String>) -> Error {
        Error { what: what.into(), source: None, excerpt: String::new(), status: FAILED }
    }

    /// Not an error, but a negative result: nothing found.
    pub fn negative(what: impl Into<String>) -> Error {
        Error { status: NEGATIVE, ..Error::new(what) }
    }

    /// An error in a text, with the lines of it that show the place.
    pub fn in_text(what: impl Into<String>, excerpt: String) -> Error {
        Error { excerpt, ..Error::new(what) }
    }

    /// Something could not be done with a file: `file("out.svg", "write it", e)`.
    pub fn file(path: &Path, doing: &str, source: io::Error) -> Error {
        let what = format!("{}: cannot {doing}", path.display());
        Error { source: Some(source), ..Error::new(what) }
    }

    /// Standard output could not be written.
    pub fn output(source: io::Error) -> Error {
        Error { source: Some(source), ..Error::new("cannot write standard output") }
    }

    /// The lines that show the place of the error in a text; empty if there is no such place.
    pub fn excerpt(&self) -> &str {
        &self.excerpt
    }

    /// The status to exit with.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Whether the reader of the output is gone.
    pub fn is_broken_pipe(&self) -> bool {
        self.source.as_ref().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let Some(source) = &self.source else {
            return Ok(());
        };
        write!(f, ": {source}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

impl From<String> for Error {
    fn from(what: String) -> Error {
        Error::new(what)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Error {
        Error { source: Some(source), ..Error::new("I/O error") }
    }
}

impl From<heaptide_analysis::Error> for Error {
    /// The line of a recording's error already holds its causes.
    fn from(error: heaptide_analysis::Error) -> Error {
        Error::new(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_one_line() {
        let refused = io::Error::other("no room");
        let error = Error::file(Path::new("a.svg"), "write it", refused);
        assert_eq!(error.to_string(), "a.svg: cannot write it: no room");
        assert!(!error.is_broken_pipe());
        assert!(Error::output(io::ErrorKind::BrokenPipe.into()).is_broken_pipe());
    }
}
