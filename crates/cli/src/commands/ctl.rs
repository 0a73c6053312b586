//! `heaptide ctl`: controls running programs through the headers of their live profiles.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use heaptide_analysis::text::of_path;
use heaptide_command::message::message;
use heaptide_command::outcome::{FAILED, Outcome, Stop};
use heaptide_command::{error, output, values};
use heaptide_control::{Answer, Control, Error, Threshold, Wait, status, targets};
use heaptide_format::Request;

/// `heaptide ctl`.
#[derive(Args, Debug)]
#[command(after_help = CTL_EXAMPLE, disable_help_subcommand = true)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
#[command(override_usage = "heaptide ctl [OPTIONS] <REC|PID> <ACTION>")]
pub struct CtlOptions {
    /// Recording (controls all its running processes), or a process id
    #[arg(value_name = "REC|PID")]
    pub target: PathBuf,
    /// Control only this process of the recording
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

const CTL_EXAMPLE: &str = "\
Example:
  heaptide ctl app.heaptide snapshot \"before the load\"
  heaptide ctl 4711 off

The program handles a request at its next allocation; snapshot, on and off do not wait for that.";

/// What `ctl` does.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Enable recording
    On,
    /// Disable recording; frees of recorded blocks are still counted
    Off,
    /// Take a snapshot, even if the program is stopped or idle
    Snapshot {
        /// Name of the snapshot
        name: Option<String>,
    },
    /// Add a mark to the timeline
    Mark {
        /// Name of the mark
        name: String,
    },
    /// Record stacks only for requests of at least this many bytes; 0 for all
    Threshold {
        /// Bytes, such as 4096, 4K or 1M
        #[arg(value_parser = values::bytes)]
        bytes: u64,
        /// Record stacks for requests below BYTES instead
        #[arg(long)]
        below: bool,
    },
    /// Reset the counters: reports count from now on
    Reset,
    /// Publish the counters that threads hold back, and add a timeline sample
    Flush,
    /// Show the recording state, stack threshold, snapshots and marks
    Status,
}

/// Processes that are asked at the same time: each may take its time to answer.
const PROCESSES_AT_ONCE: usize = 64;

/// What is to be printed.
#[derive(Default)]
struct Said {
    /// On standard output.
    done: String,
    /// What is still to come, on standard error.
    later: Option<String>,
}

/// Does it with each process asked for.
pub fn ctl(options: &CtlOptions) -> Outcome {
    let found = targets::find(&options.target, options.pid).map_err(error::Error::library)?;
    let (mut all_done, mut printed) = (true, Ok(()));
    for some in found.chunks(PROCESSES_AT_ONCE) {
        for said in targets::control_all(some, |control| act(control, &options.action)) {
            match said {
                Ok(said) => {
                    // The other processes are asked, too, if nobody reads the answers.
                    let done = output::print_text(|out| out.write_all(said.done.as_bytes()));
                    printed = printed.and(done);
                    if let Some(later) = said.later {
                        message(later);
                    }
                }
                Err(error) => {
                    message(error);
                    all_done = false;
                }
            }
        }
    }
    if !all_done {
        return Err(Stop::Status(FAILED));
    }
    printed.map_err(Stop::from)
}

fn act(control: &Control, action: &Action) -> Result<Said, Error> {
    let pid = control.running().pid;
    let ask = |kind, value, text: &str, what: &'static str, done: &str| {
        let answer = control.request(kind, value, text, Wait::Patiently)?;
        told(pid, answer, what, format!("pid {pid}: {done}\n"))
    };
    match action {
        Action::On | Action::Off => {
            control.turn(matches!(action, Action::On))?;
            let is = status::on_or_off(&control.header()?);
            Ok(Said { done: format!("pid {pid}: recording {is}\n"), later: None })
        }
        Action::Snapshot { name } => {
            let name = name.as_deref().unwrap_or_default();
            // The copy has its name and time in it. The program only adds its mark, when it likes.
            let (number, file, _) = control.snapshot(name, Wait::Briefly)?;
            let done = format!("pid {pid}: snapshot {number}: {}\n", of_path(&file));
            Ok(Said { done, later: None })
        }
        Action::Mark { name } => ask(Request::Mark, 0, name, "the mark", "marked"),
        Action::Threshold { bytes, below } => {
            let threshold = if *below { Threshold::Below(*bytes) } else { Threshold::From(*bytes) };
            ask(
                Request::Threshold,
                threshold.to_value(),
                "",
                "the threshold",
                "stack threshold set",
            )
        }
        Action::Reset => ask(Request::Reset, 0, "", "the reset", "counters reset"),
        Action::Flush => ask(Request::Flush, 0, "", "the flush", "flushed"),
        Action::Status => Ok(Said { done: status::describe(control)?, later: None }),
    }
}

/// What became of a request.
fn told(pid: u32, answer: Answer, what: &'static str, done: String) -> Result<Said, Error> {
    match answer {
        Answer::Done => Ok(Said { done, later: None }),
        Answer::Waits => {
            let later = format!(
                "pid {pid}: no allocation since the request; {what} is pending until the next one"
            );
            Ok(Said { done: String::new(), later: Some(later) })
        }
        Answer::Behind => Err(Error::Busy { pid, what }),
        Answer::Ended => Err(Error::Ended { pid, what }),
    }
}
