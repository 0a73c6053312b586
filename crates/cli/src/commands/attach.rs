//! `heaptide attach` and `heaptide detach`: recording of a program that already runs.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use heaptide_analysis::recording::metadata::{self, Metadata};
use heaptide_analysis::recording::running;
use heaptide_attach::{Request, attach as begin, detach as end};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::values;
use heaptide_control::{Lead, Mover};
use heaptide_format::settings::{BELOW, OFF, ON, Setting};
use heaptide_supervise::environment::Environment;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, Uid};

use crate::finish::{How, seal_apart};
use crate::library;
use crate::options::{Mode, NameOptions};
use crate::output_name::{Names, expand};
use crate::place::{Place, Recorded};
use crate::settings::name_of;

/// The heading of options that select which requests get a stack, and of traces.
const STACKS: &str = "Stacks and traces";

/// `heaptide attach`.
#[derive(Args, Debug)]
#[command(after_help = ATTACH_EXAMPLE)]
pub struct AttachOptions {
    /// Process to record
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Recording to write, a directory; %p is replaced by the pid, %h by the host, %n by the
    /// program's name, %q{VAR} by a variable, %% by % [default: heaptide-PROGRAM-PID.heaptide]
    #[arg(short, long, value_name = "REC", value_parser = values::directory())]
    output: Option<PathBuf>,
    /// Replace an existing recording
    #[arg(long)]
    force: bool,
    /// Detach after this time, such as 500ms, 30s or 2m [default: until Ctrl-C, or the end of the
    /// program]
    #[arg(long = "for", value_name = "TIME", value_parser = values::time)]
    duration: Option<Duration>,
    /// Return once the program is recorded; `heaptide detach PID` ends the recording
    #[arg(long, conflicts_with = "duration")]
    background: bool,
    /// Give up if no safe moment was found in this time
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "5s")]
    patience: Duration,
    /// How much to record: scopes, stacks or trace [default: stacks]
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Print no summary and no progress
    #[arg(short, long)]
    quiet: bool,
    /// Record stacks only for requests of at least this many bytes, such as 4096, 4K or 1M
    #[arg(long, help_heading = STACKS, value_name = "BYTES", value_parser = values::bytes)]
    stacks_from: Option<u64>,
    /// Record stacks only for requests of fewer bytes than this
    #[arg(long, help_heading = STACKS, value_name = "BYTES", value_parser = values::stacks_below)]
    #[arg(conflicts_with = "stacks_from")]
    stacks_below: Option<u64>,
    /// Record a separate site for each request size (exact sizes; larger profile)
    #[arg(long, help_heading = STACKS)]
    by_size: bool,
    /// Record a separate site for each kind of function called: malloc, calloc, realloc, aligned,
    /// new, other
    #[arg(long, help_heading = STACKS)]
    by_call: bool,
    /// With --mode trace: also record the stacks of frees
    #[arg(long, help_heading = STACKS)]
    free_stacks: bool,
    /// With --mode trace: stop tracing when the traces use this much disk space, such as 500M or 2G
    #[arg(long, value_name = "BYTES", value_parser = values::bound, help_heading = STACKS)]
    max_trace_size: Option<u64>,
    /// Change no code of allocators: record only calls through the imports of modules
    #[arg(long, help_heading = "Special cases")]
    no_intercept: bool,
    /// Record no accounts of resident memory, which `heaptide memory` shows
    #[arg(long, help_heading = "Special cases")]
    no_accounts: bool,
    #[command(flatten)]
    names: NameOptions,
}

const ATTACH_EXAMPLE: &str = "\
Example:
  heaptide attach --for 30s -o server.heaptide $(pidof server)
  heaptide attach --background 4711 && sleep 600 && heaptide detach 4711

Blocks that the program allocated before are unknown: their frees are counted, but charged to nobody.";

/// `heaptide detach`.
#[derive(Args, Debug)]
#[command(after_help = DETACH_EXAMPLE)]
pub struct DetachOptions {
    /// Process to stop recording
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Give up if no safe moment was found in this time
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "5s")]
    patience: Duration,
    /// Print no summary and no progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    names: NameOptions,
}

const DETACH_EXAMPLE: &str = "\
Example:
  heaptide attach --background 4711 && sleep 600 && heaptide detach 4711

The recorder stays loaded and passes all calls on; `heaptide attach` begins another recording.";

/// Records a program that runs.
pub fn attach(options: &AttachOptions) -> Outcome {
    options.names.check()?;
    check(options)?;
    let pid = Pid::from_raw(options.pid);
    let signals = Ending::block()?;
    let library = library::path()?;
    let recorded = make(options)?;
    let request = Request {
        library,
        settings: settings(options),
        recording: recorded.path().to_owned(),
        patience: options.patience,
    };
    if let Err(error) = begin(pid, request) {
        recorded.remove_if_empty();
        return Err(Error::library(error).into());
    }
    let shown = recorded.path().display();
    if options.background {
        message(format_args!(
            "recording process {pid} into {shown}; `heaptide detach {pid}` ends it"
        ));
        return Ok(());
    }
    if !options.quiet {
        let until = match options.duration {
            Some(time) => format!("for {time:?}"),
            None => "until Ctrl-C".to_owned(),
        };
        message(format_args!("recording process {pid} into {shown} {until}"));
    }
    let is_traced = options.mode == Some(Mode::Trace);
    let mover = is_traced.then(|| Mover::start(recorded.path(), Lead::alone().into()));
    stay(pid, options.duration, &signals);
    let ended = if is_there(pid) { end(pid, options.patience).map(|_| ()) } else { Ok(()) };
    if let Some(Err(error)) = mover.map(|mover| mover.and_then(Mover::finish)) {
        message(format_args!("{error}; reading the remaining events from the profile"));
    }
    // A program that ended meanwhile has ended its recording, too.
    if let Err(error) = ended
        && is_there(pid)
    {
        return Err(Error::library(error).into());
    }
    let how = How { names: &options.names, quiet: options.quiet, python_objects: false };
    seal_apart(recorded.path(), how);
    Ok(())
}

/// Ends the recording of a program.
pub fn detach(options: &DetachOptions) -> Outcome {
    options.names.check()?;
    let pid = Pid::from_raw(options.pid);
    let profile = end(pid, options.patience).map_err(Error::library)?;
    let profile = PathBuf::from(profile);
    let Some(recording) = profile.parent().filter(|path| path.is_dir()) else {
        message(format_args!("process {pid} is no longer recorded; its recording was removed"));
        return Ok(());
    };
    let how = How { names: &options.names, quiet: options.quiet, python_objects: false };
    if running::of_recording(recording).is_ok_and(|running| running.is_empty()) {
        seal_apart(recording, how);
    } else {
        message(format_args!(
            "{}: child processes are still being recorded; `heaptide seal` looks up symbols later",
            recording.display()
        ));
    }
    Ok(())
}

/// Whether the options go together.
fn check(options: &AttachOptions) -> Result<(), Error> {
    let is_traced = options.mode == Some(Mode::Trace);
    if options.mode == Some(Mode::Off) {
        return Err(Error::new("--mode off: expected a mode that records something"));
    }
    if options.mode == Some(Mode::Counters) {
        return Err(Error::new(
            "--mode counters cannot tell blocks from before apart; use --mode scopes",
        ));
    }
    if (options.free_stacks || options.max_trace_size.is_some()) && !is_traced {
        return Err(Error::new(
            "--free-stacks and --max-trace-size: expected --mode trace as well",
        ));
    }
    Ok(())
}

/// Makes the directory of the recording, so that the process can write to it.
fn make(options: &AttachOptions) -> Result<Recorded, Error> {
    let pid = options.pid;
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default();
    let path = match &options.output {
        None => PathBuf::from(format!("heaptide-{}-{pid}.heaptide", name.to_string_lossy())),
        Some(pattern) => {
            let environment = Environment::new(&[]);
            let host = nix::unistd::gethostname().unwrap_or_default();
            let names = Names {
                pid: pid as u32,
                host: &host.to_string_lossy(),
                rank: None,
                program: name,
                environment: &environment,
            };
            expand(pattern, &names)?
        }
    };
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // A program that wrote a title over its arguments leaves zeros behind it.
    let end = command.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let words = command[..end].split(|&byte| byte == 0);
    let metadata = Metadata {
        version: metadata::VERSION,
        heaptide: env!("CARGO_PKG_VERSION").to_owned(),
        command: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        root_pid: own_pid(pid),
        ..Metadata::default()
    };
    let mut draft = Place::new(&path, options.force)?.draft(&metadata)?;
    give(draft.path(), pid)?;
    draft.publish()?;
    Ok(draft.keep())
}

/// What a process calls itself: in a container that is another number.
fn own_pid(pid: i32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = numbers.and_then(|numbers| numbers.split_whitespace().next_back()?.parse().ok());
    own.unwrap_or(pid as u32)
}

/// Gives a directory to the user of a process, if that is another one.
fn give(path: &Path, pid: i32) -> Result<(), Error> {
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else { return Ok(()) };
    if Uid::effective().is_root() && process.uid() != 0 {
        chown(path, Some(process.uid()), Some(process.gid()))
            .map_err(|error| Error::file(path, "give it to the process's user", error))?;
    }
    Ok(())
}

/// The settings of the recorder, as variables.
fn settings(options: &AttachOptions) -> Vec<u8> {
    let switch = |is_given: bool, value: &str| is_given.then(|| value.to_owned());
    let mode = options.mode.unwrap_or(Mode::Stacks);
    let all = [
        (Setting::Mode, Some(name_of(mode))),
        (Setting::Intercept, switch(options.no_intercept, OFF)),
        (Setting::Accounts, switch(options.no_accounts, OFF)),
        (Setting::Threshold, options.stacks_from.map(|bytes| bytes.to_string())),
        (Setting::Threshold, options.stacks_below.map(|bytes| format!("{BELOW}{bytes}"))),
        (Setting::BySize, switch(options.by_size, ON)),
        (Setting::ByCall, switch(options.by_call, ON)),
        (Setting::FreeStacks, switch(options.free_stacks, ON)),
        (Setting::MaxSize, options.max_trace_size.map(|bytes| bytes.to_string())),
    ];
    let mut text = Vec::new();
    let mut put = |setting: Setting, value: &[u8]| {
        text.extend_from_slice(setting.variable().as_bytes());
        text.push(b'=');
        text.extend_from_slice(value);
        text.push(0);
    };
    for (setting, value) in all {
        if let Some(value) = value {
            put(setting, value.as_bytes());
        }
    }
    text
}

/// Signals that end the recording: they are read, so that the program is let go first.
struct Ending(SignalFd);

impl Ending {
    fn block() -> Result<Ending, Error> {
        let mut set = SigSet::empty();
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .iter()
            .for_each(|&signal| set.add(signal));
        let opened = set.thread_block().and_then(|()| {
            SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        });
        let failed =
            |error| Error::new(format!("cannot wait for signals: {}", io::Error::from(error)));
        Ok(Ending(opened.map_err(failed)?))
    }

    fn has_come(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }
}

/// Waits for the end of the time, of the program, or for a signal.
fn stay(pid: Pid, duration: Option<Duration>, signals: &Ending) {
    const LOOKS_EVERY: Duration = Duration::from_millis(20);
    let until = duration.map(|time| Instant::now() + time);
    while is_there(pid) && !signals.has_come() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return;
        }
        thread::sleep(left.map_or(LOOKS_EVERY, |left| left.min(LOOKS_EVERY)));
    }
}

/// Whether a process has not ended.
fn is_there(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
