//! `heaptide export`: a recording in the format of another tool.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use heaptide_analysis::model::{Process, Recording};
use heaptide_render::flamegraph::{self, Boxes};
use heaptide_render::json;

use crate::NO;
use crate::error::Error;
use crate::options::{ExportFormat, ExportOptions};
use crate::output;
use crate::source;

/// Writes the file, or to standard output.
pub fn export(options: &ExportOptions) -> Result<ExitCode, Error> {
    check(options)?;
    let apart = match options.scopes || options.scopes_and_stacks {
        true => options.origins.in_scopes(),
        false => options.origins.in_stacks(),
    };
    let recording = source::open_apart(&options.source, &options.selection, apart)?;
    if !source::has(&recording, options.selection.pid()) {
        return Ok(ExitCode::from(NO));
    }
    let process = source::largest(&recording, options.selection.pid(), options.measure);
    let Some(process) = process.filter(|process| has_what_it_takes(options, &recording, process))
    else {
        return Ok(ExitCode::from(NO));
    };
    let write = |out: &mut dyn Write| write(out, options, &recording, process);
    match &options.output {
        Some(path) => output::write(path, options.force, write)?,
        None => source::print(write)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What can be said before the recording is read.
fn check(options: &ExportOptions) -> Result<(), Error> {
    use ExportFormat::{Dot, Flamegraph, Folded, Pprof, Speedscope};
    let format = options.format;
    let refuse = |what: &str| Err(Error::new(format!("--format {}: {what}", name(format))));
    if options.annotate && format != Folded {
        return refuse("--annotate is for --format folded");
    }
    if options.per_lane && ![Dot, Folded, Flamegraph, Speedscope].contains(&format) {
        return refuse("--per-lane is for dot, folded, flamegraph and speedscope");
    }
    match &options.output {
        Some(path) => output::may_write(path, options.force),
        None if format == Pprof && io::stdout().is_terminal() => {
            refuse("is not for a terminal; -o FILE writes it to a file")
        }
        None => Ok(()),
    }
}

/// Whether the process has stacks, scopes and a value of the measure, as far as the format needs
/// them; if not, says what is missing.
fn has_what_it_takes(options: &ExportOptions, recording: &Recording, process: &Process) -> bool {
    use ExportFormat::{Callgrind, Dot, Firefox, Flamegraph, Folded, Pprof, Speedscope};
    let format = options.format;
    let of_stacks = [Callgrind, Dot, Firefox, Flamegraph, Folded, Pprof, Speedscope];
    let scopes = options.scopes || options.scopes_and_stacks;
    if of_stacks.contains(&format) {
        let fits = match scopes {
            true => source::has_scopes(recording, process),
            false => source::has_stacks(recording, process),
        };
        if !fits {
            return false;
        }
    }
    let of_one_measure = [Dot, Flamegraph, Folded].contains(&format);
    let measure = options.measure.of_sites();
    if of_one_measure && measure.of(&process.totals) == 0 {
        let (path, who, name) = (recording.path.display(), process.who(), measure.name());
        eprintln!("heaptide: {path}: {name} of {who} is 0: nothing to export");
        return false;
    }
    true
}

fn write(
    out: &mut dyn Write,
    options: &ExportOptions,
    recording: &Recording,
    process: &Process,
) -> io::Result<()> {
    let measure = options.measure;
    match options.format {
        ExportFormat::Flamegraph => flamegraph::write(out, process, measure, boxes(options)),
        ExportFormat::Json => {
            let choice =
                json::Choice { sort: measure, top: None, process: options.selection.pid() };
            json::write(out, recording, &choice)
        }
        other => Err(io::Error::other(format!("--format {} is not built yet", name(other)))),
    }
}

/// What stands in the place of functions.
fn boxes(options: &ExportOptions) -> Boxes {
    match (options.scopes, options.scopes_and_stacks) {
        (true, _) => Boxes::Scopes,
        (_, true) => Boxes::ScopesAndStacks,
        _ => Boxes::Stacks,
    }
}

/// The format as it is given in options.
fn name(format: ExportFormat) -> String {
    let value = format.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}
