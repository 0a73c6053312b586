//! Errors of controlling or observing a running recording.

use std::fmt;
use std::io;
use std::path::PathBuf;

use heaptide_analysis::quantity;

/// The failed operation, its object, and the cause.
#[derive(Debug)]
pub enum Error {
    /// An operation on a live profile failed.
    Profile {
        /// Its file.
        path: PathBuf,
        /// The failed operation, in the infinitive.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A live profile without a header.
    NoHeader {
        /// Its file.
        path: PathBuf,
    },
    /// A live profile of an earlier version, which cannot be controlled.
    Older {
        /// Its file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The first version that can be controlled.
        first: u32,
    },
    /// A live profile of a later version than this library supports.
    Newer {
        /// Its file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The last version that this library supports.
        known: u32,
    },
    /// No process writes to the recording.
    NoneRunning {
        /// Its path.
        recording: PathBuf,
    },
    /// The selected process does not write to the recording, but others do.
    NotRunning {
        /// Its path.
        recording: PathBuf,
        /// The selected process id.
        pid: u32,
        /// The ids of the processes that write to it.
        running: Vec<u32>,
    },
    /// An earlier request is unanswered, so the next one was not made.
    Busy {
        /// The process id.
        pid: u32,
        /// The earlier request.
        what: &'static str,
    },
    /// A program ended before it handled a request.
    Ended {
        /// Its process id.
        pid: u32,
        /// What was requested.
        what: &'static str,
    },
    /// A recording exceeds its limit, and nothing of it may be removed.
    NoRoom {
        /// Its size on disk in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A thread cannot be started.
    NoThread {
        /// The name of the thread.
        which: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A thread panicked.
    Panicked {
        /// The name of the thread.
        which: &'static str,
    },
    /// A recording cannot be read or written.
    Recording(heaptide_analysis::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Profile { path, doing, source } => {
                write!(f, "{}: cannot {doing}: {source}", path.display())
            }
            Error::NoHeader { path } => write!(
                f,
                "{}: the header has not been written yet (process still starting)",
                path.display()
            ),
            Error::Older { path, version, first } => write!(
                f,
                "{}: cannot control profile version {version}, expected {first} or later; \
                 record with this heaptide",
                path.display()
            ),
            Error::Newer { path, version, known } => write!(
                f,
                "{}: unsupported profile version {version} (this build supports up to {known}); \
                 update heaptide",
                path.display()
            ),
            Error::NoneRunning { recording } => {
                write!(f, "{}: no process is recording into it any more", recording.display())
            }
            Error::NotRunning { recording, pid, running } => {
                let running: Vec<String> = running.iter().map(u32::to_string).collect();
                let (shown, running) = (recording.display(), running.join(", "));
                write!(f, "{shown}: no running process {pid}; running: {running}")
            }
            Error::Busy { pid, what } => write!(
                f,
                "pid {pid}: an earlier request is pending until the program's next allocation; \
                 retry {what} after that"
            ),
            Error::Ended { pid, what } => {
                write!(f, "pid {pid}: the program ended before {what}")
            }
            Error::NoRoom { bytes, limit } => {
                let [bytes, limit] = [bytes, limit].map(|&bytes| quantity::bytes(bytes));
                write!(
                    f,
                    "the recording takes {bytes} of {limit} (--max-recording): the remaining \
                     files belong to running programs or are kept; limit them with \
                     --max-profile or --keep-snapshots"
                )
            }
            Error::NoThread { which, source } => write!(f, "cannot start {which}: {source}"),
            Error::Panicked { which } => write!(f, "internal error: {which} panicked"),
            // Its message already contains its causes.
            Error::Recording(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Profile { source, .. } | Error::NoThread { source, .. } => Some(source),
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
