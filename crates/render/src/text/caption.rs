//! The first lines of a page: its process, and which part of the recording it covers.

use std::io::{self, Write};

use heaptide_analysis::model::Process;

use crate::shared::command_line::command_line;
use crate::shared::heading::sampling_says;
use crate::shared::names::printable;
use crate::text::screen::{Screen, Style};

/// Writes the first lines of a table: its process, and which part of the recording it covers.
pub(crate) fn caption(out: &mut Screen, process: &Process) -> io::Result<()> {
    let command = command_line(process, out.fit(80));
    writeln!(out, "{} ({})", Style::Heading.of(command), process.who())?;
    figures(out, process)
}

/// Writes which part of the recording the counts cover, unless they cover all of it, and whether
/// they are estimates.
pub(crate) fn figures(out: &mut Screen, process: &Process) -> io::Result<()> {
    if let Some(part) = &process.completeness.part {
        writeln!(out, "  counts   {}", printable(part))?;
    }
    if let Some(memory) = &process.completeness.memory {
        writeln!(out, "  memory   {memory}")?;
    }
    match sampling_says(process) {
        Some(says) => writeln!(out, "  sampled  {says}"),
        None => Ok(()),
    }
}
