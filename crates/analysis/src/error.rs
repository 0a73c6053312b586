//! Errors of reading and sealing recordings. Each message is one line with the path, the problem,
//! what was expected and what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Maximum number of snapshots in a message, which is a line.
const SNAPSHOTS_LISTED: usize = 20;

/// Why a recording could not be read or sealed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted operation, as a verb: "read", "write".
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The path does not exist.
    Missing {
        /// The requested recording.
        path: PathBuf,
    },
    /// A recording to be merged with itself.
    Twice {
        /// The recording.
        path: PathBuf,
    },
    /// A directory without profiles.
    NoProfiles {
        /// The directory.
        path: PathBuf,
        /// Why nothing was recorded, if the path is a recording and the reason is known; else
        /// empty.
        reason: String,
    },
    /// A process without recorded events.
    NoTrace {
        /// Its profile.
        path: PathBuf,
    },
    /// A snapshot; snapshots contain no events.
    NoTraceInSnapshot {
        /// Its file.
        path: PathBuf,
    },
    /// No process has the requested snapshot.
    NoSnapshot {
        /// The recording.
        path: PathBuf,
        /// Its number, or its name in quotes.
        wanted: String,
        /// The existing snapshots, in the same form.
        there: Vec<String>,
    },
    /// No process has this process id.
    NoProcess {
        /// The process id.
        pid: u32,
    },
    /// A process that this user may not inspect.
    Hidden {
        /// The process id.
        pid: u32,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A process that is not being recorded.
    NotRecorded {
        /// The process id.
        pid: u32,
    },
    /// The file is not a profile.
    Foreign {
        /// The file.
        path: PathBuf,
        /// A description of its contents.
        found: String,
    },
    /// A file in a later version of its format.
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        version: u32,
        /// The last version that this build reads.
        known: u32,
    },
    /// A file larger than the limit of a reader.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in use, in bytes.
        size: u64,
        /// The maximum size, in bytes.
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
    /// A recording of several profiles, none of which can be read.
    NothingReadable {
        /// The recording.
        path: PathBuf,
        /// Number of profiles.
        profiles: usize,
        /// The error of the first profile.
        first: Box<Error>,
    },
}

impl Error {
    /// Returns whether the error is that a file does not exist.
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
                "{}: no such recording; create one with `heaptide run -- PROGRAM`",
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
