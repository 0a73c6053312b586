//! `heaptide retain`: which live blocks of a running program are lost, and what keeps the others.

use std::path::PathBuf;

use clap::Args;
use heaptide_analysis::model::{Mode, Process, PythonObjects, Site, SiteRow};
use heaptide_analysis::recording::live_tables::LiveTables;
use heaptide_analysis::recording::running::Running;
use heaptide_attach::picture::{self, Taken};
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::output;
use heaptide_control::targets;
use heaptide_render::text::retained::View;
use heaptide_render::{json, text};
use heaptide_retain::{Facts, retained};
use nix::unistd::Pid;

use crate::options::Format;

/// `heaptide retain`.
#[derive(Args, Debug)]
#[command(after_help = RETAIN_EXAMPLE)]
pub struct RetainOptions {
    /// Process id of a recorded program that is running, or its recording
    #[arg(value_name = "PID|REC")]
    pub target: PathBuf,
    /// Only this process of the recording
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
    /// Show N rows of each table [default: 10]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Output format: text for reading, json with all rows
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
}

const RETAIN_EXAMPLE: &str = "\
Example:
  heaptide retain $(pidof server)
  heaptide retain --format json server.heaptide > server.json

The program is stopped for a moment, in which it is copied (fork); the copy is read. Words that can
be pointers are taken for pointers, so a block may only seem to be kept. See docs/retain.md.";

/// Shows what is lost and what is kept.
pub fn retain(options: &RetainOptions) -> Outcome {
    let running = one(options)?;
    let mut tables = LiveTables::new(&running.file);
    let before = read(&mut tables)?;
    check(&before, &running)?;
    let has_python = before.completeness.python_objects == Some(PythonObjects::Blocks);
    let facts = facts(&before);
    let pid = Pid::from_raw(i32::try_from(running.pid).unwrap_or(i32::MAX));
    let taken = picture::take(pid, move |picture| retained(pid, picture, has_python, facts));
    let Taken { result, pause } = taken.map_err(Error::library)?;
    // Again, because sites may be newer.
    let process = read(&mut tables)?;
    let stopped_ns = u64::try_from(pause.total.as_nanos()).unwrap_or(u64::MAX);
    if options.format == Format::Json {
        output::print(|out| {
            json::retained::write(out, &running.file, &process, &result, stopped_ns)
        })?;
        return Ok(());
    }
    let view = View { top: options.top, stopped_ns };
    output::print_page(|out| text::retained::write(out, &process, &result, view))?;
    Ok(())
}

/// Returns the running process that the options refer to.
fn one(options: &RetainOptions) -> Result<Running, Stop> {
    let found = targets::find(&options.target, options.process).map_err(Error::library)?;
    match &found[..] {
        [one] => Ok(one.clone()),
        several => {
            let pids: Vec<String> = several.iter().map(|one| one.pid.to_string()).collect();
            let (target, pids) = (options.target.display(), pids.join(", "));
            Err(Error::new(format!(
                "{target}: several processes are running; choose one of {pids} with --process"
            ))
            .into())
        }
    }
}

fn read(tables: &mut LiveTables) -> Result<Process, Error> {
    tables.read(&mut |_, _| {}).map_err(Error::library)
}

/// Checks whether all live blocks are known.
fn check(process: &Process, running: &Running) -> Result<(), Error> {
    let why = match process.mode {
        _ if process.sampling.is_some() => "only some blocks are known in mode sampled",
        Mode::Counters => "no blocks are known in mode counters",
        Mode::Scopes | Mode::Stacks => return Ok(()),
    };
    Err(Error::new(format!("pid {}: {why}; record with --mode stacks, the default", running.pid)))
}

/// Returns what is known about each site, by number.
fn facts(process: &Process) -> impl Fn(u32) -> Facts + Send + use<> {
    let of_site = |site: &Site| {
        let measures = &site.measures;
        Facts {
            mean_bytes: measures.usable_bytes.checked_div(measures.allocations).unwrap_or(0),
            largest_bytes: measures.largest_bytes,
        }
    };
    let known: Vec<Facts> = process.tables.sites.iter().map(of_site).collect();
    let rows = process.time.site_rows.clone();
    move |site| match rows.as_ref().map(|rows| rows.row(site)) {
        Some(SiteRow::At(row)) => known.get(row as usize).copied().unwrap_or_default(),
        _ => Facts::default(),
    }
}
