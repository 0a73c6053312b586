//! `heaptide retain`: which live blocks of a program are lost, and what keeps the others.

use std::path::{Path, PathBuf};

use clap::Args;
use heaptide_analysis::model::retained::{Retained, Search};
use heaptide_analysis::model::{Process, Searched as When, SearchedAt};
use heaptide_analysis::recording::retained::{self, AtEnd, SEARCHED};
use heaptide_analysis::recording::running::{self, Running};
use heaptide_analysis::recording::snapshot::Reference;
use heaptide_analysis::views::keeper_changes::{KeeperChanges, SearchedProcess};
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::{output, target};
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
    /// Process id of a recorded program that is running, its recording, or REC@N, a snapshot
    #[arg(value_name = "PID|REC")]
    pub target: PathBuf,
    /// Show what keeps more or less in this, a later one or another run
    #[arg(value_name = "NEWER")]
    pub newer: Option<PathBuf>,
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
  heaptide retain server.heaptide@1 server.heaptide

The program is stopped for a moment, in which it is copied (fork); the copy is read. Words that can
be pointers are taken for pointers, so a block may only seem to be kept. See docs/retain.md.";

/// Shows what is lost and what is kept, or what keeps more or less than before.
pub fn retain(options: &RetainOptions) -> Outcome {
    let found = found(&options.target, options.process)?;
    if let Some(newer) = &options.newer {
        return compare(options, found, newer);
    }
    let Found { file, process, retained, moment, .. } = found;
    if options.format == Format::Json {
        output::print(|out| json::retained::write(out, &file, &process, &retained, moment))?;
        return Ok(());
    }
    let view = View { top: options.top, moment };
    output::print_page(|out| text::retained::write(out, &process, &retained, view))?;
    Ok(())
}

fn compare(options: &RetainOptions, older: Found, newer: &Path) -> Outcome {
    let newer = found(newer, options.process)?;
    let file = newer.file.clone();
    let [older, newer] = [older, newer].map(Found::into_search);
    let [before, after] =
        [&older, &newer].map(|(process, search)| SearchedProcess { process, search });
    let changes = KeeperChanges::between(before, after);
    if options.format == Format::Json {
        output::print(|out| json::keeper_changes::write(out, &file, &newer.0, &changes))?;
        return Ok(());
    }
    let write = text::keeper_changes::write;
    output::print_page(|out| write(out, &newer.0, &changes, options.top))?;
    Ok(())
}

/// What was found in a process.
struct Found {
    /// Its profile, or the snapshot.
    file: PathBuf,
    process: Process,
    retained: Retained,
    /// When, nanoseconds from its start.
    time_ns: u64,
    moment: Moment,
}

impl Found {
    fn into_search(self) -> (Process, Search) {
        let at = match self.moment {
            Moment::Running { .. } | Moment::Snapshot { .. } => SearchedAt::Running,
            Moment::End { before_python_ended: true, .. } => SearchedAt::PythonEnds,
            Moment::End { .. } => SearchedAt::Exit,
        };
        let when = When { time_ns: self.time_ns, at };
        (self.process, Search { retained: self.retained, when })
    }
}

/// Searches a running process, or returns what was found when it ended or a snapshot was taken.
fn found(target: &Path, process: Option<u32>) -> Result<Found, Stop> {
    let by_id = running::by_id(target).is_ok_and(|found| found.is_some());
    if !by_id && let (path, Some(snapshot)) = target::find(target)? {
        return in_snapshot(target, &path, process, &snapshot);
    }
    let at_end = if by_id || !target.exists() { None } else { at_end(target, process)? };
    at_end.map_or_else(|| now(target, process), Ok)
}

/// Searches the running process that a target refers to.
fn now(target: &Path, process: Option<u32>) -> Result<Found, Stop> {
    let running = one(target, process)?;
    let Searched { retained, time_ns, stopped_ns } = search::search(&running, None)?;
    let process = search::read(&running.file)?; // after the search, which can have newer sites
    let moment = Moment::Running { stopped_ns };
    Ok(Found { file: running.file, process, retained, time_ns, moment })
}

/// Returns what was found when a snapshot was taken.
fn in_snapshot(
    target: &Path,
    path: &Path,
    process: Option<u32>,
    snapshot: &Reference,
) -> Result<Found, Stop> {
    let found = stored(path, process, Some(snapshot))?;
    let Some((file, at_end, _)) = found else {
        let shown = target.display();
        return Err(Error::new(format!(
            "{shown}: not searched when the snapshot was taken; take one with \
             `heaptide ctl REC retain`"
        ))
        .into());
    };
    let number = retained::snapshot_of(&file).unwrap_or_default();
    let moment = Moment::Snapshot { number, time_ns: at_end.time_ns };
    read(file, at_end, moment)
}

/// Returns what was found when the process ended that a target refers to, unless a process of
/// the recording runs.
fn at_end(target: &Path, process: Option<u32>) -> Result<Option<Found>, Stop> {
    let Some((file, at_end, others)) = stored(target, process, None)? else {
        return if running::of_recording(target).is_ok_and(|all| all.is_empty()) {
            Err(not_searched(target, process).into())
        } else {
            Ok(None)
        };
    };
    let (time_ns, before_python_ended) = (at_end.time_ns, at_end.before_python_ended);
    read(file, at_end, Moment::End { time_ns, before_python_ended, others }).map(Some)
}

/// Returns the stored search with most memory, its profile or snapshot, and the number of others.
fn stored(
    path: &Path,
    process: Option<u32>,
    snapshot: Option<&Reference>,
) -> Result<Option<(PathBuf, AtEnd, u64)>, Error> {
    let mut found = retained::of_recording(path, snapshot).map_err(Error::library)?;
    if let Some(pid) = process {
        found.retain(|(profile, _)| retained::pid_of(profile) == Some(pid));
    }
    let bytes = |at_end: &AtEnd| at_end.result.as_ref().map_or(0, |retained| retained.all.bytes);
    let others = found.len().saturating_sub(1) as u64;
    let most = found.into_iter().max_by_key(|(_, at_end)| bytes(at_end));
    Ok(most.map(|(file, at_end)| (file, at_end, others)))
}

/// Reads the process of a stored search.
fn read(file: PathBuf, at_end: AtEnd, moment: Moment) -> Result<Found, Stop> {
    let retained = at_end.result.map_err(|why| {
        Error::new(format!("{}: its memory was not searched: {why}", file.display()))
    })?;
    let process = search::read(&file)?;
    Ok(Found { file, process, retained, time_ns: at_end.time_ns, moment })
}

fn not_searched(target: &Path, process: Option<u32>) -> Error {
    let shown = target.display();
    let of = process.map_or_else(String::new, |pid| format!("process {pid}: "));
    Error::new(format!(
        "{shown}: {of}no process is recording into it any more, and none was searched when it \
         ended; {SEARCHED}"
    ))
}

/// Returns the running process that a target refers to.
fn one(target: &Path, process: Option<u32>) -> Result<Running, Stop> {
    let found = targets::find(target, process).map_err(Error::library)?;
    match &found[..] {
        [one] => Ok(one.clone()),
        several => {
            let pids: Vec<String> = several.iter().map(|one| one.pid.to_string()).collect();
            let (target, pids) = (target.display(), pids.join(", "));
            Err(Error::new(format!(
                "{target}: several processes are running; choose one of {pids} with --process"
            ))
            .into())
        }
    }
}
