//! `heaptide memory`: what the resident memory of a process consists of.

use clap::Args;
use heaptide_analysis::model::{Measure, Process};
use heaptide_analysis::views::memory::{At, Memory};
use heaptide_command::error::Error;
use heaptide_command::outcome::{Outcome, Stop};
use heaptide_command::selection::{Selection, Source};
use heaptide_command::{output, source, values};
use heaptide_render::shared::accounts::absence;
use heaptide_render::{json, text};

use crate::options::Format;

/// `heaptide memory`.
#[derive(Args, Debug)]
#[command(after_help = MEMORY_EXAMPLE)]
pub struct MemoryOptions {
    #[command(flatten)]
    pub source: Source,
    /// Show the account nearest to peak usage, the last one, or the one nearest to a time
    #[arg(long, value_name = "peak|end|TIME", default_value = "peak", value_parser = at)]
    pub at: At,
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

/// Parses a moment.
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
        let reason = "filters do not apply to resident memory, which is of the whole process";
        return Err(Error::new(reason.to_owned()).into());
    }
    let selected = source::open(&options.source, &options.selection)?;
    if options.format == Format::Json {
        let (recording, pid) = (&selected.recording, selected.pid);
        output::print(|out| json::memory::write(out, recording, pid, options.at))?;
        return Ok(());
    }
    let process = selected.largest(Measure::PeakBytes)?;
    let path = selected.recording.path.display();
    let shown = Memory::of(process, options.at).ok_or_else(|| nothing(path, process))?;
    output::print_page(|out| text::memory::write(out, process, &shown))?;
    Ok(())
}

/// There is no account.
fn nothing(path: std::path::Display, process: &Process) -> Stop {
    let (who, why) = (process.who(), absence(process));
    Stop::negative(format_args!("{path}: no account of resident memory of {who}: {why}"))
}
