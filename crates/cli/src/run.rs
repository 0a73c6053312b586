//! `heaptide run`: starts the program with the recorder preloaded, waits for it without
//! interfering, and seals the recording.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use heaptide_analysis::recording::metadata::{self, Member, Metadata};
use heaptide_analysis::recording::running;
use heaptide_attach::insert::{Executor, Insertion, Symbols};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::{self, Outcome};
use heaptide_control::{Control, Lead, Mover, Plan, Snapshots};
use heaptide_supervise::environment::Environment;
use heaptide_supervise::exec;
use heaptide_supervise::images::Images;
use heaptide_supervise::program::{self, Obstacle, missing_interpreter};
use heaptide_supervise::signals::Signals;
use heaptide_supervise::start::{Held, Program};
use heaptide_supervise::supervisor::Supervisor;

use crate::finish::{End, Own, finish, withdraw};
use crate::helper::Helper;
use crate::inserting;
use crate::joining::{Entered, Seat, enter};
use crate::launch::Launch;
use crate::options::{Mode, RunOptions};
use crate::output_name::{Names, expand};
use crate::place::Recorded;
use crate::reports::{Check, Reports};
use crate::search::search_at_end;
use crate::settings::{self, Settings};

/// Runs and records the program; the result is its exit status, or 128 + n for signal n. `check`
/// checks that the format of a report exists.
pub fn run(options: &RunOptions, check: Check) -> Outcome {
    let inherited = exec::inherited().map(|inherited| &*inherited.environment);
    let environment = Environment::new(inherited.unwrap_or_default());
    let mode = settings::mode(options, &environment)?;
    let file = program::find(options.program(), environment.get("PATH"))?;
    let program = Program { file, words: options.words().to_vec() };
    match mode {
        Mode::Off => run_unrecorded(&program, environment),
        mode => {
            settings::check_environment(&environment)?;
            options.names.check()?;
            let reports = Reports::new(&options.reports, &environment, check)?;
            record(options, mode, &program, (environment, &reports))
        }
    }
}

/// Replaces this process by the program.
fn run_unrecorded(program: &Program, mut environment: Environment) -> Outcome {
    settings::turn_off(&mut environment);
    Err(cannot_be_run(program, &program.exec(&environment.finish())).into())
}

fn cannot_be_run(program: &Program, error: &std::io::Error) -> Error {
    let file = program.file.display();
    match missing_interpreter(&program.file) {
        Some(interpreter) => {
            let interpreter = interpreter.display();
            Error::new(format!(
                "cannot run {file}: {interpreter}, which it names after `#!`, is missing"
            ))
        }
        None => Error::new(format!("cannot run {file}: {error}")),
    }
}

fn record(
    options: &RunOptions,
    mode: Mode,
    program: &Program,
    (environment, reports): (Environment, &Reports),
) -> Outcome {
    let mut settings = Settings::new(options, mode)?;
    let obstacle = Obstacle::from_program(&program.file, environment.get("LD_PRELOAD"));
    if obstacle.as_ref().is_some_and(Obstacle::forbids_preloading) {
        settings.without_libraries();
    }
    if exec::is_ended_for_changes_of_code() && settings.without_interception() {
        message(
            "a seccomp filter ends programs that change their code, so allocators other than that \
             of the C library are not recorded, as with --no-intercept",
        );
    }
    let Started { mut supervisor, helpers, recorded, own, obstacle } =
        start(options, &settings, program, environment, obstacle)?;
    let lead = Arc::new(match own.number {
        Some(_) => Lead::among(recorded.path()),
        None => Lead::alone(),
    });
    let snapshots = begin_snapshots(
        options.snapshots.plan(None, Some(own.member.root_pid)),
        recorded.path(),
        &lead,
    );
    for (signal, name) in options.snapshots.signals() {
        if let Some(snapshots) = &snapshots {
            supervisor.consume(signal, snapshots.taker(name));
        }
    }
    supervisor.on_stuck(|stuck| {
        give_up_accounts(stuck.pid);
        message(format_args!(
            "{stuck}; it takes no more accounts of memory, and can be ended only by SIGKILL; \
             please report this line"
        ));
    });
    let mover =
        settings.has_trace().then(|| Mover::start(recorded.path(), options.keep_trace(), lead));
    let ended = supervisor.wait();
    drop(helpers);
    if let Some(snapshots) = snapshots {
        snapshots.note_end(own.member.root_pid, !ended.status.success());
        snapshots.finish();
    }
    if let Some(Err(e)) = mover.map(|mover| mover.and_then(Mover::finish)) {
        message(format_args!("{e}; reading the remaining events from the profile"));
    }
    let end = End { ended: &ended, obstacle: obstacle.as_ref() };
    if let Some(recording) = finish(&recorded, own, &end, options) {
        reports.write(&recording);
    }
    outcome::exit(exit_status(ended.status))
}

/// Has a recorded process take no more accounts of memory, if it is still there.
fn give_up_accounts(pid: u32) {
    if let Ok(Some(running)) = running::of_process(pid)
        && let Err(error) = Control::open(&running).and_then(|control| control.give_up_accounts())
    {
        message(error);
    }
}

/// Starts taking the planned snapshots of a recording; none if the plan is empty.
pub fn begin_snapshots(plan: Plan, recording: &Path, lead: &Arc<Lead>) -> Option<Snapshots> {
    if plan.is_empty() {
        return None;
    }
    let begun = Snapshots::start(recording, plan, lead.clone(), |error| {
        message(format_args!("{error}; more snapshots may be missing, or not removed"));
    });
    begun.map_err(message).ok()
}

/// A running program and its recording.
struct Started {
    supervisor: Supervisor,
    /// Puts the recorder into static programs, and searches processes that end, if requested.
    helpers: [Option<Helper>; 2],
    recorded: Recorded,
    own: Own,
    /// What prevents recording.
    obstacle: Option<Obstacle>,
}

/// Starts the program and enters its recording. Prints beforehand what will not be recorded. If the
/// start fails, nothing is changed.
fn start(
    options: &RunOptions,
    settings: &Settings,
    program: &Program,
    mut environment: Environment,
    obstacle: Option<Obstacle>,
) -> Result<Started, Error> {
    let refused = |error| cannot_be_run(program, &error);
    let signals = Signals::block().map_err(refused)?;
    let mut held = Held::fork(program).map_err(refused)?;
    let mut supervisor = Supervisor::new(&held, signals, program.words.len());
    let launch = Launch::new(&environment);
    let path = recording(options, program, &launch, &environment, held.own_pid)?;
    let (mut metadata, mut member) = descriptions(options, program, &launch, held.own_pid);
    if let Some(partial) = obstacle.as_ref().filter(|obstacle| obstacle.is_partial()) {
        metadata.in_part = partial.to_string();
        member.in_part = partial.to_string();
    }
    let Entered { seat, number, elsewhere } = enter(&path, options.force, &metadata, &member)?;
    if let Some(host) = elsewhere {
        let (shown, there) = (path.display(), seat.path().display());
        message(format_args!(
            "{shown} is being written on {host}; recording into {there}; `heaptide merge` joins \
             the two"
        ));
    }
    // If this fails, the ends of killed processes are less exact.
    let directory = File::open(seat.path()).ok();
    let images = directory.and_then(|directory| Images::new(&directory, held.own_pid).ok());
    if let Some(images) = images {
        supervisor.note_ends(images);
    }
    settings.apply(&mut environment, seat.path(), held.own_pid);
    let symbols = Arc::new(Symbols::with_directories(options.names.directories.clone()));
    let inserter = settings.recorder().and_then(|library| {
        // Without it, static programs are only counted.
        inserting::start(seat.path(), library, &symbols).ok()
    });
    let is_static = obstacle.as_ref().is_some_and(Obstacle::is_static);
    let inserted = settings.recorder().filter(|_| is_static);
    let inserted =
        inserted.map(|library| Insertion::begin(Executor::process(held.pid), library, &symbols));
    if let Some(obstacle) = obstacle.as_ref().filter(|_| inserted.is_none()) {
        message(obstacle.announcement());
    }
    if let Err(error) = held.release(&environment.finish()) {
        if let Seat::Later(recorded) = seat {
            withdraw(&recorded, number);
        }
        return Err(refused(error));
    }
    let obstacle = match inserted.map(|inserted| inserted.and_then(Insertion::finish)) {
        None => obstacle,
        Some(Ok(())) => None,
        Some(Err(why)) => {
            let obstacle = obstacle.map(|obstacle| obstacle.not_inserted(why));
            obstacle.iter().for_each(|obstacle| message(obstacle.announcement()));
            obstacle
        }
    };
    let recorded = seat.keep();
    let searcher = options.retain.then(|| search_at_end(recorded.path()));
    let searcher = searcher.and_then(|started| {
        let failed = |error| message(format_args!("cannot search processes that end: {error}"));
        started.map_err(failed).ok()
    });
    let own = Own { metadata, member, number };
    Ok(Started { supervisor, helpers: [inserter, searcher], recorded, own, obstacle })
}

/// Returns the path of the recording.
///
/// Errors: the pattern cannot be expanded.
fn recording(
    options: &RunOptions,
    program: &Program,
    launch: &Launch,
    environment: &Environment,
    pid: u32,
) -> Result<PathBuf, Error> {
    let name = program.words.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let Some(pattern) = &options.output else {
        return Ok(PathBuf::from(format!("heaptide-{}-{pid}.heaptide", name.to_string_lossy())));
    };
    let (host, rank) = (&*launch.host, launch.rank);
    expand(pattern, &Names { pid, host, rank, program: name, environment })
}

/// Returns what `recording.json` and the command's own file in the recording store about the
/// program.
fn descriptions(
    options: &RunOptions,
    program: &Program,
    launch: &Launch,
    root_pid: u32,
) -> (Metadata, Member) {
    let command: Vec<String> =
        program.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let member = Member {
        root_pid,
        started_realtime_ns: u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX),
        rank: launch.rank,
        command: command.clone(),
        ..Member::default()
    };
    let metadata = Metadata {
        version: metadata::VERSION,
        heaptide: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        root_pid,
        // The default name contains the pid, so nothing can join.
        launch: options.output.as_ref().and_then(|_| launch.metadata()),
        ..Metadata::default()
    };
    (metadata, member)
}

/// Returns the exit status of the program, as a shell reports it.
fn exit_status(status: ExitStatus) -> u8 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8
}
