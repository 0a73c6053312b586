//! Data about an image from other sources than its profile: its file, and how and when it ended.

use std::path::PathBuf;

use crate::model::{End, Run};

/// How a process image ended, and notes about the completeness of its profile.
pub(crate) struct Ending {
    pub(crate) file: PathBuf,
    pub(crate) run: Option<Run>,
    pub(crate) end: End,
    /// Whether `heaptide run` started its process directly.
    pub(crate) is_requested: bool,
    /// Whether it executed a program that has no profile, for an unknown reason.
    pub(crate) became_unrecorded: bool,
    pub(crate) lasted: Lasted,
    pub(crate) process_number: u32,
    pub(crate) execs: u32,
    pub(crate) part: Option<String>,
    /// Which part of it was not recorded, as known before its start.
    pub(crate) in_part: Option<String>,
    pub(crate) notes: Vec<String>,
}

/// The time from the start of an image to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lasted {
    pub(crate) ns: u64,
    /// Whether `ns` is exact; if not, it is a lower bound.
    pub(crate) is_known: bool,
}
