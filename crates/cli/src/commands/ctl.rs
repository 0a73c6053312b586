//! `heaptide ctl`: controls running programs through the headers of their live profiles.

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use heaptide_analysis::quantity::duration;
use heaptide_analysis::recording::running::Running;
use heaptide_analysis::text::of_path;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::{FAILED, Outcome, Stop};
use heaptide_command::{output, values};
use heaptide_control::{Control, Outcome as Done, Threshold, targets};

use crate::search::{self, Searched};

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
    /// The action to perform.
    #[command(subcommand)]
    pub action: Action,
}

const CTL_EXAMPLE: &str = "\
Example:
  heaptide ctl app.heaptide snapshot \"before the load\"
  heaptide ctl 4711 off

The program handles a request at its next allocation; snapshot, on and off do not wait for that.";

/// The actions of `ctl`.
#[derive(Subcommand, Debug)]
pub enum Action {
    /// Enable recording
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide on")]
    On,
    /// Disable recording; frees of recorded blocks are still counted
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide off")]
    Off,
    /// Take a snapshot, even if the program is stopped or idle
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide snapshot warm")]
    Snapshot {
        /// Name of the snapshot
        name: Option<String>,
    },
    /// Take a snapshot, with what keeps its blocks; `heaptide retain REC@N` shows it
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide retain warm")]
    Retain {
        /// Name of the snapshot
        name: Option<String>,
    },
    /// Add a mark to the timeline
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide mark 'load begins'")]
    Mark {
        /// Name of the mark
        name: String,
    },
    /// Record stacks only for requests of at least this many bytes; 0 for all
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide threshold 4K")]
    Threshold {
        /// Bytes, such as 4096, 4K or 1M
        #[arg(value_parser = values::bytes)]
        bytes: u64,
        /// Record stacks for requests below BYTES instead
        #[arg(long)]
        below: bool,
    },
    /// Reset the counters: reports count from now on
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide reset")]
    Reset,
    /// Publish the counters that threads hold back, and add a sample
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide flush")]
    Flush,
    /// Show the recording state, stack threshold, snapshots and marks
    #[command(after_help = "Example:\n  heaptide ctl app.heaptide status")]
    Status,
}

/// The maximum number of processes to query in parallel, since each can take a while to reply.
const PROCESSES_AT_ONCE: usize = 64;

/// Performs the action on each selected process.
pub fn ctl(options: &CtlOptions) -> Outcome {
    let found = targets::find(&options.target, options.pid).map_err(Error::library)?;
    match options.action.asked() {
        Asked::OfProgram(action) => print_all(
            found
                .chunks(PROCESSES_AT_ONCE)
                .flat_map(|some| targets::control_all(some, |control| control.perform(&action))),
        ),
        // One at a time: each search can need much memory.
        Asked::Search { name } => print_all(found.iter().map(|running| searched(running, &name))),
    }
}

/// Prints what was done with each process as soon as it is known.
fn print_all<E: Display>(all: impl Iterator<Item = Result<Done, E>>) -> Outcome {
    let (mut all_done, mut printed) = (true, Ok(()));
    for said in all {
        match said {
            Ok(said) => {
                // A closed pipe does not stop the requests to the other processes.
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
    if !all_done {
        return Err(Stop::Status(FAILED));
    }
    printed.map_err(Stop::from)
}

/// Searches a process, takes a snapshot of it, and returns a line about that.
fn searched(running: &Running, name: &str) -> Result<Done, Error> {
    // Before the snapshot, so that this contains all stacks that the search found.
    let Searched { retained, time_ns, stopped_ns } = search::search(running, None)?;
    let control = Control::open(running).map_err(Error::library)?;
    let taken = control.searched_snapshot(name, (retained, time_ns));
    let (number, file) = taken.map_err(Error::library)?;
    let (pid, file, stopped) = (running.pid, of_path(&file), duration(stopped_ns));
    let what = format!("snapshot {number}, searched, its threads stopped for {stopped}: {file}");
    Ok(Done { done: format!("pid {pid}: {what}\n"), later: None })
}

/// What an action requires.
enum Asked {
    /// A request to the program.
    OfProgram(heaptide_control::Action),
    /// A search of its memory, and a snapshot with this name.
    Search { name: String },
}

impl Action {
    fn asked(&self) -> Asked {
        use heaptide_control::Action as Of;
        Asked::OfProgram(match self {
            Action::On => Of::On,
            Action::Off => Of::Off,
            Action::Snapshot { name } => Of::Snapshot(name.clone().unwrap_or_default()),
            Action::Retain { name } => {
                return Asked::Search { name: name.clone().unwrap_or_default() };
            }
            Action::Mark { name } => Of::Mark(name.clone()),
            Action::Threshold { bytes, below: true } => Of::Threshold(Threshold::Below(*bytes)),
            Action::Threshold { bytes, below: false } => Of::Threshold(Threshold::From(*bytes)),
            Action::Reset => Of::Reset,
            Action::Flush => Of::Flush,
            Action::Status => Of::Status,
        })
    }
}
