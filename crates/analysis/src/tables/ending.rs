//! What is known of an image beside its profile: where the file is, and how and when it ended.

use std::path::PathBuf;

use crate::model::{End, Run};

/// How a process image ended, and what to say about how complete its profile is.
pub(crate) struct Ending {
    pub(crate) file: PathBuf,
    pub(crate) run: Option<Run>,
    pub(crate) end: End,
    /// Its process is the one that `heaptide run` started.
    pub(crate) is_requested: bool,
    /// It became a program that has no profile, and nobody noted why.
    pub(crate) became_unrecorded: bool,
    pub(crate) lasted: Lasted,
    pub(crate) process_number: u32,
    pub(crate) execs: u32,
    pub(crate) part: Option<String>,
    /// What of it was not recorded, as known before it started.
    pub(crate) in_part: Option<String>,
    pub(crate) notes: Vec<String>,
}

/// From the start of an image to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lasted {
    pub(crate) ns: u64,
    /// Whether that is all of it; else it is known to have lasted at least so long.
    pub(crate) is_known: bool,
}
