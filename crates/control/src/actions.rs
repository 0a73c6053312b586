//! Actions on a running program, and their outcome as text.

use heaptide_analysis::recording::snapshot::Origin;
use heaptide_analysis::text::of_path;
use heaptide_format::Request;

use crate::control::{Answer, Control, Threshold, Wait};
use crate::error::Error;
use crate::status;

/// A request to a running program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Enable recording.
    On,
    /// Disable recording.
    Off,
    /// Take a snapshot with this name, which may be empty.
    Snapshot(String),
    /// Add a mark with this name to the timeline.
    Mark(String),
    /// Record stacks only for requests above or below a size.
    Threshold(Threshold),
    /// Reset the counters, so that they count from now on.
    Reset,
    /// Publish counters that threads have not published yet.
    Flush,
    /// Describe the state of the recording.
    Status,
}

/// The outcome of an action. At least one of the fields has a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Lines about completed actions.
    pub done: String,
    /// A line about a pending action, or about one that has no mark.
    pub later: Option<String>,
}

impl Control {
    /// Requests an action from the program. If the program has to answer, waits up to a few
    /// seconds.
    ///
    /// Errors: the profile cannot be modified, the program has ended, or an earlier request is
    /// unanswered.
    pub fn perform(&self, action: &Action) -> Result<Outcome, Error> {
        let pid = self.running().pid;
        let ask = |kind, value, text: &str, what: &'static str, done: &str| {
            let answer = self.request(kind, value, text, Wait::Patiently)?;
            outcome(pid, answer, what, format!("pid {pid}: {done}\n"))
        };
        let without_mark =
            || format!("pid {pid}: an earlier request is pending; this one has no mark");
        match action {
            Action::On | Action::Off => {
                // A mark that the program puts later has the time of the request.
                let answer = self.turn(matches!(action, Action::On))?;
                let is = status::on_or_off(&self.header()?);
                let later = (answer == Answer::Behind).then(without_mark);
                Ok(Outcome { done: format!("pid {pid}: recording {is}\n"), later })
            }
            Action::Snapshot(name) => {
                // The copy contains its name and time, so only the mark of the program can come
                // later.
                let taken = self.snapshot(name, Wait::Briefly, Origin::Requested)?;
                let (number, file, answer) = taken;
                let done = format!("pid {pid}: snapshot {number}: {}\n", of_path(&file));
                Ok(Outcome { done, later: (answer == Answer::Behind).then(without_mark) })
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

/// Describes the outcome of a request.
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
