//! `heaptide memory`: what the resident memory of a process consists of.

use clap::Args;
use heaptide_analysis::model::{End, Measure, Process, Recording};
use heaptide_analysis::recording::fresh_account;
use heaptide_analysis::recording::running::{self, Running};
use heaptide_analysis::views::memory::{At, Memory};
use heaptide_command::error::Error;
use heaptide_command::message::message;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::selection::{Selection, Source};
use heaptide_command::{output, source, target, values};
use heaptide_render::shared::accounts::absence;
use heaptide_render::{json, text};

use crate::options::Format;

/// `heaptide memory`.
#[derive(Args, Debug)]
#[command(after_help = MEMORY_EXAMPLE)]
pub struct MemoryOptions {
    #[command(flatten)]
    pub source: Source,
    /// Show the account nearest to peak usage, the last one, or the one nearest to a time [default:
    /// peak, or end (now) for a running process]
    #[arg(long, value_name = "peak|end|TIME", value_parser = at)]
    pub at: Option<At>,
    /// Output format: text for reading, json for scripts
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,
    #[command(flatten)]
    pub selection: Selection,
}

const MEMORY_EXAMPLE: &str = "\
Example:
  heaptide memory app.heaptide
  heaptide memory app.heaptide --at end
  heaptide memory app.heaptide --at 1.5s --format json";

/// Parses the time of an account.
fn at(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::End),
        time => match values::time(time) {
            Ok(time) => Ok(At::Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))),
            Err(expected) => Err(format!("{expected}; or peak, or end")),
        },
    }
}

/// Prints the account.
pub fn memory(options: &MemoryOptions) -> Outcome {
    if options.selection.filters() {
        let reason = "filters do not apply to resident memory, which is measured for the whole \
                      process";
        return Err(Error::new(reason.to_owned()).into());
    }
    let source = target::resolve(&options.source)?;
    let mut selected = source::open_each(&source, &options.selection)?;
    if source.snapshot.is_none() {
        look_at_running(&mut selected.recording);
    }
    let at = options.at.unwrap_or(At::Usual);
    if options.format == Format::Json {
        let (recording, pid) = (&selected.recording, selected.pid);
        output::print(|out| json::memory::write(out, recording, pid, at))?;
        return Ok(());
    }
    let process = selected.largest(Measure::PeakBytes)?;
    let path = selected.recording.path.display();
    let shown = Memory::of(process, at).ok_or_else(|| nothing(path, process))?;
    output::print_page(|out| text::memory::write(out, process, &shown))?;
    Ok(())
}

/// Adds a new account to each running process. If that fails, its last stored one is shown, and the
/// reason is printed.
fn look_at_running(recording: &mut Recording) {
    let runs = |process: &Process| process.lifetime.end == End::Running;
    if !recording.processes.iter().any(runs) {
        return;
    }
    let running = running::of_recording(&recording.path).unwrap_or_default();
    for process in recording.processes.iter_mut().filter(|process| runs(process)) {
        let name = process.identity.file.file_name();
        let is_its = |running: &&Running| running.file.file_name() == name;
        let fresh = match running.iter().find(is_its) {
            Some(running) => fresh_account::take(process, running).map_err(|e| e.to_string()),
            None => Err("its pid in this namespace is unknown".to_owned()),
        };
        match fresh {
            Ok(account) => process.time.accounts.push(account),
            Err(reason) => message(format_args!(
                "cannot inspect {} now ({reason}); using its last recorded account",
                process.who()
            )),
        }
    }
}

/// Returns the negative result for a process without accounts.
fn nothing(path: std::path::Display, process: &Process) -> Stop {
    let (who, why) = (process.who(), absence(process));
    Stop::negative(format_args!("{path}: no account of resident memory for {who}: {why}"))
}
