//! The end of `heaptide run`: stores in the recording how the program ended, and seals it. The
//! program has run, so an error here only prints a message and does not change the exit status.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::rc::Rc;

use heaptide_analysis::model::Recording;
use heaptide_analysis::recording::metadata::{self, Member, Metadata, Status, StatusKind};
use heaptide_analysis::recording::{members, seal_with};
use heaptide_analysis::symbols::{Blazesym, Lookup, is_about_split};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::missing_names;
use heaptide_command::outcome::Stop;
use heaptide_command::progress::Progress;
use heaptide_command::selection::{Reader, Selection};
use heaptide_command::source::{self, Empty, View};
use heaptide_control::Lead;
use heaptide_format::PROFILE_SUFFIX;
use heaptide_render::text::summary::{Separate, summary};
use heaptide_supervise::exec;
use heaptide_supervise::images::ImageEnd;
use heaptide_supervise::program::Obstacle;
use heaptide_supervise::supervisor::Ended;

use crate::options::{NameOptions, RunOptions};
use crate::place::{Recorded, Whereabouts};
use crate::search;

/// Data that this command stores in a recording.
pub struct Own {
    /// For `recording.json`, which the first command of a launch writes.
    pub metadata: Metadata,
    /// For a file of this command.
    pub member: Member,
    /// The number of that file; none outside of a launch.
    pub number: Option<u32>,
}

/// How the program ended, and what was not recorded of it.
pub struct End<'a> {
    /// The observations of the supervisor.
    pub ended: &'a Ended,
    /// Why recording was impossible or partial, if it was. Was printed before the start.
    pub obstacle: Option<&'a Obstacle>,
}

/// Stores the end, and seals the recording if no other command of the launch writes to it. Returns
/// where the recording is; none if it was removed.
pub fn finish(recorded: &Recorded, own: Own, end: &End, options: &RunOptions) -> Option<PathBuf> {
    let recording = find_again(recorded)?;
    let result = match own.number {
        None => note_end(&recording, own.metadata, end)
            .map(|has_profiles| {
                has_profiles.then(|| seal_apart(&recording, &recording, How::new(options)))
            })
            .map(|_| ()),
        Some(number) => leave(recorded, &recording, (number, own.member), end, options),
    };
    if let Err(error) = result {
        message(error);
    }
    Some(recording)
}

/// Removes this command from a recording whose program was not started.
pub fn withdraw(recorded: &Recorded, number: Option<u32>) {
    // If this fails, the member has an unknown end, like a command that was killed.
    let _ = number.map(|number| members::remove(recorded.path(), number));
    if recorded.is_last() {
        recorded.remove_if_empty();
    }
}

/// Returns where the recording is now; none if it was removed.
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

/// Stores the end of a member, and seals the recording while it is the last one. If something
/// cannot be stored, prints that, and prints the summary nevertheless.
///
/// Errors: the recording cannot be read.
fn leave(
    recorded: &Recorded,
    recording: &Path,
    (mut number, mut member): (u32, Member),
    end: &End,
    options: &RunOptions,
) -> Result<(), Error> {
    let profiles = profiles(recording)?;
    member.unrecorded = unrecorded(&profiles, member.root_pid, end);
    member.status = Some(status(end.ended.status));
    member.ends = ends(end);
    member.out_of_memory = out_of_memory(end);
    let stored = members::replace(recording, number, &member);
    stored.unwrap_or_else(message);
    warn(recording, profiles.is_empty(), &member.unrecorded, end);
    while recorded.is_last() {
        match metadata::join_members(recording) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                message(error);
                seal_apart(recording, recording, How::new(options));
                break;
            }
        }
        // Adds the member file again: this command keeps the lead while it seals, and commands that
        // join and end meanwhile leave the sealing to it.
        number = members::add(recording, &member)?;
        let lead = Lead::among(recording);
        let _ = lead.is_ours(); // no effect on file systems without locks
        recorded.share();
        if !self::profiles(recording)?.is_empty() {
            seal_apart(recording, recording, How::new(options));
        }
        let _ = members::remove(recording, number); // if it stays, the loop merges it once more
    }
    Ok(())
}

/// Stores how the program ended, and what was not recorded; prints if that cannot be stored.
/// Returns whether there are profiles to seal.
///
/// Errors: the recording cannot be read.
fn note_end(recording: &Path, mut metadata: Metadata, end: &End) -> Result<bool, Error> {
    let profiles = profiles(recording)?;
    metadata.unrecorded = unrecorded(&profiles, metadata.root_pid, end);
    metadata.status = Some(status(end.ended.status));
    metadata.ends = ends(end);
    metadata.out_of_memory = out_of_memory(end);
    metadata.write(recording).unwrap_or_else(message);
    warn(recording, profiles.is_empty(), &metadata.unrecorded, end);
    Ok(!profiles.is_empty())
}

/// Prints why nothing was recorded, unless that was printed before the start.
fn warn(recording: &Path, is_empty: bool, unrecorded: &str, end: &End) {
    if unrecorded.is_empty() || end.obstacle.is_some_and(|obstacle| !obstacle.is_partial()) {
        return;
    }
    let what = if is_empty { "nothing was recorded" } else { "only child processes were recorded" };
    message(format_args!("{}: {what}: {unrecorded}", recording.display()));
}

/// Returns why the program itself has no profile; empty if it has one.
fn unrecorded(profiles: &[String], root_pid: u32, end: &End) -> String {
    let of_program = format!("{root_pid}-");
    match end.obstacle {
        _ if profiles.iter().any(|name| name.starts_with(&of_program)) => String::new(),
        Some(obstacle) if !obstacle.is_partial() => obstacle.to_string(),
        _ => "the recorder was not loaded, or could not write to the recording".to_owned(),
    }
}

fn status(status: ExitStatus) -> Status {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(signal) => Status { kind: StatusKind::Signaled, code: signal },
        None => Status { kind: StatusKind::Exited, code: status.code().unwrap_or(0) },
    }
}

fn ends(end: &End) -> Vec<metadata::ImageEnd> {
    let stored = |end: &ImageEnd| metadata::ImageEnd {
        image: end.image.clone(),
        monotonic_ns: end.monotonic_ns,
        status: end.status.map(status),
    };
    end.ended.ends.iter().map(stored).collect()
}

fn out_of_memory(end: &End) -> Option<metadata::OutOfMemory> {
    let kills = end.ended.out_of_memory.filter(|kills| kills.processes > 0)?;
    let (processes, in_group) = (kills.processes, kills.is_of_group);
    Some(metadata::OutOfMemory { processes, in_group })
}

/// How to seal a recording.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// Where to look for names.
    pub names: &'a NameOptions,
    /// Whether to print neither progress nor a summary.
    pub quiet: bool,
    /// Whether processes were searched when they ended.
    pub retain: bool,
}

impl<'a> How<'a> {
    fn new(options: &'a RunOptions) -> How<'a> {
        How { names: &options.names, quiet: options.quiet, retain: options.retain }
    }
}

/// Seals in a separate process: if that is killed (out of memory, or a bug), this one can still
/// return the exit status of the program. `shown` is the path of the recording for messages.
pub fn seal_apart(recording: &Path, shown: &Path, how: How) {
    use std::os::unix::process::ExitStatusExt;
    let sealer = exec::fork(|| {
        exec::die_with_parent();
        exec::lift_limits();
        u8::from(seal(recording, shown, how).map_err(message).is_err())
    });
    let shown = shown.display();
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

/// Returns a path relative to the current directory, if it is below it.
fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| Some(path.strip_prefix(here).ok()?.to_owned()));
    below.filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| path.to_owned())
}

/// Seals the recording and prints the summary, also if sealing fails, as on a full disk.
///
/// Errors: the recording cannot be sealed or read.
fn seal(recording: &Path, shown: &Path, how: How) -> Result<(), Error> {
    let progress = (!how.quiet).then(|| Rc::new(Progress::start("looking up symbols")));
    let sources = how.names.sources(progress.clone())?;
    let lookup = Lookup { engine: &Blazesym, sources: &sources, again: false };
    let sealed = seal_with(recording, &lookup, &mut |done, total| {
        if let Some(progress) = &progress {
            progress.at("looking up symbols", done, total);
        }
    });
    drop((sources, progress));
    if how.quiet {
        sealed?;
        return Ok(());
    }
    let progress = Progress::start(format!("reading {}", shown.display()));
    let read = Recording::open(recording);
    drop(progress);
    let (mut read, notes) = match (read, sealed) {
        (Ok(read), Ok(sealed)) => (read, sealed.notes),
        (Ok(read), Err(error)) => {
            message(format_args!("{error}; symbols can be looked up on this machine only"));
            (read, Vec::new())
        }
        (Err(_), Err(error)) | (Err(error), Ok(_)) => return Err(error.into()),
    };
    let shown = from_here(shown);
    let separate = Separate::of(&read);
    read.choose_subject();
    // As for `heaptide report`, so that both state the same.
    let view = View { reader: Reader::Person, empty: Empty::Shown, ..View::default() };
    let selection = Selection { kind: None, ..Selection::everything() };
    if let Err(Stop::Failed(error)) = source::prepare(&mut read, &selection, view) {
        message(error); // in heaptide.toml; the summary can do without
    }
    let summary = summary(&read, &separate, &shown);
    for line in summary.lines() {
        message(line.trim_start_matches("heaptide: "));
    }
    if how.retain {
        message(format_args!("  {}", search::summary(recording, &shown)));
    }
    if let Some(line) = missing_names::line(&read, &shown) {
        message(format_args!("  {line}"));
    }
    for note in notes.iter().filter(|note| is_about_split(note)) {
        message(format_args!("  {note}"));
    }
    Ok(())
}

/// Returns the names of the profiles in a recording.
fn profiles(recording: &Path) -> Result<Vec<String>, Error> {
    let entries = std::fs::read_dir(recording).map_err(|e| Error::file(recording, "read it", e))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.ends_with(PROFILE_SUFFIX)).collect())
}
