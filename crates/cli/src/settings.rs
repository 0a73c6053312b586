//! Changes of the program's environment by `heaptide run`: the libraries to preload, and the
//! variables that they read.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use heaptide_command::error::Error;
use heaptide_format::caliper;
use heaptide_format::settings::{BELOW, OFF, ON, Setting};
use heaptide_supervise::environment::Environment;
use heaptide_supervise::program::check_library;

use crate::library;
use crate::monitors::{self, Monitors};
use crate::options::{Mode, PythonMemory, RunOptions};

/// The symbol that each recorder exports, and no other library.
const INTERFACE: &[u8] = b"heaptide_interface";

/// The variables that name the tool of Kokkos, and its former name.
const KOKKOS_TOOLS: [&str; 2] = ["KOKKOS_TOOLS_LIBS", "KOKKOS_PROFILE_LIBRARY"];

/// The checked settings of a run.
pub struct Settings<'a> {
    options: &'a RunOptions,
    mode: Mode,
    /// The value for `LD_PRELOAD`; empty if nothing is to be preloaded.
    libraries: OsString,
    /// The recorder, one of them, if Kokkos can load it as a tool.
    tool: Option<PathBuf>,
    monitors: Monitors,
    /// Whether allocators are not intercepted, whatever the options are.
    without_interception: bool,
}

/// Returns how much to record: given by the options, or by the environment (our variable or
/// Caliper's).
///
/// Errors: our variable is not the name of a mode.
pub fn mode(options: &RunOptions, environment: &Environment) -> Result<Mode, Error> {
    let variable = Setting::Mode.variable();
    let named = environment.get(variable).filter(|name| !name.is_empty());
    match (options.mode, named) {
        (Some(mode), _) => Ok(mode),
        (None, None) => {
            let value = |name| environment.get(name).unwrap_or_default();
            let services = caliper::Services::read(value(caliper::VARIABLE).as_bytes());
            let config = caliper::Services::of_config(value(caliper::CONFIG).as_bytes());
            Ok(if services.and(config).trace { Mode::Trace } else { Mode::Stacks })
        }
        (None, Some(name)) => Mode::from_value(&name.to_string_lossy()).ok_or_else(|| {
            Error::new(format!(
                "{variable}={}: unknown mode; expected one of {}, or sampled=BYTES, such as \
                 sampled=64K",
                name.display(),
                Mode::names()
            ))
        }),
    }
}

/// Checks the recorder's settings in the environment, because the recorder silently ignores values
/// that it does not understand.
///
/// Errors: the first invalid value.
pub fn check_environment(environment: &Environment) -> Result<(), Error> {
    for setting in Setting::ALL {
        let Some(value) = environment.get(setting.variable()).filter(|value| !value.is_empty())
        else {
            continue;
        };
        let text = value.to_string_lossy();
        let (is_known, expected) = match setting {
            Setting::Start
            | Setting::BySize
            | Setting::ByCall
            | Setting::FreeStacks
            | Setting::FullBatches
            | Setting::KeepTrace
            | Setting::Retain => ([ON, OFF].contains(&&*text), "on or off"),
            Setting::MaxSize
            | Setting::MaxProfile
            | Setting::KeepSnapshots
            | Setting::SnapshotSignal
            | Setting::SampleSeed
            | Setting::Rank
            | Setting::Ranks
            | Setting::Follow => (is_number(&text), "a number"),
            Setting::Threshold => (
                is_number(text.strip_prefix(BELOW).unwrap_or(&text)),
                "a number, or < and a number",
            ),
            Setting::PythonMemory => {
                (PythonMemory::from_str(&text, false).is_ok(), "objects or arenas")
            }
            Setting::SnapshotEvery => (
                text.split('.').count() <= 2 && text.split('.').all(is_number),
                "seconds, such as 0.5",
            ),
            _ => continue, // any text is valid, or it is checked where it is used
        };
        if !is_known {
            let (variable, value) = (setting.variable(), value.display());
            return Err(Error::new(format!(
                "{variable}={value}: expected {expected}; change or unset it"
            )));
        }
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Disables recording in a program that may embed the recorder.
pub fn turn_off(environment: &mut Environment) {
    environment.set(Setting::Mode.variable(), OsStr::new(&Mode::Off.value()));
}

impl<'a> Settings<'a> {
    /// Checks options and libraries.
    ///
    /// Errors: options that exclude each other, or a library that cannot be loaded.
    pub fn new(options: &'a RunOptions, mode: Mode) -> Result<Settings<'a>, Error> {
        check(options, mode)?;
        let monitors = monitors::check(&options.monitors)?;
        let mut libraries = OsString::new();
        let mut tool = None;
        if !options.no_preload {
            let recorder = recorder()?;
            libraries.push(&recorder);
            libraries.push(&monitors.preload);
            tool = Some(recorder).filter(|path| !path.as_os_str().as_bytes().contains(&b';'));
        }
        Ok(Settings { options, mode, libraries, tool, monitors, without_interception: false })
    }

    /// Returns whether events are recorded.
    pub fn has_trace(&self) -> bool {
        self.mode == Mode::Trace
    }

    /// Returns the recorder's library; `None` if nothing is to be preloaded.
    pub fn recorder(&self) -> Option<&Path> {
        let first = self.libraries.as_bytes().split(|&byte| byte == b':').next()?;
        Some(Path::new(OsStr::from_bytes(first))).filter(|path| !path.as_os_str().is_empty())
    }

    /// Removes the libraries, for a program that cannot be started with them.
    pub fn without_libraries(&mut self) {
        self.libraries.clear();
    }

    /// Disables interception, for a program that would be ended for it. Returns whether the options
    /// have not done that.
    pub fn without_interception(&mut self) -> bool {
        self.without_interception = true;
        !self.options.no_intercept
    }

    /// Changes the environment of a program that is recorded into a directory. `pid` is the process
    /// id that the program sees.
    pub fn apply(&self, environment: &mut Environment, recording: &Path, pid: u32) {
        if !self.libraries.is_empty() {
            environment.preload(&self.libraries);
            self.announce_to_kokkos(environment);
        }
        environment.set(Setting::Output.variable(), recording.as_os_str());
        environment.set(Setting::Mode.variable(), OsStr::new(&self.mode.value()));
        for (setting, value) in self.options.settings(pid) {
            environment.set(setting.variable(), OsStr::new(&value));
        }
        if self.without_interception {
            environment.set(Setting::Intercept.variable(), OsStr::new(OFF));
        }
        // An outer command does not search what this one records.
        let retain = Setting::Retain.variable();
        if !self.options.retain && environment.get(retain).is_some() {
            environment.set(retain, OsStr::new(""));
        }
        // This command writes the reports after the end of the program, instead of the program.
        let report = Setting::Report.variable();
        if environment.get(report).is_some() {
            environment.set(report, OsStr::new(""));
        }
        let command = Setting::Command.variable();
        if environment.get(command).is_none()
            && let Ok(own) = std::env::current_exe()
        {
            environment.set(command, own.as_os_str());
        }
        if !self.monitors.names.is_empty() {
            environment.set(Setting::Monitors.variable(), &self.monitors.names);
        }
    }
}

impl Settings<'_> {
    /// Makes Kokkos announce to the recorder what a program does, unless another tool is to be
    /// loaded. Kokkos ends the program if both variables are set and differ.
    fn announce_to_kokkos(&self, environment: &mut Environment) {
        let is_free = KOKKOS_TOOLS.iter().all(|name| environment.get(name).is_none());
        if let (Some(tool), true) = (&self.tool, is_free) {
            environment.set(KOKKOS_TOOLS[0], tool.as_os_str());
        }
    }
}

/// Returns the path of the recorder library.
///
/// Errors: it does not exist, or `HEAPTIDE_LIBRARY` names another library.
pub fn recorder() -> Result<PathBuf, Error> {
    let path = library::path()?;
    let refuse = |why: &str| Error::new(format!("{}: {why}", path.display()));
    let elf = check_library(&path).map_err(|why| refuse(&why))?;
    if elf.names().any(|name| name == INTERFACE) {
        return Ok(path);
    }
    Err(refuse("not the recorder; expected libheaptide.so (`heaptide library` prints its path)"))
}

/// Checks that the options are valid for the mode.
fn check(options: &RunOptions, mode: Mode) -> Result<(), Error> {
    if !mode.has_stacks() && options.stacks_from.or(options.stacks_below).is_some() {
        return Err(Error::new(
            "--stacks-from and --stacks-below require --mode stacks, trace or sampled",
        ));
    }
    if options.retain && matches!(mode, Mode::Counters | Mode::Sampled(_)) {
        return Err(Error::new("--retain requires --mode stacks, scopes or trace"));
    }
    if mode == Mode::Counters && options.by_size {
        return Err(Error::new("--by-size requires --mode stacks, scopes, trace or sampled"));
    }
    if mode == Mode::Counters && options.by_call {
        return Err(Error::new("--by-call requires --mode stacks, scopes, trace or sampled"));
    }
    if mode != Mode::Trace && options.keep_trace().is_limited() {
        return Err(Error::new("--keep-trace-for and --keep-trace-size require --mode trace"));
    }
    if mode != Mode::Trace && (options.free_stacks || options.max_trace_size.is_some()) {
        return Err(Error::new("--free-stacks and --max-trace-size require --mode trace"));
    }
    Ok(())
}
