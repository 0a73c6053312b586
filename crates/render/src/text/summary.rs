//! The summary at the end of `heaptide run`: five lines, and further lines for the choice among
//! several processes, for a trace and for gaps.

use std::path::Path;

use heaptide_analysis::model::{End, Measure, Mode, Process, Recording, ScopeId};
use heaptide_analysis::views::aggregate::{Group, Key, Order, by_scope, top};

use crate::shared::command_line::command_line;
use crate::shared::frames;
use crate::shared::heading::{ended, removed_says, sampling_says, trace_says};
use crate::shared::hotspots::Charges;
use crate::shared::mapped::mapped_summary;
use crate::shared::names::printable;
use crate::shared::quantity::{bytes, counted, duration, percent};
use crate::shared::scope_path::scope_path;
use crate::shared::subject::subject_says;
use crate::text::missing;

/// The time from the first start to the last end is shown if it exceeds the program's own by more
/// than this fraction.
const SPAN_PART: u64 = 20;

/// Returns five lines: what was started and how it ended; of the subject, or if none was chosen of
/// the started program, what it allocated, its peak and what held it, what is live; and the next
/// command. Further lines state the choice among several processes, and there is one for mappings,
/// for a trace, and for each significant gap.
pub fn summary(recording: &Recording, path: &Path) -> String {
    let Some(largest) = recording.processes.iter().max_by_key(|p| p.totals.peak_bytes) else {
        return nothing(recording, path);
    };
    let requested = recording.requested();
    let process = recording.subject_process().or(requested).unwrap_or(largest);
    let subject = subject_says(recording);
    let t = &process.totals;
    let temporary = percent(t.temporary, t.allocations);
    let mut lines = vec![first(recording, requested.unwrap_or(process))];
    lines.extend(subject.as_ref().map(|says| format!("  subject    {says}")));
    lines.extend([
        format!(
            "  allocated  {} of {} in all, {temporary} of them temporary",
            counted(t.allocations, "block"),
            bytes(t.requested_bytes)
        ),
        format!(
            "  peak       {} after {}{}",
            peak(process),
            duration(process.peak_time_ns),
            holder(process)
        ),
        format!(
            "  {}  {} in {}",
            if matches!(process.lifetime.end, End::Exited(_)) { "at exit  " } else { "at end   " },
            bytes(t.live_bytes),
            counted(t.live_blocks, "block")
        ),
    ]);
    lines.extend(mapped_summary(process).map(|(peak, says)| format!("  mapped     {peak} {says}")));
    if subject.is_none() && !std::ptr::eq(process, largest) {
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
        _ if subject_says(recording).is_some() => String::new(),
        0 => String::new(),
        1 => "; 1 other process image is in the report".to_owned(),
        n => format!("; {n} other process images are in the report"),
    };
    let (span_ns, own_ns) = (recording.span_ns(), process.lifetime.duration_ns);
    let is_longer = span_ns - span_ns / SPAN_PART > own_ns;
    let span = if is_longer { format!(", {} for all", duration(span_ns)) } else { String::new() };
    format!("{} {}{span}{others}", command_line(process, 60), ended(process))
}

/// Returns the peak, and for several images the highest sum at one time with its bound.
fn peak(process: &Process) -> String {
    let sum = bytes(process.totals.peak_bytes);
    match &process.time.highest {
        Some(highest) => {
            format!("{} at one time by samples, at most {sum},", bytes(highest.live_bytes))
        }
        None if process.identity.images > 1 => format!("at most {sum}"),
        None => sum,
    }
}

fn holder(process: &Process) -> String {
    if process.mode == Mode::Scopes {
        return scope_holder(process);
    }
    let found = Charges::of(process).hotspots(Measure::AtPeakBytes);
    let Some(frame) = found.first().and_then(|h| h.frame) else {
        return String::new();
    };
    let frame = &process.tables.frames[frame.0 as usize];
    let share = percent(found[0].measures.at_peak_bytes, process.totals.at_peak_bytes);
    let name = match frame.function {
        Some(_) => frames::label(process, frame, 50),
        None => frames::module_shown(process, frame).into_owned(),
    };
    format!(", {share} of it by {name}")
}

/// Returns the scope that held most at peak.
fn scope_holder(process: &Process) -> String {
    let groups = by_scope(process);
    let Some(Group { key: Key::Scope(id), own, .. }) =
        top(groups, Measure::AtPeakBytes, Order::Own, 1).first().copied()
    else {
        return String::new();
    };
    let share = percent(own.at_peak_bytes, process.totals.at_peak_bytes);
    match id {
        ScopeId(0) => format!(", {share} of it in no scope"),
        id => format!(", {share} of it in {}", scope_path(process, id, 50)),
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
