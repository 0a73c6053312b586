//! What views state before everything else: what holds the memory, and which process they show.

use heaptide_analysis::model::{Process, Recording};

use crate::shared::sentence::sentence;
use crate::shared::subject::subject_says;

/// The sentences about a process, and why it was chosen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// What holds the memory; `None` if the data contain no statement about it.
    pub sentence: Option<String>,
    /// Which process is shown and why; `None` if there is only one.
    pub subject: Option<String>,
}

impl Answer {
    /// Returns the answer about a process of a recording.
    pub fn of(recording: &Recording, process: &Process) -> Answer {
        Answer { sentence: sentence(process), subject: subject_says(recording) }
    }
}
