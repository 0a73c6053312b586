//! The end of `heaptide run`: notes in the recording how the program ended, and seals it. The
//! program has run: whatever fails here is a line and no reason for another status.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use heaptide_analysis::model::Recording;
use heaptide_analysis::recording::metadata::{self, Member, Metadata, Status, StatusKind};
use heaptide_analysis::recording::{members, seal_with};
use heaptide_analysis::selection::python::PythonFrames;
use heaptide_analysis::symbols::{Blazesym, Lookup};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::missing_names;
use heaptide_command::progress::Progress;
use heaptide_control::Lead;
use heaptide_format::PROFILE_SUFFIX;
use heaptide_supervise::exec;
use heaptide_supervise::images::ImageEnd;
use heaptide_supervise::program::Obstacle;
use heaptide_supervise::supervisor::Ended;

use crate::options::{NameOptions, RunOptions};
use crate::place::{Recorded, Whereabouts};

/// What a command stores in a recording.
pub struct Own {
    /// In `recording.json`, which the first command of a launch writes.
    pub metadata: Metadata,
    /// In a file of its own.
    pub member: Member,
    /// The number of that file; none outside of a launch.
    pub number: Option<u32>,
}

/// How the program ended, and what was not recorded of it.
pub struct End<'a> {
    /// What the command saw.
    pub ended: &'a Ended,
    /// What was in the way of recording, if anything. The user knows it from before the start.
    pub obstacle: Option<&'a Obstacle>,
    /// Python's own allocator was turned off.
    pub python_objects: bool,
}

/// Notes the end, and seals the recording if no other command of the launch writes to it. Returns
/// where the recording is; none if it is gone.
pub fn finish(recorded: &Recorded, own: Own, end: &End, options: &RunOptions) -> Option<PathBuf> {
    let recording = find_again(recorded)?;
    let result = match own.number {
        None => note_end(&recording, own.metadata, end)
            .map(|has_profiles| {
                has_profiles.then(|| seal_apart(&recording, How::new(options, end)))
            })
            .map(|_| ()),
        Some(number) => leave(recorded, &recording, (number, own.member), end, options),
    };
    if let Err(error) = result {
        message(error);
    }
    Some(recording)
}

/// Takes back the seat of a program that was not started.
pub fn withdraw(recorded: &Recorded, number: Option<u32>) {
    // One that stays is a member of unknown end, as that of a command that was killed.
    let _ = number.map(|number| members::remove(recorded.path(), number));
    if recorded.is_last() {
        recorded.remove_if_empty();
    }
}

/// Where the recording is now; none if it is gone.
fn find_again(recorded: &Recorded) -> Option<PathBuf> {
    let shown = recorded.path().display();
    match recorded.whereabouts() {
        Whereabouts::InPlace => Some(recorded.path().to_owned()),
        Whereabouts::Moved(path) => {
            message(format_args!("{shown}: moved to {} while the program ran", path.display()));
            Some(path)
        }
        Whereabouts::Removed => {
            message(format_args!("{shown}: removed while the program ran; nothing was recorded"));
            None
        }
    }
}

/// Notes the end of a member, and seals the recording as long as it is the last one.
///
/// Errors: the end cannot be noted, or nothing was recorded.
fn leave(
    recorded: &Recorded,
    recording: &Path,
    (mut number, mut member): (u32, Member),
    end: &End,
    options: &RunOptions,
) -> Result<(), Error> {
    let profiles = profiles(recording)?;
    member.unrecorded = unrecorded(&profiles, member.root_pid, end);
    member.status = Some(status(end));
    member.ends = ends(end);
    members::replace(recording, number, &member)?;
    warn(recording, profiles.is_empty(), &member.unrecorded, end);
    while recorded.is_last() && metadata::join_members(recording)? {
        // The file of a member again: while the recording is sealed, no other has the lead, and
        // those that come and end meanwhile leave the sealing to this command.
        number = members::add(recording, &member)?;
        let lead = Lead::among(recording);
        let _ = lead.is_ours(); // where there are no locks, there is no lead
        recorded.share();
        if !self::profiles(recording)?.is_empty() {
            seal_apart(recording, How::new(options, end));
        }
        let _ = members::remove(recording, number); // one that stays is joined once more
    }
    Ok(())
}

/// Notes how the program ended, and what of it was not recorded. Returns whether there is anything
/// to seal.
///
/// Errors: that cannot be noted.
fn note_end(recording: &Path, mut metadata: Metadata, end: &End) -> Result<bool, Error> {
    let profiles = profiles(recording)?;
    metadata.unrecorded = unrecorded(&profiles, metadata.root_pid, end);
    metadata.status = Some(status(end));
    metadata.ends = ends(end);
    metadata.write(recording)?;
    warn(recording, profiles.is_empty(), &metadata.unrecorded, end);
    Ok(!profiles.is_empty())
}

/// Prints why nothing of the program was recorded, unless that was printed before it started.
fn warn(recording: &Path, is_empty: bool, unrecorded: &str, end: &End) {
    if unrecorded.is_empty() || end.obstacle.is_some_and(|obstacle| !obstacle.is_partial()) {
        return;
    }
    let what = if is_empty { "nothing was recorded" } else { "only child processes were recorded" };
    message(format_args!("{}: {what}: {unrecorded}", recording.display()));
}

/// Why the program itself has no profile; empty if it has one.
fn unrecorded(profiles: &[String], root_pid: u32, end: &End) -> String {
    let of_program = format!("{root_pid}-");
    match end.obstacle {
        _ if profiles.iter().any(|name| name.starts_with(&of_program)) => String::new(),
        Some(obstacle) if !obstacle.is_partial() => obstacle.to_string(),
        _ => "the recorder was not loaded, or could not write to the recording".to_owned(),
    }
}

fn status(end: &End) -> Status {
    use std::os::unix::process::ExitStatusExt;
    let status = end.ended.status;
    match status.signal() {
        Some(signal) => Status { kind: StatusKind::Signaled, code: signal },
        None => Status { kind: StatusKind::Exited, code: status.code().unwrap_or(0) },
    }
}

fn ends(end: &End) -> Vec<metadata::ImageEnd> {
    let stored = |end: &ImageEnd| metadata::ImageEnd {
        image: end.image.clone(),
        monotonic_ns: end.monotonic_ns,
    };
    end.ended.ends.iter().map(stored).collect()
}

/// How a recording is sealed.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// Where names are looked for.
    pub names: &'a NameOptions,
    /// Neither progress nor a summary is printed.
    pub quiet: bool,
    /// Python's own allocator was turned off.
    pub python_objects: bool,
}

impl<'a> How<'a> {
    fn new(options: &'a RunOptions, end: &End) -> How<'a> {
        How { names: &options.names, quiet: options.quiet, python_objects: end.python_objects }
    }
}

/// Seals in a process of its own: if that dies, of a lack of memory or a mistake of ours, this one
/// still has the status of the program to return.
pub fn seal_apart(recording: &Path, how: How) {
    use std::os::unix::process::ExitStatusExt;
    let sealer = exec::fork(|| {
        exec::die_with_parent();
        exec::lift_limits();
        u8::from(seal(recording, how).map_err(message).is_err())
    });
    let shown = recording.display();
    let killed = match sealer.map(exec::wait_for) {
        Ok(status) => {
            status.and_then(|status| status.signal()).map(|signal| format!("signal {signal}"))
        }
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = killed {
        message(format_args!(
            "{shown}: sealing failed ({why}); symbols can be looked up on this machine only"
        ));
    }
}

/// The path as a person here would type it.
fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| Some(path.strip_prefix(here).ok()?.to_owned()));
    below.filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| path.to_owned())
}

/// Seals the recording and prints the summary.
fn seal(recording: &Path, how: How) -> Result<(), Error> {
    let progress = (!how.quiet).then(|| Rc::new(Progress::start("looking up symbols")));
    let sources = how.names.sources(progress.clone())?;
    let lookup = Lookup { engine: &Blazesym, sources: &sources, again: false };
    seal_with(recording, &lookup, &mut |done, total| {
        if let Some(progress) = &progress {
            progress.at("looking up symbols", done, total);
        }
    })?;
    drop((sources, progress));
    if how.quiet {
        return Ok(());
    }
    let progress = Progress::start(format!("reading {}", recording.display()));
    let read = Recording::open(recording);
    drop(progress);
    let (mut read, shown) = (read?, from_here(recording));
    for process in &mut read.processes {
        process.select_python(PythonFrames::Mixed);
    }
    let summary = heaptide_render::text::summary::summary(&read, &shown);
    for line in summary.lines() {
        message(line.trim_start_matches("heaptide: "));
    }
    if let Some(line) = missing_names::line(&read, &shown) {
        message(format_args!("  {line}"));
    }
    if how.python_objects {
        message(
            "  Python objects are blocks (PYTHONMALLOC=malloc); `--python-memory arenas` keeps Python's allocator",
        );
    }
    Ok(())
}

/// The names of the profiles in a recording.
fn profiles(recording: &Path) -> Result<Vec<String>, Error> {
    let entries = std::fs::read_dir(recording).map_err(|e| Error::file(recording, "read it", e))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.ends_with(PROFILE_SUFFIX)).collect())
}
