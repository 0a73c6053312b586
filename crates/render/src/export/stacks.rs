//! Export of all stacks with exact values of all metrics, function by function with file and line,
//! for reading and for grep and awk.
//!
//! Threads, scopes and labels are not included: a stack is the sum over them.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptide_analysis::model::{Frame, Measure, Process, Site, StackId, Sum};
use heaptide_analysis::views::highest::{Bytes, Highest, Live, live_requested_of_stacks};

use crate::shared::command_line::command_line;
use crate::shared::names::printable;
use crate::shared::quantity::counted;

/// Returns the metrics of a stack. Frees attributed to a scope have no stack.
fn metrics() -> impl Iterator<Item = Measure> {
    let of_scopes = [Measure::FreesHere, Measure::FreedHereBytes];
    Measure::of_parts().filter(move |measure| !of_scopes.contains(measure))
}

/// Writes the stacks that have a value of the metric, largest first; with the maximum of live bytes
/// of each if the trace was replayed.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    process: &Process,
    measure: Measure,
    highest: Option<&Highest>,
) -> io::Result<()> {
    let measure = measure.of_sites();
    let sites = &process.tables.sites;
    let mut order: Vec<u32> = (0..sites.len() as u32).collect();
    order.sort_by_key(|&index| sites[index as usize].stack);
    let sum = |of_stack: &[u32]| Sum::over(of_stack.iter().map(|&index| &sites[index as usize]));
    let site = |index: u32| -> &Site { &sites[index as usize] };
    // Sums are computed twice, because holding all of them would take more memory than the sites.
    let by_stack = order.chunk_by(|&a, &b| site(a).stack == site(b).stack);
    let mut stacks: Vec<(u64, &[u32])> =
        by_stack.map(|of_stack| (measure.of(&sum(of_stack)), of_stack)).collect();
    stacks.retain(|(value, _)| *value > 0);
    stacks.sort_by_key(|(value, _)| Reverse(*value));
    let (command, who) = (command_line(process, usize::MAX), process.who());
    let count = counted(stacks.len() as u64, "stack");
    writeln!(out, "# {command} ({who}): {count} with {}, most first", measure.name())?;
    let live_requested = live_requested_of_stacks(process);
    for (_, of_stack) in stacks {
        let (sums, stack) = (sum(of_stack), site(of_stack[0]).stack);
        write!(out, "\nstack")?;
        for metric in metrics() {
            write!(out, " {}={}", metric.name(), metric.of(&sums))?;
        }
        let live = highest.and_then(|of| of.stacks.get(stack.0 as usize));
        let by_counters = live_requested[stack.0 as usize];
        if let Some(n) = by_counters.or_else(|| live?.requested_of(sums.live_bytes)) {
            write!(out, " live_requested_bytes={n}")?;
        }
        if let Some(Live { highest: Some(Bytes { usable, requested }), .. }) = live {
            write!(out, " max_live_bytes={usable} max_live_requested_bytes={requested}")?;
        }
        writeln!(out)?;
        frames(out, process, stack)?;
    }
    Ok(())
}

/// Writes the functions of a stack, innermost first.
fn frames(out: &mut dyn Write, process: &Process, stack: StackId) -> io::Result<()> {
    if stack == StackId(0) {
        return writeln!(out, "(no stack)");
    }
    for (number, id) in process.frames_of(stack).enumerate() {
        let Frame { file, line, module, .. } = &process.tables.frames[id.0 as usize];
        write!(out, "#{number} {}", printable(&process.label(id)))?;
        if let Some(file) = file {
            write!(out, " at {}", printable(file))?;
            line.map_or(Ok(()), |line| write!(out, ":{line}"))?;
        }
        if let Some(module) = module {
            let path = &process.tables.modules[module.0 as usize].path;
            write!(out, " from {}", printable(path))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
