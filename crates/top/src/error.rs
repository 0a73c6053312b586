//! Errors of the screen.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The failure, and what to do instead.
#[derive(Debug)]
pub enum Error {
    /// Standard input or output is no terminal.
    NoTerminal,
    /// The terminal cannot be used.
    Terminal(io::Error),
    /// No process writes to the recording.
    NoneRunning {
        /// The recording.
        recording: PathBuf,
    },
    /// The recording does not contain this process.
    NoProcess {
        /// The recording.
        recording: PathBuf,
        /// The process id.
        pid: u32,
        /// The process ids in the recording.
        pids: Vec<u32>,
    },
    /// The filter is no valid pattern.
    Filter(String),
    /// The reason why there is nothing to show.
    Source(String),
    /// The recording cannot be read.
    Recording(heaptide_analysis::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoTerminal => f.write_str(
                "top needs a terminal to write to and to read keys from; \
                 use `heaptide report` or `heaptide timeline`",
            ),
            Error::Terminal(source) => write!(f, "cannot use the terminal: {source}"),
            Error::NoneRunning { recording } => write!(
                f,
                "{}: no process is recording into it any more; \
                 use `heaptide top --replay` or `heaptide report`",
                recording.display()
            ),
            Error::NoProcess { recording, pid, pids } => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                let (recording, pids) = (recording.display(), pids.join(", "));
                write!(f, "{recording}: no process {pid}; available: {pids}")
            }
            Error::Filter(what) => write!(f, "--focus {what}"),
            Error::Source(what) => f.write_str(what),
            Error::Recording(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Terminal(source) => Some(source),
            Error::Recording(error) => Some(error),
            _ => None,
        }
    }
}

impl From<heaptide_analysis::Error> for Error {
    fn from(error: heaptide_analysis::Error) -> Error {
        Error::Recording(error)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Error {
        Error::Terminal(source)
    }
}
