//! What views state before everything else: what holds the memory, and which process they show.

use heaptide_analysis::model::{End, Process, Recording};

use crate::shared::names::printable;
use crate::shared::sentence::{older_elsewhere, sentence};
use crate::shared::subject::subject_says;

/// The sentences about a process, and why it was chosen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// What holds the memory; `None` if the data contain no statement about it.
    pub sentence: Option<String>,
    /// Which process is shown and why; `None` if there is only one.
    pub subject: Option<String>,
    /// Peak usage of the memory that the sentences are about; `None` of several images.
    pub peak_bytes: Option<u64>,
}

impl Answer {
    /// Returns the answer about a process of a recording.
    pub fn of(recording: &Recording, process: &Process) -> Answer {
        Answer::among(recording, process, recording)
    }

    /// Returns the answer about a process of a recording that has only what is shown of `all`.
    pub fn among(recording: &Recording, process: &Process, all: &Recording) -> Answer {
        let attached = all.processes.iter().filter(|other| other.completeness.starts_in_middle);
        let attached = attached
            .filter(|_| !process.completeness.starts_in_middle)
            .find_map(|other| older_elsewhere(process, other));
        let sentences = [not_recorded(recording, process), sentence(process), attached];
        let said: Vec<String> = sentences.into_iter().flatten().collect();
        let sentence = (!said.is_empty()).then(|| said.join(" "));
        let peak_bytes = (process.identity.images == 1).then_some(process.totals.peak_bytes);
        Answer { sentence, subject: subject_says(recording), peak_bytes }
    }
}

/// States that the program which a process became by exec was not recorded.
fn not_recorded(recording: &Recording, process: &Process) -> Option<String> {
    let identity = &process.identity;
    let is_next = |other: &Process| {
        other.identity.process_number == identity.process_number
            && other.identity.execs > identity.execs
    };
    let is_last = identity.images == 1 && !recording.processes.iter().any(is_next);
    if process.lifetime.end != End::Exec || !is_last {
        return None;
    }
    let program = process.completeness.unrecorded_programs.last()?;
    let (program, before) = (printable(&program.path), printable(identity.name()));
    Some(format!(
        "`{program}`, which {before} became by exec, was not recorded: `missing` has the reason."
    ))
}
