//! `heaptide watch`: takes snapshots of recorded programs on events and at intervals, and keeps the
//! newest.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use heaptide_analysis::recording::running;
use heaptide_analysis::text::of_path;
use heaptide_analysis::trace::KeepTrace;
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::Outcome;
use heaptide_command::values;
use heaptide_control::{FileUser, Lead, Mover, Snapshots, path_of};
use heaptide_render::shared::quantity::counted;

use crate::ending::Ending;
use crate::options::SnapshotOptions;
use crate::run::begin_snapshots;

/// `heaptide watch`.
#[derive(Args, Debug)]
#[command(after_help = WATCH_EXAMPLE)]
pub struct WatchOptions {
    /// Recording (watches all programs that write to it, also those that start later), or the id of
    /// a recorded process
    #[arg(value_name = "REC|PID")]
    target: PathBuf,
    /// End after this time, such as 10m or 12h [default: at Ctrl-C or, for a PID, when the process
    /// ends]
    #[arg(long = "for", value_name = "TIME", value_parser = values::time)]
    duration: Option<Duration>,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Keep only the trace events of the last TIME, such as 10m
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    keep_trace_for: Option<Duration>,
    /// Keep only the newest trace events of each process, in this much disk space
    #[arg(long, value_name = "BYTES", value_parser = values::kept_trace)]
    keep_trace_size: Option<u64>,
    #[command(flatten)]
    snapshots: SnapshotOptions,
}

const WATCH_EXAMPLE: &str = "\
Example:
  heaptide watch app.heaptide --snapshot-when live=2G --snapshot-when oom
  heaptide watch 4711 --snapshot-every 1m --keep-snapshots 60

Watching is transparent to the programs. With a recording, the command continues after a program
ends: a program that is started again into the same recording is watched as well.";

/// Takes snapshots and moves traces until the end.
pub fn watch(options: &WatchOptions) -> Outcome {
    let signals = Ending::block(&options.snapshots)?;
    let (recording, only) = find(&options.target)?;
    let (shown, refused) =
        (of_path(&recording).to_string(), |e| Error::file(&recording, "watch it", e));
    let directory = File::open(&recording).map_err(refused)?;
    let owner = FileUser::of_owner(&directory).map_err(refused)?;
    let _entered = owner.enter().map_err(refused)?;
    let recording =
        if owner.is_own() { recording.clone() } else { path_of(&directory, &recording) };
    let lead = Arc::new(Lead::alone());
    let snapshots = begin_snapshots(options.snapshots.plan(only, None), &recording, &lead);
    let keep = KeepTrace { bytes: options.keep_trace_size, age: options.keep_trace_for };
    let mover = keep.is_limited().then(|| Mover::start(&recording, keep, lead));
    if snapshots.is_none() && mover.is_none() {
        return Err(Error::new(
            "nothing to do; expected --snapshot-when, --snapshot-every, --keep-snapshots or \
             --keep-trace-size",
        )
        .into());
    }
    if !options.quiet {
        let what =
            only.map_or_else(|| shown.to_string(), |pid| format!("process {pid} of {shown}"));
        let until = match (options.duration, only) {
            (Some(time), _) => format!("for {time:?}"),
            (None, Some(_)) => "until it ends, or Ctrl-C".to_owned(),
            (None, None) => "until Ctrl-C".to_owned(),
        };
        message(format_args!("watching {what} {until}"));
    }
    let has_ended = || only.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    signals.wait(options.duration, snapshots.as_ref(), has_ended);
    let count = snapshots.map(Snapshots::finish).unwrap_or_default();
    if let Some(Err(error)) = mover.map(|mover| mover.and_then(Mover::finish)) {
        message(format_args!("{error}; its events stay in the profile"));
    }
    if !options.quiet {
        let taken = counted(count.taken, "snapshot");
        let removed = match count.removed {
            0 => String::new(),
            removed => format!(", {removed} removed"),
        };
        message(format_args!("{shown}: {taken} taken{removed}"));
    }
    Ok(())
}

/// Returns the recording to watch, and a process of it if one is given.
fn find(target: &Path) -> Result<(PathBuf, Option<u32>), Error> {
    if let Some(running) = running::by_id(target).map_err(Error::library)? {
        let recording = running.file.parent().unwrap_or(Path::new("."));
        return Ok((recording.to_owned(), Some(running.pid)));
    }
    match fs::metadata(target) {
        Ok(file) if file.is_dir() => Ok((target.to_owned(), None)),
        Ok(_) => {
            let shown = target.display();
            Err(Error::new(format!("{shown}: expected the directory of a recording, or a pid")))
        }
        Err(error) => Err(Error::file(target, "watch it", error)),
    }
}
