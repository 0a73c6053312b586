//! The recording a command reads, named or the newest here, and the processes chosen of it.

use std::io::{self, Write};
use std::path::Path;

use heaptide_analysis::model::{Measure, Mode, Process, Recording};
use heaptide_analysis::recording::Choice;
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::selection::scope_frames::Inside;
use heaptide_render::names::printable;
use nix::fcntl::{FcntlArg, fcntl};

use crate::chosen::Chosen;
use crate::damage::{self, Listed};
use crate::error::Error;
use crate::message::message;
use crate::output;
use crate::progress::{Goes, Progress};
use crate::selection::{Selection, Source, Which};

/// Bytes that a pipe on standard output holds: what users may ask for without more rights.
const PIPE: i32 = 1 << 20;
/// Bytes that go to standard output at once.
const BUFFER: usize = 1 << 16;

/// Opens recordings and takes of them what is selected; none if there is nothing of the process
/// asked for in one of them, which is then said.
pub fn open_all(
    sources: &[Source],
    selection: &Selection,
) -> Result<Option<Vec<Recording>>, Error> {
    let pid = selection.pid();
    let mut all = Vec::new();
    for source in sources {
        let mut recording = open(source, selection)?;
        if !has(&recording, pid) {
            return Ok(None);
        }
        recording.processes.retain(|process| pid.is_none_or(|pid| pid == process.pid));
        all.push(recording);
    }
    Ok(Some(all))
}

/// Opens a recording and takes of it what is selected.
pub fn open(source: &Source, selection: &Selection) -> Result<Recording, Error> {
    open_apart(source, selection, Apart::Nowhere)
}

/// The same, with joined processes kept apart; to keep them apart is to join them.
pub fn open_apart(
    source: &Source,
    selection: &Selection,
    apart: Apart,
) -> Result<Recording, Error> {
    let mut recording = open_uncut(source, selection, apart)?;
    cut(&mut recording, selection);
    Ok(recording)
}

/// The same with whole stacks, for views that `--depth` means otherwise for.
pub fn open_uncut(
    source: &Source,
    selection: &Selection,
    apart: Apart,
) -> Result<Recording, Error> {
    let (chosen, mut recording) = choose(source, selection, apart)?;
    chosen.something(&mut recording, selection.pid())?;
    Ok(recording)
}

/// The same as [`open`], for what compares: also if filters leave nothing of it.
pub fn open_or_empty(source: &Source, selection: &Selection) -> Result<Recording, Error> {
    let (_, mut recording) = choose(source, selection, Apart::Nowhere)?;
    cut(&mut recording, selection);
    Ok(recording)
}

/// The recording with all but `--depth` done.
fn choose(
    source: &Source,
    selection: &Selection,
    apart: Apart,
) -> Result<(Chosen, Recording), Error> {
    let all = apart != Apart::Nowhere || selection.process == Some(Which::All);
    if let Some(pid) = selection.pid().filter(|_| all) {
        let what = "--by joins all processes";
        return Err(Error::new(format!("{what}; omit --by or --process {pid}")));
    }
    let chosen = Chosen::of(selection)?;
    let mut recording = read(source)?;
    let _progress = Progress::start("applying filters");
    if selection.fold_recursion {
        recording.processes.iter_mut().for_each(Process::fold_scopes);
    }
    if all {
        recording.join(apart);
    }
    chosen.apply(&mut recording);
    Ok((chosen, recording))
}

/// Cuts stacks to `--depth`.
fn cut(recording: &mut Recording, selection: &Selection) {
    if let Some(depth) = selection.depth {
        recording.processes.iter_mut().for_each(|process| process.cut_stacks(depth.get()));
    }
}

/// The same with scopes as frames, if that is asked for.
pub fn open_framed(
    source: &Source,
    selection: &Selection,
    inside: Option<Inside>,
    apart: Apart,
) -> Result<Recording, Error> {
    let mut recording = open_uncut(source, selection, apart)?;
    for process in &mut recording.processes {
        inside.into_iter().for_each(|inside| process.scopes_to_frames(inside));
    }
    cut(&mut recording, selection);
    Ok(recording)
}

/// Opens what is asked for of the recording.
pub fn read(source: &Source) -> Result<Recording, Error> {
    let choice = Choice { snapshot: source.snapshot, from_start: source.from_start };
    if let Some(path) = &source.recording {
        return told(path, choice, source.listed);
    }
    let here = Path::new(".");
    let Some(path) = heaptide_analysis::newest(here)? else {
        return Err(Error::new(
            "no *.heaptide in the current directory; name a recording, or make one with \
             `heaptide run -- PROGRAM`",
        ));
    };
    let path = path.strip_prefix(here).unwrap_or(&path);
    message(format_args!("reading {}, the newest recording in this directory", path.display()));
    told(path, choice, source.listed)
}

/// Reads a recording, shows how far that is where it takes long, and reports what cannot be read.
fn told(path: &Path, choice: Choice, listed: Listed) -> Result<Recording, Error> {
    let progress = Progress::start(format!("reading {}", path.display()));
    let names = &mut |done, total| progress.at("looking up symbols", done, total);
    let recording = Recording::open_telling(path, choice, names)?;
    drop(progress);
    if listed == Listed::Nowhere || Goes::by_stdout() == Goes::Elsewhere {
        damage::report(path, &recording.damaged);
    }
    Ok(recording)
}

/// Whether a recording has anything of the process asked for, or anything at all; if not, says so.
pub fn has(recording: &Recording, pid: Option<u32>) -> bool {
    let path = recording.path.display();
    match pid {
        _ if recording.processes.is_empty() => {
            message(format_args!("{path}: nothing was recorded; see `heaptide info`"));
            false
        }
        Some(pid) if recording.processes.iter().all(|p| p.pid != pid) => {
            let mut pids: Vec<u32> = recording.processes.iter().map(|p| p.pid).collect();
            pids.sort_unstable();
            pids.dedup();
            let shown: Vec<String> = pids.iter().take(20).map(u32::to_string).collect();
            let more = if pids.len() > shown.len() { ", …" } else { "" };
            message(format_args!(
                "{path}: no process {pid}; available: {}{more}",
                shown.join(", ")
            ));
            false
        }
        _ => true,
    }
}

/// The image with most of a measure, of those asked for. If there are others, says which it is.
pub fn largest(recording: &Recording, pid: Option<u32>, measure: Measure) -> Option<&Process> {
    let chosen = || recording.processes.iter().filter(|p| pid.is_none_or(|pid| pid == p.pid));
    // Of equals the one with the higher peak, then the first: counters have no at_peak figures.
    let key = |p: &&Process| (measure.of_sites().of(&p.totals), p.totals.peak_bytes);
    let process = chosen().rev().max_by_key(key)?;
    let others = chosen().count() - 1;
    if others > 0 {
        let (pid, image, all) = (process.pid, process.image, others + 1);
        message(format_args!(
            "showing pid {pid} image {image}, the largest of {all} process images; \
             `--process PID` selects another"
        ));
    }
    Some(process)
}

/// Whether a process has stacks; if not, says why.
pub fn has_stacks(recording: &Recording, process: &Process) -> bool {
    let path = recording.path.display();
    match process.mode {
        Mode::Stacks => {}
        Mode::Scopes => message(format_args!(
            "{path}: recorded with --mode scopes, so there are no stacks; \
             see `heaptide report --by scope` and `heaptide tree --scopes`"
        )),
        Mode::Counters => message(format_args!(
            "{path}: recorded with --mode counters, so there are no stacks; \
             see `heaptide report --by thread` and `--by size`"
        )),
    }
    process.mode == Mode::Stacks
}

/// Whether a process can have scopes and labels; if not, says why.
pub fn has_scopes(recording: &Recording, process: &Process) -> bool {
    let counters = process.mode == Mode::Counters;
    if counters {
        let path = recording.path.display();
        message(format_args!(
            "{path}: recorded with --mode counters, so there are no scopes and labels; \
             see `heaptide report --by thread` and `--by size`"
        ));
    }
    !counters
}

/// Writes an answer to a file, or to standard output, which `-` stands for: as a page, if it is for
/// a person.
pub fn give(
    file: Option<&Path>,
    force: bool,
    for_people: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let write = |out: &mut dyn Write| if for_people { page(out, write) } else { write(out) };
    match file.filter(|path| !output::is_stdout(path)) {
        Some(path) => output::write(path, force, write),
        None => print(write),
    }
}

/// Writes a page of text to standard output: names in it come from programs, and none of them may
/// control the terminal.
pub fn print_page(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    print(|out| page(out, write))
}

/// Writes a page of text anywhere, likewise.
pub fn page(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write(&mut Page(out))
}

/// Text as it may go to a terminal; it comes in whole characters.
struct Page<'a>(&'a mut dyn Write);

impl Write for Page<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        for line in text.split_inclusive('\n') {
            let (words, end) = line.strip_suffix('\n').map_or((line, ""), |words| (words, "\n"));
            self.0.write_all(printable(words).as_bytes())?;
            self.0.write_all(end.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes to standard output through a buffer.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let mut progress = Progress::start("writing");
    let mut stdout = io::stdout().lock();
    // Gigabytes of stacks go through faster; what is no pipe refuses, and stays as it is.
    let _ = fcntl(&stdout, FcntlArg::F_SETPIPE_SZ(PIPE));
    let told = progress.of(&mut stdout, Goes::by_stdout());
    output::buffered(told, BUFFER, write).map_err(Error::output)
}
