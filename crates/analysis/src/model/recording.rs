//! A recording: its process images, and the files that could not be read.

use std::path::PathBuf;

use super::process::Process;

/// What `heaptide run` left: one profile per process image, in order of start.
#[derive(Debug, Default)]
pub struct Recording {
    /// Where it was read from.
    pub path: PathBuf,
    /// Whether symbols were stored with it.
    pub sealed: bool,
    /// When they were, nanoseconds since 1970-01-01 UTC; 0 if that is not known.
    pub sealed_realtime_ns: u64,
    /// Images that ran later, `PID-IMAGE`: functions that they reached then have no stored names.
    pub ran_after_sealing: Vec<String>,
    /// Why the program that was started is not among the processes; empty if it is, or if nobody
    /// noted why.
    pub unrecorded: String,
    /// The process images. An image whose profile could not be read is in `damaged`.
    pub processes: Vec<Process>,
    /// Files that could not be read.
    pub damaged: Vec<DamagedFile>,
}

/// A file of a recording that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedFile {
    /// Its path.
    pub path: PathBuf,
    /// A line that contains the path and the reason.
    pub reason: String,
}
