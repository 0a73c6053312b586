//! `heaptide run`: starts the program with the recorder in it, stays out of its way, seals what it
//! left.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};

use heaptide_analysis::metadata::{Metadata, Status, StatusKind};
use heaptide_analysis::model::Recording;
use heaptide_format::{BASELINE_SUFFIX, PROFILE_SUFFIX, SNAPSHOT_SUFFIX, TRACE_SUFFIX};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use crate::launch::{Launch, default_recording};
use crate::mover::Mover;
use crate::options::{Mode, RunOptions};
use crate::progress::Progress;
use crate::watch::Watch;
use crate::{Error, library, monitors};

/// Runs and records the program; the result is its status, 128 + n for signal n.
pub fn run(options: &RunOptions) -> Result<ExitCode, Error> {
    let program = find_program(options.program())?;
    check(options)?;
    let monitors = monitors::check(&options.monitors)?;
    let output = options.output.as_deref().map(|path| prepare(path, options.force)).transpose()?;
    let launch = Launch { library: library::path()?, monitors, output, program };
    // Before the child starts: a signal must find us ready to pass it on.
    let signals =
        SignalsInfo::<WithOrigin>::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])?;
    let child = launch.command(options)?.spawn()?;
    let recording = match &launch.output {
        Some(path) => path.clone(),
        None => default_recording(Path::new(options.program()), child.id())?,
    };
    let watch = options.snapshot_every.map(|every| Watch::start(&recording, every));
    let mover = (options.mode == Mode::Trace).then(|| Mover::start(&recording));
    let status = wait(child, signals)?;
    drop(watch);
    if let Some(Err(e)) = mover.map(Mover::finish) {
        eprintln!("heaptide: {e}; events that were not moved are read from the profile");
    }
    // The child takes the recording away again if the program could not be started.
    if recording.exists() {
        finish(&recording, status, options.quiet);
    }
    Ok(exit_code(status))
}

/// Whether the options go with the mode.
fn check(options: &RunOptions) -> Result<(), Error> {
    let (mode, has_stacks) = (options.mode, matches!(options.mode, Mode::Stacks | Mode::Trace));
    if !has_stacks && options.stacks_from.or(options.stacks_below).is_some() {
        return Err(Error::new("--stacks-from and --stacks-below are for --mode stacks and trace"));
    }
    if mode == Mode::Counters && options.by_size {
        return Err(Error::new("--by-size is for --mode stacks, scopes and trace"));
    }
    if mode != Mode::Trace && (options.free_stacks || options.max_size.is_some()) {
        return Err(Error::new("--free-stacks and --max-size are for --mode trace"));
    }
    Ok(())
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(code as u8)
}

/// The program's file, found as execvp would.
fn find_program(name: &std::ffi::OsStr) -> Result<PathBuf, Error> {
    if name.to_string_lossy().contains('/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Ok(found) if found.is_dir() => {
                Err(format!("{}: is a directory, expected a program", path.display()).into())
            }
            Ok(_) => Ok(path),
            Err(e) => Err(format!("{}: {e}; expected a program to run", path.display()).into()),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let runnable = |file: &PathBuf| {
        use std::os::unix::fs::PermissionsExt;
        file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let found = std::env::split_paths(&path).map(|place| place.join(name)).find(runnable);
    found.ok_or_else(|| {
        format!("{}: not found in PATH; expected a program to run", name.to_string_lossy()).into()
    })
}

/// Makes the recording's directory. What is there already stays, unless it is a recording and
/// `force`.
fn prepare(path: &Path, force: bool) -> Result<PathBuf, Error> {
    let path = std::path::absolute(path)?;
    let shown = path.display();
    may_record(&path, force)?;
    if path.exists() {
        std::fs::remove_dir_all(&path).map_err(|e| format!("{shown}: {e}"))?;
    }
    std::fs::create_dir(&path)
        .map_err(|e| format!("{shown}: {e}; expected a place where a directory can be made"))?;
    Ok(path)
}

/// An error if something is there that is no recording, or a recording without `force`.
pub fn may_record(path: &Path, force: bool) -> Result<(), Error> {
    let shown = path.display();
    match path.exists() {
        true if !force => Err(format!("{shown}: exists; name another place or use --force").into()),
        true if !is_recording(path) => {
            Err(format!("{shown}: is not a recording, so --force does not replace it").into())
        }
        _ => Ok(()),
    }
}

/// Whether a directory holds nothing but what a recording is made of.
fn is_recording(path: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else {
        return false;
    };
    entries.flatten().all(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // One whose writer was killed has more behind its name: `PID-IMAGE.baseline.new`.
        const COPIES: [&str; 2] = [SNAPSHOT_SUFFIX, BASELINE_SUFFIX];
        name.ends_with(PROFILE_SUFFIX)
            || name.ends_with(TRACE_SUFFIX)
            || COPIES.iter().any(|copy| name.ends_with(copy))
            || COPIES.iter().any(|copy| name.contains(copy)) && name.ends_with(".new")
            || matches!(&*name, "recording.json" | "symbols.json")
    })
}

/// Waits for the child. Signals that somebody sent to us go on to it; those of the terminal it has
/// already got.
fn wait(mut child: Child, mut signals: SignalsInfo<WithOrigin>) -> Result<ExitStatus, Error> {
    let pid = Pid::from_raw(child.id() as i32);
    let handle = signals.handle();
    let forwarder = std::thread::spawn(move || {
        for origin in signals.forever() {
            if origin.process.is_some()
                && let Ok(signal) = Signal::try_from(origin.signal)
            {
                let _ = kill(pid, signal);
            }
        }
    });
    let status = child.wait()?;
    handle.close();
    let _ = forwarder.join();
    Ok(status)
}

/// Seals the recording and says what it holds. The program has run: whatever goes wrong here is
/// said and is no reason for another status.
fn finish(recording: &Path, status: ExitStatus, quiet: bool) {
    if let Err(e) = seal(recording, status, quiet) {
        eprintln!("heaptide: {e}");
        return;
    }
    if quiet {
        return;
    }
    let progress = Progress::start(format!("reading {}", recording.display()));
    let read = Recording::open(recording);
    drop(progress);
    match read {
        Ok(read) => eprint!("{}", heaptide_render::summary(&read, &from_here(recording))),
        Err(e) => eprintln!("heaptide: {e}"),
    }
}

/// The path as a person here would type it.
fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| Some(path.strip_prefix(here).ok()?.to_owned()));
    below.filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| path.to_owned())
}

fn seal(recording: &Path, status: ExitStatus, quiet: bool) -> Result<(), Error> {
    if let Some(mut metadata) = Metadata::read(recording)? {
        metadata.status = Some(match status.signal() {
            Some(signal) => Status { kind: StatusKind::Signaled, code: signal },
            None => Status { kind: StatusKind::Exited, code: status.code().unwrap_or(0) },
        });
        metadata.write(recording)?;
    }
    if !holds_profile(recording)? {
        return Err(format!(
            "{}: nothing was recorded: the program is static and has no recorder embedded, has \
             privileges of its own, could not write there, or its allocator does not tell block \
             sizes",
            recording.display()
        )
        .into());
    }
    let progress = (!quiet).then(|| Progress::start("naming functions"));
    heaptide_analysis::seal(recording, &mut |done, total| {
        progress.iter().for_each(|progress| progress.at("naming functions", done, total));
    })?;
    Ok(())
}

fn holds_profile(recording: &Path) -> Result<bool, Error> {
    let mut entries = std::fs::read_dir(recording)?.flatten();
    Ok(entries.any(|entry| entry.file_name().to_string_lossy().ends_with(PROFILE_SUFFIX)))
}
