//! What a running program can be asked for, and what became of that, for a person.

use heaptide_analysis::recording::snapshot::Origin;
use heaptide_analysis::text::of_path;
use heaptide_format::Request;

use crate::control::{Answer, Control, Threshold, Wait};
use crate::error::Error;
use crate::status;

/// What a running program can be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Enable recording.
    On,
    /// Disable recording.
    Off,
    /// Take a snapshot of this name, which may be empty.
    Snapshot(String),
    /// Add a mark of this name to the timeline.
    Mark(String),
    /// Record stacks only for some requests.
    Threshold(Threshold),
    /// Count from now on.
    Reset,
    /// Publish what threads hold back.
    Flush,
    /// Describe the state of the recording.
    Status,
}

/// What became of an action. One of both is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Lines about what was done.
    pub done: String,
    /// What is still to come.
    pub later: Option<String>,
}

impl Control {
    /// Asks the program for something, and waits some seconds where the program has to answer.
    ///
    /// Errors: the profile cannot be changed, the program ended, or has not answered an earlier
    /// request yet.
    pub fn perform(&self, action: &Action) -> Result<Outcome, Error> {
        let pid = self.running().pid;
        let ask = |kind, value, text: &str, what: &'static str, done: &str| {
            let answer = self.request(kind, value, text, Wait::Patiently)?;
            outcome(pid, answer, what, format!("pid {pid}: {done}\n"))
        };
        match action {
            Action::On | Action::Off => {
                self.turn(matches!(action, Action::On))?;
                let is = status::on_or_off(&self.header()?);
                Ok(Outcome { done: format!("pid {pid}: recording {is}\n"), later: None })
            }
            Action::Snapshot(name) => {
                // The copy has its name and time in it. The program only adds its mark, when it
                // likes.
                let (number, file, _) = self.snapshot(name, Wait::Briefly, Origin::Requested)?;
                let done = format!("pid {pid}: snapshot {number}: {}\n", of_path(&file));
                Ok(Outcome { done, later: None })
            }
            Action::Mark(name) => ask(Request::Mark, 0, name, "the mark", "marked"),
            Action::Threshold(threshold) => ask(
                Request::Threshold,
                threshold.to_value(),
                "",
                "the threshold",
                "stack threshold set",
            ),
            Action::Reset => ask(Request::Reset, 0, "", "the reset", "counters reset"),
            Action::Flush => ask(Request::Flush, 0, "", "the flush", "flushed"),
            Action::Status => Ok(Outcome { done: status::describe(self)?, later: None }),
        }
    }
}

/// What became of a request.
fn outcome(pid: u32, answer: Answer, what: &'static str, done: String) -> Result<Outcome, Error> {
    match answer {
        Answer::Done => Ok(Outcome { done, later: None }),
        Answer::Waits => {
            let later = format!(
                "pid {pid}: no allocation since the request; {what} is pending until the next one"
            );
            Ok(Outcome { done: String::new(), later: Some(later) })
        }
        Answer::Behind => Err(Error::Busy { pid, what }),
        Answer::Ended => Err(Error::Ended { pid, what }),
    }
}
