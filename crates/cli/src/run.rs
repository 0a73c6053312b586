//! `heaptide run`: starts the program with the recorder in it, stays out of its way, seals what it
//! left.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use heaptide_analysis::model::Recording;
use heaptide_analysis::recording::metadata::{self, Metadata, Status, StatusKind};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::{self, Outcome};
use heaptide_command::progress::Progress;
use heaptide_control::{Mover, Snapshots};
use heaptide_format::PROFILE_SUFFIX;
use heaptide_supervise::environment::Environment;
use heaptide_supervise::exec;
use heaptide_supervise::images::{ImageEnd, Images};
use heaptide_supervise::program::{self, Obstacle};
use heaptide_supervise::signals::Signals;
use heaptide_supervise::start::{Held, Program};
use heaptide_supervise::supervisor::{Ended, Supervisor};

use crate::options::{Mode, RunOptions};
use crate::place::{Place, Recorded, Whereabouts};
use crate::settings::{self, Settings};

/// Runs and records the program; the result is its status, 128 + n for signal n.
pub fn run(options: &RunOptions) -> Outcome {
    let inherited = exec::inherited().map(|inherited| &*inherited.environment);
    let environment = Environment::new(inherited.unwrap_or_default());
    let mode = settings::mode(options, &environment)?;
    let file = program::find(options.program(), environment.get("PATH"))?;
    let program = Program { file, words: options.words().to_vec() };
    match mode {
        Mode::Off => run_unrecorded(&program, environment),
        mode => record(options, mode, &program, environment),
    }
}

/// Becomes the program.
fn run_unrecorded(program: &Program, mut environment: Environment) -> Outcome {
    settings::turn_off(&mut environment);
    Err(cannot_be_run(program, &program.exec(&environment.finish())).into())
}

fn cannot_be_run(program: &Program, error: &std::io::Error) -> Error {
    Error::new(format!("cannot run {}: {error}", program.file.display()))
}

fn record(
    options: &RunOptions,
    mode: Mode,
    program: &Program,
    environment: Environment,
) -> Outcome {
    let mut settings = Settings::new(options, mode)?;
    let place =
        options.output.as_deref().map(|path| Place::new(path, options.force)).transpose()?;
    let obstacle = Obstacle::from_program(&program.file, environment.get("LD_PRELOAD"));
    if obstacle.as_ref().is_some_and(Obstacle::forbids_preloading) {
        settings.without_libraries();
    }
    let (supervisor, recorded, metadata) = start(options, program, place, |path, pid| {
        let mut environment = environment;
        settings.apply(&mut environment, path, pid);
        environment
    })?;
    let snapshots = options.snapshot_every.map(|every| {
        Snapshots::start(recorded.path(), every, |error| {
            message(format_args!("{error}; later snapshots may also be missing"));
        })
    });
    if let Some(Err(error)) = &snapshots {
        message(error);
    }
    let mover = settings.has_trace().then(|| Mover::start(recorded.path()));
    let ended = supervisor.wait();
    drop(snapshots);
    if let Some(Err(e)) = mover.map(|mover| mover.and_then(Mover::finish)) {
        message(format_args!("{e}; reading the remaining events from the profile"));
    }
    let status = ended.status;
    finish(&recorded, metadata, &ended, obstacle.as_ref(), options.quiet);
    outcome::exit(exit_status(status))
}

/// Starts the program in the recording's place. If that is not possible all is as it was.
fn start(
    options: &RunOptions,
    program: &Program,
    place: Option<Place>,
    environment: impl FnOnce(&Path, u32) -> Environment,
) -> Result<(Supervisor, Recorded, Metadata), Error> {
    let refused = |error| cannot_be_run(program, &error);
    let signals = Signals::block().map_err(refused)?;
    let mut held = Held::fork(program).map_err(refused)?;
    let mut supervisor = Supervisor::new(&held, signals, program.words.len());
    let place = match place {
        Some(place) => place,
        None => Place::new(&default_recording(program, held.own_pid), options.force)?,
    };
    let metadata = Metadata {
        version: metadata::VERSION,
        heaptide: env!("CARGO_PKG_VERSION").to_owned(),
        command: program.words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        root_pid: held.own_pid,
        ..Metadata::default()
    };
    let mut draft = place.draft(&metadata)?;
    draft.publish()?;
    // Without it the ends of killed processes are less exact.
    let images = draft.directory().and_then(|place| Images::new(place, held.own_pid).ok());
    if let Some(images) = images {
        supervisor.note_ends(images);
    }
    let environment = environment(draft.path(), held.own_pid).finish();
    held.release(&environment).map_err(refused)?;
    Ok((supervisor, draft.keep(), metadata))
}

/// `heaptide-PROGRAM-PID.heaptide` in the current directory.
fn default_recording(program: &Program, pid: u32) -> PathBuf {
    let name = program.words.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    PathBuf::from(format!("heaptide-{}-{pid}.heaptide", name.to_string_lossy()))
}

/// The exit status of the program, as a shell reports it.
fn exit_status(status: ExitStatus) -> u8 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8
}

/// Notes in the recording how the program ended, and seals it. The program has run: whatever goes
/// wrong here is a line and no reason for another status.
fn finish(
    recorded: &Recorded,
    metadata: Metadata,
    ended: &Ended,
    obstacle: Option<&Obstacle>,
    quiet: bool,
) {
    let Some(recording) = find_again(recorded) else { return };
    if let Err(e) = note_end(&recording, metadata, ended, obstacle) {
        return message(e);
    }
    // In a process of its own: if that dies, of a lack of memory or a mistake of ours, this one
    // still has the status of the program to return.
    let sealer = exec::fork(|| {
        exec::die_with_parent();
        exec::lift_limits();
        u8::from(seal(&recording, quiet).map_err(message).is_err())
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

/// The path as a person here would type it.
fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| Some(path.strip_prefix(here).ok()?.to_owned()));
    below.filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| path.to_owned())
}

/// Notes how the program ended, and what of it was not recorded.
///
/// Errors: nothing was recorded, and why; or that cannot be noted.
fn note_end(
    recording: &Path,
    mut metadata: Metadata,
    ended: &Ended,
    obstacle: Option<&Obstacle>,
) -> Result<(), Error> {
    let profiles = profiles(recording)?;
    let of_program = format!("{}-", metadata.root_pid);
    if !profiles.iter().any(|name| name.starts_with(&of_program)) {
        metadata.unrecorded = match obstacle {
            Some(obstacle) => obstacle.to_string(),
            None => "the recorder was not loaded, or could not write to the recording".to_owned(),
        };
    }
    metadata.status = Some(match ended.status.signal() {
        Some(signal) => Status { kind: StatusKind::Signaled, code: signal },
        None => Status { kind: StatusKind::Exited, code: ended.status.code().unwrap_or(0) },
    });
    let end = |end: &ImageEnd| {
        let image = end.image.clone();
        metadata::ImageEnd { image, monotonic_ns: end.monotonic_ns }
    };
    metadata.ends = ended.ends.iter().map(end).collect();
    metadata.write(recording)?;
    let (shown, why) = (recording.display(), &metadata.unrecorded);
    if profiles.is_empty() {
        return Err(Error::new(format!("{shown}: nothing was recorded: {why}")));
    }
    if !why.is_empty() {
        message(format_args!("{shown}: only child processes were recorded: {why}"));
    }
    Ok(())
}

/// Seals the recording and prints the summary.
fn seal(recording: &Path, quiet: bool) -> Result<(), Error> {
    let progress = (!quiet).then(|| Progress::start("looking up symbols"));
    heaptide_analysis::seal(recording, &mut |done, total| {
        if let Some(progress) = &progress {
            progress.at("looking up symbols", done, total);
        }
    })?;
    drop(progress);
    if quiet {
        return Ok(());
    }
    let progress = Progress::start(format!("reading {}", recording.display()));
    let read = Recording::open(recording);
    drop(progress);
    let summary = heaptide_render::text::summary::summary(&read?, &from_here(recording));
    for line in summary.lines() {
        message(line.trim_start_matches("heaptide: "));
    }
    Ok(())
}

/// The names of the profiles in a recording.
fn profiles(recording: &Path) -> Result<Vec<String>, Error> {
    let entries = std::fs::read_dir(recording).map_err(|e| Error::file(recording, "read it", e))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.ends_with(PROFILE_SUFFIX)).collect())
}
