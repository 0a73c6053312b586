//! Searches the memory of a process for what keeps its blocks: on request, or, in a helper process
//! of `heaptide run --retain`, when the process ends.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use heaptide_analysis::model::retained::{Kept, Retained};
use heaptide_analysis::model::{Mode, Process, PythonObjects, Site, SiteRow};
use heaptide_analysis::recording::live_tables::LiveTables;
use heaptide_analysis::recording::only_starts_others;
use heaptide_analysis::recording::retained::{self as at_exit, AtEnd};
use heaptide_analysis::recording::running::Running;
use heaptide_attach::picture::{self, Picture, Taken};
use heaptide_command::error::Error;
use heaptide_control::{Awaiting, Control, Waiting};
use heaptide_render::shared::quantity::{bytes, counted};
use heaptide_retain::{Facts, Recorded, retained};
use heaptide_supervise::exec;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use crate::helper::Helper;

/// Time between two looks for processes that wait, in milliseconds.
const LOOK_MS: u8 = 5;
/// Time between two signs of life.
const BEAT: Duration = Duration::from_millis(200);

/// The result of a search.
pub struct Searched {
    /// What was found.
    pub retained: Retained,
    /// When, nanoseconds from the start of the recording.
    pub time_ns: u64,
    /// How long the threads of the program were stopped, nanoseconds.
    pub stopped_ns: u64,
}

/// Searches a running process. `waiting` is a thread that waits in the recorder for this, by the
/// number that the program sees.
///
/// Errors: its profile does not contain all blocks, or it may not be traced.
pub fn search(running: &Running, waiting: Option<u32>) -> Result<Searched, Error> {
    let pid = Pid::from_raw(i32::try_from(running.pid).unwrap_or(i32::MAX));
    // A program at its end is stopped first: its other threads may not survive for long.
    let known = if waiting.is_none() { Some(known(running)?) } else { None };
    let running = running.clone();
    let control = Control::open(&running).map_err(Error::library)?;
    let work = move |picture: &Picture| -> Result<(Retained, u64), Error> {
        let time_ns = control.now_ns();
        let (recorded, facts) = known.map_or_else(|| self::known(&running), Ok)?;
        Ok((retained(pid, picture, recorded, facts), time_ns))
    };
    let Taken { result, pause } = picture::take(pid, waiting, work).map_err(Error::library)?;
    let stopped_ns = u64::try_from(pause.total.as_nanos()).unwrap_or(u64::MAX);
    let (retained, time_ns) = result?;
    Ok(Searched { retained, time_ns, stopped_ns })
}

/// Returns what the profile of a process knows about its blocks.
///
/// Errors: it cannot be read, or does not contain all blocks.
fn known(running: &Running) -> Result<(Recorded, impl Fn(u32) -> Facts + Send + use<>), Error> {
    let process = tables(LiveTables::new(&running.file).without_names())?;
    check(&process, running)?;
    let recorded = Recorded {
        all: process.knows_all_blocks(),
        python: process.completeness.python_objects == Some(PythonObjects::Blocks),
    };
    Ok((recorded, facts(&process)))
}

/// Reads the current tables of a profile, with names.
///
/// Errors: it cannot be read.
pub fn read(profile: &Path) -> Result<Process, Error> {
    tables(LiveTables::new(profile))
}

fn tables(mut reader: LiveTables) -> Result<Process, Error> {
    reader.read(&mut |_, _| {}).map_err(Error::library)
}

/// Checks whether all live blocks are known.
fn check(process: &Process, running: &Running) -> Result<(), Error> {
    let why = match process.mode {
        _ if process.sampling.is_some() => "only some blocks are known in mode sampled",
        Mode::Counters => "no blocks are known in mode counters",
        Mode::Scopes | Mode::Stacks => return Ok(()),
    };
    Err(Error::new(format!("pid {}: {why}; record with --mode stacks, the default", running.pid)))
}

/// Returns what is known about each site, by number.
fn facts(process: &Process) -> impl Fn(u32) -> Facts + Send + use<> {
    let of_site = |site: &Site| {
        let measures = &site.measures;
        Facts {
            mean_bytes: measures.usable_bytes.checked_div(measures.allocations).unwrap_or(0),
            largest_bytes: measures.largest_bytes,
        }
    };
    let known: Vec<Facts> = process.tables.sites.iter().map(of_site).collect();
    let rows = process.time.site_rows.clone();
    move |site| match rows.as_ref().map(|rows| rows.row(site)) {
        Some(SiteRow::At(row)) => known.get(row as usize).copied().unwrap_or_default(),
        _ => Facts::default(),
    }
}

/// Describes what processes of a recording had lost when they ended, for the summary.
pub fn summary(recording: &Path, shown: &Path) -> String {
    let found = match at_exit::of_recording(recording, None) {
        Ok(found) => found,
        Err(error) => return format!("lost       not known: {error}"),
    };
    let lost = found.iter().filter_map(|(_, at_end)| Some(at_end.result.as_ref().ok()?.lost()));
    let mut all = Kept::default();
    lost.clone().for_each(|lost| all.plus(lost));
    let failed = found.iter().find_map(|(_, at_end)| at_end.result.as_ref().err());
    let next = format!("`heaptide retain {}`", shown.display());
    match (lost.count(), failed) {
        (0, Some(why)) => format!("lost       not known: {why}"),
        (0, None) => "lost       not known: no process was searched when it ended".to_owned(),
        (_, _) if all.blocks == 0 => format!("lost       nothing; {next} shows what keeps blocks"),
        _ => {
            let blocks = counted(all.blocks, "block");
            format!("lost       {} in {blocks}; see {next}", bytes(all.bytes))
        }
    }
}

/// Starts a helper process that searches each process of a recording when it ends. It is a process,
/// because the supervisor waits for all of its own children and tracees.
///
/// Errors: those of [`Helper::start`].
pub fn search_at_end(recording: &Path) -> io::Result<Helper> {
    Helper::start(c"retain", &[], |end| {
        exec::lift_limits();
        let place = recording.to_owned();
        let _ = thread::Builder::new().spawn(|| beat(place));
        search_all(recording, end);
        0
    })
}

/// Shows processes that wait that the command is there, until the helper ends.
fn beat(recording: PathBuf) {
    let mut awaiting = Awaiting::new(&recording);
    loop {
        awaiting.look().for_each(|waiting| {
            let _ = waiting.beat(); // without it, the process continues
        });
        thread::sleep(BEAT);
    }
}

/// Searches each process that waits, until all write ends of a pipe are closed.
fn search_all(recording: &Path, end: BorrowedFd) {
    let mut awaiting = Awaiting::new(recording);
    loop {
        awaiting.look().for_each(|waiting| {
            if !is_launcher(&waiting) {
                let _ = at_end(&waiting).write(&waiting.running.file);
            }
            let _ = waiting.release(); // if that fails, the process continues later
        });
        let mut closed = [PollFd::new(end, PollFlags::POLLIN)];
        if poll(&mut closed, PollTimeout::from(LOOK_MS)).is_ok_and(|ready| ready > 0) {
            return;
        }
    }
}

/// Returns whether a process only starts others, so that its blocks are not of interest.
fn is_launcher(waiting: &Waiting) -> bool {
    let pid = waiting.running.pid;
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = command.strip_suffix(b"\0").unwrap_or(&command).split(|&byte| byte == 0);
    let words: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into()).collect();
    only_starts_others(&program.to_string_lossy(), &words, waiting.peak_bytes)
}

fn at_end(waiting: &Waiting) -> AtEnd {
    let found = search(&waiting.running, Some(waiting.thread));
    let result = found.map(|found| found.retained).map_err(|error| error.to_string());
    AtEnd::new(result, waiting.now_ns, waiting.is_before_exit)
}
