//! The error of the command: a chain of causes, printed on one line; for a query, with its location
//! below.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A failure and its causes.
#[derive(Debug)]
pub enum Error {
    /// An error without a cause.
    Message(String),
    /// An error in a text, with lines that show the location.
    Text {
        /// The problem.
        what: String,
        /// The lines that show the location.
        excerpt: String,
    },
    /// A failed operation on a file: `Error::file("out.svg", "write it", e)`.
    File {
        /// The file.
        path: PathBuf,
        /// The failed operation, in the infinitive.
        doing: String,
        /// The cause.
        source: io::Error,
    },
    /// Writing to standard output failed.
    Output(io::Error),
    /// Another I/O operation failed.
    Io(io::Error),
    /// An error of another library, whose line contains its causes.
    Library(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Creates an error without a cause.
    pub fn new(what: impl Into<String>) -> Error {
        Error::Message(what.into())
    }

    /// Creates the error of a failed operation on a file: `file("out.svg", "write it", e)`.
    pub fn file(path: &Path, doing: impl Into<String>, source: io::Error) -> Error {
        Error::File { path: path.to_owned(), doing: doing.into(), source }
    }

    /// Converts an error of another library, whose line contains its causes.
    pub fn library(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Library(Box::new(error))
    }

    /// Returns the lines that show the location of the error in a text; empty if there is none.
    pub fn excerpt(&self) -> &str {
        match self {
            Error::Text { excerpt, .. } => excerpt,
            _ => "",
        }
    }

    /// Returns whether the reader of the output closed the pipe.
    pub fn is_broken_pipe(&self) -> bool {
        match self {
            Error::File { source, .. } | Error::Output(source) | Error::Io(source) => {
                source.kind() == io::ErrorKind::BrokenPipe
            }
            Error::Message(_) | Error::Text { .. } | Error::Library(_) => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Message(what) | Error::Text { what, .. } => f.write_str(what),
            Error::File { path, doing, source } => {
                write!(f, "{}: cannot {doing}: {source}", path.display())
            }
            Error::Output(source) => write!(f, "cannot write standard output: {source}"),
            Error::Io(source) => write!(f, "I/O error: {source}"),
            Error::Library(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Message(_) | Error::Text { .. } => None,
            Error::File { source, .. } | Error::Output(source) | Error::Io(source) => Some(source),
            Error::Library(error) => Some(&**error),
        }
    }
}

impl From<String> for Error {
    fn from(what: String) -> Error {
        Error::Message(what)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Error {
        Error::Io(source)
    }
}

impl From<heaptide_analysis::Error> for Error {
    fn from(error: heaptide_analysis::Error) -> Error {
        Error::library(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_causes_is_one_line() {
        let refused = io::Error::other("no room");
        let error = Error::file(Path::new("a.svg"), "write it", refused);
        assert_eq!(error.to_string(), "a.svg: cannot write it: no room");
        assert!(!error.is_broken_pipe());
        let cause = std::error::Error::source(&error).expect("a cause");
        assert_eq!(cause.to_string(), "no room");
        assert!(Error::Output(io::ErrorKind::BrokenPipe.into()).is_broken_pipe());
    }
}
