//! `heaptide attach` and `heaptide detach`: recording of a running program.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use heaptide_analysis::quantity::duration;
use heaptide_analysis::recording::metadata::{self, Metadata};
use heaptide_analysis::recording::running;
use heaptide_analysis::trace::KeepTrace;
use heaptide_attach::{Detached, Pause, Request, attach as begin, detach as end, number_inside};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::values;
use heaptide_control::{FileUser, Lead, Mover, Snapshots, path_of};
use heaptide_format::settings::{BELOW, OFF, ON, Setting};
use heaptide_supervise::environment::{Environment, PRELOAD};
use nix::unistd::Pid;

use crate::ending::Ending;
use crate::finish::{How, seal_apart};
use crate::options::{Mode, ModeParser, NameOptions, SnapshotOptions};
use crate::output_name::{Names, expand};
use crate::place::{Place, Recorded, open_directory};
use crate::run::begin_snapshots;
use crate::settings;

/// The heading of options for stacks and traces.
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
    /// Give up if no safe point to attach is found in this time
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "5s")]
    patience: Duration,
    /// How much to record: scopes, stacks or trace [default: stacks]
    #[arg(long, value_name = "MODE", value_parser = ModeParser)]
    mode: Option<Mode>,
    /// Print no summary and no progress
    #[arg(short, long)]
    quiet: bool,
    /// Record only the process itself, not its child processes
    #[arg(long)]
    no_follow: bool,
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
    /// Don't patch allocators: record only calls through the imports of modules
    #[arg(long, help_heading = "Special cases")]
    no_intercept: bool,
    /// Don't record accounts of resident memory, which `heaptide memory` shows
    #[arg(long, help_heading = "Special cases")]
    no_accounts: bool,
    /// With --mode trace: keep only the events of the last TIME, such as 10m
    #[arg(long, value_name = "TIME", value_parser = values::time, help_heading = STACKS)]
    #[arg(conflicts_with_all = ["max_trace_size", "background"])]
    keep_trace_for: Option<Duration>,
    /// With --mode trace: keep only the newest events of each process, in this much disk space
    #[arg(long, value_name = "BYTES", value_parser = values::kept_trace, help_heading = STACKS)]
    #[arg(conflicts_with_all = ["max_trace_size", "background"])]
    keep_trace_size: Option<u64>,
    /// Store no new stacks when the profile of a process reaches this size, such as 64M or 1G;
    /// totals stay exact
    #[arg(long, value_name = "BYTES", value_parser = values::profile_limit, help_heading = STACKS)]
    max_profile: Option<u64>,
    #[command(flatten)]
    snapshots: SnapshotOptions,
    #[command(flatten)]
    names: NameOptions,
}

const ATTACH_EXAMPLE: &str = "\
Example:
  heaptide attach --for 30s -o server.heaptide $(pidof server)
  heaptide attach --background 4711 && sleep 600 && heaptide detach 4711

Blocks that the program allocated before are unknown: their frees are counted, but not attributed.";

/// `heaptide detach`.
#[derive(Args, Debug)]
#[command(after_help = DETACH_EXAMPLE)]
pub struct DetachOptions {
    /// Process to detach from
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Give up if no safe point to detach is found in this time
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

The recorder stays loaded and forwards all calls; `heaptide attach` starts another recording.";

/// Attaches to a running program and records it.
pub fn attach(options: &AttachOptions) -> Outcome {
    options.names.check()?;
    check(options)?;
    let pid = Pid::from_raw(options.pid);
    let signals = Ending::block(&options.snapshots)?;
    let recorder = settings::recorder()?;
    let user = FileUser::of_process(options.pid).map_err(Error::library)?;
    let recorded = make(options, &user)?;
    let directory = recorded.directory()?;
    let settings = variables(options, recorded.path(), &recorder);
    let request = Request {
        recorder,
        settings: settings.own,
        handed_on: settings.handed_on,
        recording: recorded.path().to_owned(),
        directory: recorded.directory()?,
        patience: options.patience,
    };
    let begun = begin(pid, request);
    let pause = match begun {
        Ok(pause) => stopped_for(pause),
        Err(error) => {
            recorded.remove(); // a profile in it has no events
            return Err(Error::library(error).into());
        }
    };
    let shown = recorded.path().display();
    if options.background {
        let end = format_args!("`heaptide detach {pid}` ends it");
        message(format_args!("recording process {pid} into {shown}; {pause}; {end}"));
        return Ok(());
    }
    if !options.quiet {
        let until = match options.duration {
            Some(time) => format!("for {time:?}"),
            None => "until Ctrl-C".to_owned(),
        };
        message(format_args!("recording process {pid} into {shown} {until}; {pause}"));
    }
    let is_traced = options.mode == Some(Mode::Trace);
    let lead = Arc::new(Lead::alone());
    let entered = user.enter().map_err(Error::library)?;
    let path = path_of(&directory, recorded.path());
    let plan = options.snapshots.plan(None, Some(own_pid(options.pid)));
    let snapshots = begin_snapshots(plan, &path, &lead);
    let mover = is_traced.then(|| Mover::start(&path, options.keep_trace(), lead));
    drop(entered);
    let by_another = || running::is_detached(&path, own_pid(options.pid));
    signals.wait(options.duration, snapshots.as_ref(), || !is_there(pid) || by_another());
    // Before detaching: a program that continues has not failed.
    snapshots.map(Snapshots::finish);
    let by_another = by_another();
    let ended = (is_there(pid) && !by_another).then(|| end(pid, options.patience));
    if let Some(Err(error)) = mover.map(|mover| mover.and_then(Mover::finish)) {
        message(format_args!("{error}; reading the remaining events from the profile"));
    }
    match ended {
        Some(Ok(detached)) if !options.quiet => {
            message(format_args!("detached from process {pid}; {}", stopped_for(detached.pause)));
        }
        // If the program ended in the meantime, its recording has ended, too. If it executed
        // another file, it is recorded like a child process.
        Some(Err(error)) if is_there(pid) && !is_recorded(pid, recorded.path()) => {
            return Err(Error::library(error).into());
        }
        _ => {}
    }
    if by_another {
        let shown = recorded.path().display();
        message(format_args!("another command detached from process {pid}, and closes {shown}"));
        return Ok(());
    }
    close((&directory, recorded.path()), &user, &options.names, options.quiet)
}

impl AttachOptions {
    /// Returns which part of traces to keep.
    fn keep_trace(&self) -> KeepTrace {
        KeepTrace { bytes: self.keep_trace_size, age: self.keep_trace_for }
    }
}

/// Returns how long a program was stopped, for a message.
fn stopped_for(Pause { total, longest }: Pause) -> String {
    let shown = |time: Duration| duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (total, longest) = (shown(total), shown(longest));
    if total == longest {
        return format!("its threads were stopped for {total}");
    }
    format!("its threads were stopped for {total}, at most {longest} at a time")
}

/// Returns whether a process writes to a recording.
fn is_recorded(pid: Pid, recording: &Path) -> bool {
    let running = running::of_recording(recording).unwrap_or_default();
    running.iter().any(|running| i64::from(running.pid) == i64::from(pid.as_raw()))
}

/// Seals a recording, given as an open directory and its path, unless child processes are still
/// recorded into it.
fn close(
    (directory, shown): (&File, &Path),
    user: &FileUser,
    names: &NameOptions,
    quiet: bool,
) -> Outcome {
    let _entered = user.enter().map_err(Error::library)?;
    let recording = path_of(directory, shown);
    if running::of_recording(&recording).is_ok_and(|running| running.is_empty()) {
        seal_apart(&recording, shown, How { names, quiet, retain: false });
        return Ok(());
    }
    message(format_args!(
        "{}: child processes are still being recorded; `heaptide seal` looks up symbols later",
        shown.display()
    ));
    Ok(())
}

/// Detaches from a program and seals its recording.
pub fn detach(options: &DetachOptions) -> Outcome {
    options.names.check()?;
    let pid = Pid::from_raw(options.pid);
    let user = FileUser::of_process(options.pid).map_err(Error::library)?;
    let Detached { profile, pause } = end(pid, options.patience).map_err(Error::library)?;
    if !options.quiet {
        message(format_args!("detached from process {pid}; {}", stopped_for(pause)));
    }
    let Some(recording) = profile.parent().filter(|path| path.is_dir()) else {
        message(format_args!("process {pid} is no longer recorded; its recording was removed"));
        return Ok(());
    };
    close((&open_directory(recording)?, recording), &user, &options.names, options.quiet)
}

/// Checks that the options do not exclude each other.
fn check(options: &AttachOptions) -> Result<(), Error> {
    let is_traced = options.mode == Some(Mode::Trace);
    if options.mode == Some(Mode::Off) {
        return Err(Error::new("--mode off: expected a mode that records something"));
    }
    if options.mode == Some(Mode::Counters) {
        return Err(Error::new(
            "--mode counters cannot distinguish blocks allocated before attaching; use --mode \
             scopes",
        ));
    }
    if options.keep_trace().is_limited() && !is_traced {
        return Err(Error::new("--keep-trace-for and --keep-trace-size require --mode trace"));
    }
    if options.background && !options.snapshots.plan(None, None).is_empty() {
        return Err(Error::new(
            "--background: the command exits and takes no snapshots; use `heaptide watch`",
        ));
    }
    if matches!(options.mode, Some(Mode::Sampled(_))) {
        return Err(Error::new(
            "--mode sampled cannot distinguish blocks allocated before attaching; use --mode \
             stacks, or start the program with `heaptide run --mode sampled`",
        ));
    }
    if (options.free_stacks || options.max_trace_size.is_some()) && !is_traced {
        return Err(Error::new("--free-stacks and --max-trace-size require --mode trace"));
    }
    Ok(())
}

/// Creates the directory of the recording, which belongs to the user of the process.
fn make(options: &AttachOptions, user: &FileUser) -> Result<Recorded, Error> {
    let pid = options.pid;
    let program = executed(pid).or_else(|| fs::read_link(format!("/proc/{pid}/exe")).ok());
    let program = program.unwrap_or_default();
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
    // A program that overwrote its arguments with a title leaves zero bytes after it.
    let end = command.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let words = command[..end].split(|&byte| byte == 0);
    let metadata = Metadata {
        version: metadata::VERSION,
        heaptide: env!("CARGO_PKG_VERSION").to_owned(),
        command: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        root_pid: own_pid(pid),
        ..Metadata::default()
    };
    let mut draft = Place::new(&path, options.force)?.draft_of(user, &metadata)?;
    draft.publish()?;
    Ok(draft.keep())
}

/// Returns the path by which a process was executed, which can be a symbolic link; none if it no
/// longer leads to the executable.
fn executed(pid: i32) -> Option<PathBuf> {
    const AT_EXECFN: u64 = 31;
    let auxiliary = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    let mut entries = auxiliary.chunks_exact(16);
    let entry = entries.find(|entry| word(&entry[..8]) == Some(AT_EXECFN))?;
    let mut path = [0; 4096];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let read = memory.read_at(&mut path, word(&entry[8..])?).ok()?;
    let end = path[..read].iter().position(|&byte| byte == 0)?;
    let path = Path::new(OsStr::from_bytes(&path[..end]));
    // Relative to the root of the process, or to its current directory.
    let absolute = path.strip_prefix("/").map(|path| Path::new("root").join(path));
    let seen = absolute.unwrap_or_else(|_| Path::new("cwd").join(path));
    let place = PathBuf::from(format!("/proc/{pid}"));
    let of = |path: &Path| fs::metadata(place.join(path)).map(|file| (file.dev(), file.ino())).ok();
    (of(&seen)? == of(Path::new("exe"))?).then(|| path.to_owned())
}

/// Returns the process id that a process sees.
fn own_pid(pid: i32) -> u32 {
    number_inside(Pid::from_raw(pid)).unwrap_or(pid as u32)
}

/// Settings of the recorder: `NAME=VALUE` entries, each terminated by a zero byte.
struct Variables {
    /// Settings for the process alone, except the output.
    own: Vec<u8>,
    /// Settings that its child processes need, too.
    handed_on: Vec<u8>,
}

/// Returns the settings that the options result in.
fn variables(options: &AttachOptions, recording: &Path, recorder: &Path) -> Variables {
    let switch = |is_given: bool, value: &str| is_given.then(|| value.to_owned());
    let mode = options.mode.unwrap_or(Mode::Stacks);
    let all = [
        (Setting::Mode, Some(mode.value())),
        (Setting::Intercept, switch(options.no_intercept, OFF)),
        (Setting::Accounts, switch(options.no_accounts, OFF)),
        (Setting::Threshold, options.stacks_from.map(|bytes| bytes.to_string())),
        (Setting::Threshold, options.stacks_below.map(|bytes| format!("{BELOW}{bytes}"))),
        (Setting::BySize, switch(options.by_size, ON)),
        (Setting::ByCall, switch(options.by_call, ON)),
        (Setting::FreeStacks, switch(options.free_stacks, ON)),
        (Setting::MaxSize, options.max_trace_size.map(|bytes| bytes.to_string())),
        (Setting::KeepTrace, switch(options.keep_trace().is_limited(), ON)),
        (Setting::MaxProfile, options.max_profile.map(|bytes| bytes.to_string())),
        (Setting::Follow, options.no_follow.then(|| own_pid(options.pid).to_string())),
    ];
    // `Environment` notes what it sets, so that a `heaptide run` in a child process can revert it.
    let mut environment = Environment::new(&[]);
    for (setting, value) in all {
        if let Some(value) = value {
            environment.set(setting.variable(), OsStr::new(&value));
        }
    }
    environment.set(Setting::Output.variable(), recording.as_os_str());
    environment.preload(recorder.as_os_str());
    let mut variables = Variables { own: Vec::new(), handed_on: Vec::new() };
    for entry in environment.finish() {
        let is_of = |name: &str| entry.as_bytes().starts_with(name.as_bytes());
        let place = match () {
            () if is_of(Setting::Output.variable()) => continue,
            () if is_of(Setting::Run.variable()) || is_of(PRELOAD) => &mut variables.handed_on,
            () => &mut variables.own,
        };
        place.extend_from_slice(entry.as_bytes());
        place.push(0);
    }
    variables
}

/// Returns whether a process has not ended.
fn is_there(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
