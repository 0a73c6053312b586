//! `heaptide retain`: which live blocks of a program are lost, and what keeps the others.

use std::path::PathBuf;

use clap::Args;
use heaptide_analysis::model::Process;
use heaptide_analysis::model::retained::Retained;
use heaptide_analysis::recording::retained::{self, AtEnd};
use heaptide_analysis::recording::running::{self, Running};
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output;
use heaptide_control::targets;
use heaptide_render::shared::moment::Moment;
use heaptide_render::text::retained::View;
use heaptide_render::{json, text};

use crate::options::Format;
use crate::search::{self, Searched};

/// `heaptide retain`.
#[derive(Args, Debug)]
#[command(after_help = RETAIN_EXAMPLE)]
pub struct RetainOptions {
    /// Process id of a recorded program that is running, or its recording
    #[arg(value_name = "PID|REC")]
    pub target: PathBuf,
    /// Only this process of the recording
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
    /// Show N rows of each table [default: 10]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Output format: text for reading, json with all rows
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

const RETAIN_EXAMPLE: &str = "\
Example:
  heaptide retain $(pidof server)
  heaptide retain --format json server.heaptide > server.json

The program is stopped for a moment, in which it is copied (fork); the copy is read. Words that can
be pointers are taken for pointers, so a block may only seem to be kept. See docs/retain.md.";

/// Shows what is lost and what is kept.
pub fn retain(options: &RetainOptions) -> Outcome {
    let (file, process, retained, moment) = match at_end(options)? {
        Some(found) => found,
        None => now(options)?,
    };
    if options.format == Format::Json {
        output::print(|out| json::retained::write(out, &file, &process, &retained, moment))?;
        return Ok(());
    }
    let view = View { top: options.top, moment };
    output::print_page(|out| text::retained::write(out, &process, &retained, view))?;
    Ok(())
}

/// What was found, in the process with this profile.
type Found = (PathBuf, Process, Retained, Moment);

/// Searches the running process that the options refer to.
fn now(options: &RetainOptions) -> Result<Found, Stop> {
    let running = one(options)?;
    let Searched { retained, stopped_ns } = search::search(&running, None)?;
    let process = search::read(&running.file)?; // after the search, which can have newer sites
    Ok((running.file, process, retained, Moment::Running { stopped_ns }))
}

/// Returns what was found when the process ended that the options refer to, unless a process of
/// the recording runs.
fn at_end(options: &RetainOptions) -> Result<Option<Found>, Stop> {
    let target = &options.target;
    if running::by_id(target).is_ok_and(|found| found.is_some()) || !target.exists() {
        return Ok(None);
    }
    let mut found = retained::of_recording(target).map_err(Error::library)?;
    if let Some(pid) = options.process {
        found.retain(|(profile, _)| retained::pid_of(profile) == Some(pid));
    }
    let bytes = |at_end: &AtEnd| at_end.result.as_ref().map_or(0, |retained| retained.all.bytes);
    let others = found.len().saturating_sub(1) as u64;
    let Some((file, at_end)) = found.into_iter().max_by_key(|(_, at_end)| bytes(at_end)) else {
        return if running::of_recording(target).is_ok_and(|all| all.is_empty()) {
            Err(not_searched(options).into())
        } else {
            Ok(None)
        };
    };
    let kept = at_end.result.map_err(|why| {
        Error::new(format!("{}: its memory was not searched: {why}", file.display()))
    })?;
    let process = search::read(&file)?;
    let (time_ns, before_python_ended) = (at_end.time_ns, at_end.before_python_ended);
    Ok(Some((file, process, kept, Moment::End { time_ns, before_python_ended, others })))
}

fn not_searched(options: &RetainOptions) -> Error {
    let shown = options.target.display();
    let of = options.process.map_or_else(String::new, |pid| format!("process {pid}: "));
    Error::new(format!(
        "{shown}: {of}no process is recording into it any more, and none was searched when it \
         ended; record with `heaptide run --retain`"
    ))
}

/// Returns the running process that the options refer to.
fn one(options: &RetainOptions) -> Result<Running, Stop> {
    let found = targets::find(&options.target, options.process).map_err(Error::library)?;
    match &found[..] {
        [one] => Ok(one.clone()),
        several => {
            let pids: Vec<String> = several.iter().map(|one| one.pid.to_string()).collect();
            let (target, pids) = (options.target.display(), pids.join(", "));
            Err(Error::new(format!(
                "{target}: several processes are running; choose one of {pids} with --process"
            ))
            .into())
        }
    }
}
