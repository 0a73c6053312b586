//! The child's part of `heaptide run`: it knows its pid, so it names the recording, and becomes the
//! program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use heaptide_analysis::metadata::{self, Metadata};

use crate::Error;
use crate::monitors::Monitors;
use crate::options::{Mode, RunOptions};

/// What `run` tells its child, as arguments of `heaptide launch`.
pub struct Launch {
    /// libheaptide.so.
    pub library: PathBuf,
    /// What is loaded beside it.
    pub monitors: Monitors,
    /// The recording; none for the default name.
    pub output: Option<PathBuf>,
    /// The program's file.
    pub program: PathBuf,
}

impl Launch {
    /// The command that starts the child.
    pub fn command(&self, options: &RunOptions) -> Result<Command, Error> {
        let mode = match options.mode {
            Mode::Counters => "counters",
            Mode::Scopes => "scopes",
            Mode::Stacks => "stacks",
            Mode::Trace => "trace",
        };
        let mut command = Command::new(std::env::current_exe()?);
        let mut library = OsString::new();
        if !options.no_preload {
            library.push(&self.library);
            library.push(&self.monitors.preload);
        }
        command.arg("launch").arg("--").arg(library);
        command.arg(self.output.as_deref().unwrap_or(Path::new("")));
        command.arg(mode);
        command.arg(if options.no_follow { "one" } else { "all" });
        command.arg(if options.no_reuse { "off" } else { "on" });
        command.arg(&self.program).arg(options.program()).args(options.args());
        command.envs(self.settings(options));
        Ok(command)
    }

    /// Variables that the program inherits, of options that were given.
    fn settings(&self, options: &RunOptions) -> Vec<(&'static str, OsString)> {
        let mut settings = Vec::new();
        if !self.monitors.names.is_empty() {
            settings.push(("HEAPTIDE_MONITORS", self.monitors.names.clone()));
        }
        if options.start_off {
            settings.push(("HEAPTIDE_START", "off".into()));
        }
        if let Some(signal) = options.snapshot_on {
            settings.push(("HEAPTIDE_SNAPSHOT_SIGNAL", signal.to_string().into()));
        }
        if let Some(bytes) = options.stacks_from {
            settings.push(("HEAPTIDE_THRESHOLD", bytes.to_string().into()));
        }
        if let Some(bytes) = options.stacks_below {
            settings.push(("HEAPTIDE_THRESHOLD", format!("<{bytes}").into()));
        }
        if options.by_size {
            settings.push(("HEAPTIDE_BY_SIZE", "on".into()));
        }
        if options.free_stacks {
            settings.push(("HEAPTIDE_FREE_STACKS", "on".into()));
        }
        if let Some(bytes) = options.max_size {
            settings.push(("HEAPTIDE_MAX_SIZE", bytes.to_string().into()));
        }
        settings
    }
}

/// `heaptide launch LIBRARIES OUTPUT MODE one|all on|off FILE NAME [ARG…]`: becomes the program, or
/// says why not.
pub fn launch(arguments: &[OsString]) -> Result<ExitCode, Error> {
    let [library, output, mode, follow, reuse, file, name, args @ ..] = arguments else {
        return Err("launch is for `heaptide run` alone".to_owned().into());
    };
    let pid = std::process::id();
    let recording = match output.is_empty() {
        true => default_recording(Path::new(name), pid)?,
        false => PathBuf::from(output),
    };
    if output.is_empty() {
        std::fs::create_dir(&recording)
            .map_err(|e| format!("{}: {e}; name another place by -o", recording.display()))?;
    }
    let words = std::iter::once(name).chain(args);
    let metadata = Metadata {
        version: metadata::VERSION,
        heaptide: env!("CARGO_PKG_VERSION").to_owned(),
        command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
        root_pid: pid,
        ..Metadata::default()
    };
    metadata.write(&recording)?;
    let mut command = Command::new(file);
    command.arg0(name).args(args);
    if !library.is_empty() {
        command.env("LD_PRELOAD", preload(library));
    }
    command.env("HEAPTIDE_OUTPUT", &recording).env("HEAPTIDE_MODE", mode);
    if follow == "one" {
        command.env("HEAPTIDE_FOLLOW", pid.to_string());
    }
    if reuse == "off" {
        command.env("HEAPTIDE_REUSE", "off");
    }
    let error = command.exec();
    // Nothing was recorded: no recording is left behind.
    let _ = std::fs::remove_dir_all(&recording);
    Err(format!("{}: cannot be run: {error}", Path::new(file).display()).into())
}

/// `heaptide-PROGRAM-PID.heaptide` in the current directory, absolute.
pub fn default_recording(program: &Path, pid: u32) -> Result<PathBuf, Error> {
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    Ok(std::env::current_dir()?.join(format!("heaptide-{name}-{pid}.heaptide")))
}

/// Ours first, then what was preloaded before.
fn preload(library: &OsString) -> OsString {
    let mut all = library.clone();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}
