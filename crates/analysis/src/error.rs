//! What can go wrong with a recording: one line each of where, what was expected, what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Snapshots that a message lists: a line.
const SNAPSHOTS_LISTED: usize = 20;

/// Why a recording could not be read or sealed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done: "read", "write".
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Nothing is there.
    Missing {
        /// The recording asked for.
        path: PathBuf,
    },
    /// A recording that is to be merged with itself.
    Twice {
        /// The recording.
        path: PathBuf,
    },
    /// A directory without any profile.
    NoProfiles {
        /// The directory.
        path: PathBuf,
        /// Why nothing was recorded, if it is a recording that knows; else empty.
        reason: String,
    },
    /// A process whose events were not recorded.
    NoTrace {
        /// Its profile.
        path: PathBuf,
    },
    /// A snapshot, which never has events.
    NoTraceInSnapshot {
        /// Its file.
        path: PathBuf,
    },
    /// No process has this snapshot.
    NoSnapshot {
        /// The recording.
        path: PathBuf,
        /// Its number, or its name in quotes.
        wanted: String,
        /// The snapshots that exist, in the same form.
        there: Vec<String>,
    },
    /// A process id without a process.
    NoProcess {
        /// The process id.
        pid: u32,
    },
    /// A process that may not be inspected.
    Hidden {
        /// The process id.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// A process that is not being recorded.
    NotRecorded {
        /// The process id.
        pid: u32,
    },
    /// The file is something else.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it holds instead.
        found: String,
    },
    /// Written by a later version.
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it says.
        version: u32,
        /// The last version this reader knows.
        known: u32,
    },
    /// More than a reader is willing to hold.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in use, in bytes.
        size: u64,
        /// The largest size that is read.
        limit: u64,
    },
    /// The bytes contradict the format.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found and what was expected.
        what: String,
    },
    /// A JSON file of the recording does not parse.
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// Several profiles, none of which can be read.
    NothingReadable {
        /// The recording.
        path: PathBuf,
        /// How many profiles it has.
        profiles: usize,
        /// What is wrong with the first.
        first: Box<Error>,
    },
}

impl Error {
    /// Whether there is no such file.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { path, doing, source } => {
                write!(f, "{}: cannot {doing} it: {source}", path.display())
            }
            Error::Missing { path } => write!(
                f,
                "{}: no such recording; make one with `heaptide run -- PROGRAM`",
                path.display()
            ),
            Error::Twice { path } => {
                write!(f, "{}: given twice; name each recording once", path.display())
            }
            Error::NoProfiles { path, reason } if !reason.is_empty() => {
                write!(f, "{}: nothing was recorded: {reason}", path.display())
            }
            Error::NoProfiles { path, .. } => write!(
                f,
                "{}: no profile in this directory, expected PID-IMAGE.profile; \
                 name a recording made by `heaptide run`",
                path.display()
            ),
            Error::NoTraceInSnapshot { path } => write!(
                f,
                "{}: snapshots contain no events; omit --snapshot to read the events of the whole run",
                path.display()
            ),
            Error::NoTrace { path } => write!(
                f,
                "{}: no events recorded; record them with `heaptide run --mode trace`",
                path.display()
            ),
            Error::NoProcess { pid } => {
                write!(f, "{pid}: no such process, and no recording of this name")
            }
            Error::Hidden { pid, source } => {
                write!(f, "pid {pid}: cannot inspect the process: {source}")
            }
            Error::NotRecorded { pid } => {
                write!(f, "pid {pid}: not being recorded; start the program with `heaptide run`")
            }
            Error::NoSnapshot { path, wanted, there } => {
                write!(f, "{}: no snapshot {wanted}; available: ", path.display())?;
                if there.is_empty() {
                    return f.write_str("none");
                }
                let shown = &there[..there.len().min(SNAPSHOTS_LISTED)];
                let more = if there.len() > shown.len() { ", …" } else { "" };
                write!(f, "{}{more}", shown.join(", "))
            }
            Error::Foreign { path, found } => write!(
                f,
                "{}: {found}, expected a profile that starts with HEAPTIDE; \
                 name a recording made by `heaptide run`",
                path.display()
            ),
            Error::Newer { path, version, known } => write!(
                f,
                "{}: unsupported format version {version} (this build reads up to {known}); \
                 update heaptide",
                path.display()
            ),
            Error::TooLarge { path, size, limit } => write!(
                f,
                "{}: profile of {size} bytes is too large (limit {limit}); \
                 record a shorter run or use --mode counters",
                path.display()
            ),
            Error::Damaged { path, what } => {
                write!(f, "{}: {what}; the file is damaged", path.display())
            }
            Error::Json { path, source } => {
                write!(f, "{}: {source}; the file is damaged", path.display())
            }
            Error::NothingReadable { path, profiles, first } => write!(
                f,
                "{}: none of its {profiles} profiles can be read; the first is {first}",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } | Error::Hidden { source, .. } => Some(source),
            Error::Json { source, .. } => Some(source),
            Error::NothingReadable { first, .. } => Some(first.as_ref()),
            _ => None,
        }
    }
}
