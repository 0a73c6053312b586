//! The summary at the end of `heaptide run`: what holds the memory, five lines, and further lines
//! for a trace and for gaps.

use std::borrow::Cow;
use std::path::Path;

use heaptide_analysis::model::{End, Process, Recording};
use heaptide_analysis::selection::kind::MemoryKind;

use crate::shared::accounts;
use crate::shared::command_line::command_line;
use crate::shared::heading::{ended, removed_says, sampling_says, trace_says};
use crate::shared::mapped::mapped_summary;
use crate::shared::names::printable;
use crate::shared::quantity::{bytes, counted, duration, percent};
use crate::shared::runtime::runtime_says;
use crate::shared::sentence::sentence;
use crate::text::missing;

/// The time from the first start to the last end is shown if it exceeds the program's own by more
/// than this fraction.
const SPAN_PART: u64 = 20;

/// Returns sentences about the memory of the started program, or of the process with the highest
/// peak if the started one is not known, and five lines: what ran and how it ended, what it
/// allocated, its peak, what is live, and the next command. Further lines follow if another process
/// used more memory, for mappings, for a trace, and for each significant gap.
pub fn summary(recording: &Recording, path: &Path) -> String {
    let Some(largest) = recording.processes.iter().max_by_key(|p| p.totals.peak_bytes) else {
        return nothing(recording, path);
    };
    let process = recording.requested().unwrap_or(largest);
    let whole = with_mappings(process);
    let t = &process.totals;
    let temporary = percent(t.temporary, t.allocations);
    let mut lines: Vec<String> = sentence(&whole).into_iter().collect();
    lines.extend([
        first(recording, process),
        format!(
            "  allocated  {} of {} in all, {temporary} of them temporary",
            counted(t.allocations, "block"),
            bytes(t.requested_bytes)
        ),
        peak(&whole),
        format!(
            "  {}  {} in {}",
            if matches!(process.lifetime.end, End::Exited(_)) { "at exit  " } else { "at end   " },
            bytes(t.live_bytes),
            counted(t.live_blocks, "block")
        ),
    ]);
    // Address space that a runtime reserves would mislead.
    match runtime_says(process) {
        Some(says) => lines.push(format!("  runtime    {says}")),
        None => lines.extend(
            mapped_summary(process).map(|(peak, says)| format!("  mapped     {peak} {says}")),
        ),
    }
    let resident = accounts::summary(process);
    lines.extend(resident.map(|(size, note)| format!("  resident   {} {note}", bytes(size))));
    if !std::ptr::eq(process, largest) {
        let (peak, pid) = (bytes(largest.totals.peak_bytes), largest.identity.pid);
        let command = command_line(largest, 40);
        lines.push(format!("  largest    {peak} by {command}; `--process {pid}` selects it"));
    }
    lines.extend(sampling_says(process).map(|says| format!("  sampled    {says}")));
    lines.extend(trace_says(process).map(|says| format!("  trace      {says}")));
    lines.extend(removed_says(&recording.removed).map(|says| format!("  removed    {says}")));
    lines.extend(missing::lines(recording).iter().map(|what| format!("  missing    {what}")));
    lines.push(next(path));
    lines.iter().map(|line| format!("heaptide: {}\n", printable(line))).collect()
}

/// Returns the command, how it ended, and which other processes there are. A program that starts
/// others can end, or become another one by exec, long before they end.
fn first(recording: &Recording, process: &Process) -> String {
    let others = match recording.processes.len() - 1 {
        0 => String::new(),
        1 => "; 1 other process image is in the report".to_owned(),
        n => format!("; {n} other process images are in the report"),
    };
    let (span_ns, own_ns) = (recording.span_ns(), process.lifetime.duration_ns);
    let is_longer = !others.is_empty() && span_ns - span_ns / SPAN_PART > own_ns;
    let span = if is_longer { format!(", {} for all", duration(span_ns)) } else { String::new() };
    format!("{} {}{span}{others}", command_line(process, 60), ended(process))
}

/// Returns the process with the mappings of the program added to the heap.
fn with_mappings(process: &Process) -> Cow<'_, Process> {
    if process.program_mappings().is_none() || process.has_trace() {
        return Cow::Borrowed(process);
    }
    let mut whole = process.clone();
    whole.select_kind(MemoryKind::Program);
    Cow::Owned(whole)
}

fn peak(process: &Process) -> String {
    let size = bytes(process.totals.peak_bytes);
    match &process.completeness.memory {
        Some(memory) => format!("  peak       {size} {memory}"),
        None => format!("  peak       {size} after {}", duration(process.peak_time_ns)),
    }
}

fn next(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "_-+./=:,@%".contains(c);
    if path.chars().all(plain) {
        format!("  next       heaptide report {path}")
    } else {
        format!("  next       heaptide report '{}'", path.replace('\'', r"'\''"))
    }
}

fn nothing(recording: &Recording, path: &Path) -> String {
    let why = match &*recording.unrecorded {
        "" => "the recorder was not loaded, or the program ended before its first allocation",
        why => why,
    };
    let line = format!("{}: nothing was recorded: {why}", path.display());
    format!("heaptide: {}\n", printable(&line))
}
