//! The summary at the end of `heaptide run`: five lines, and further lines for a trace and for
//! gaps.

use std::path::Path;

use heaptide_analysis::model::{End, Measure, Mode, Process, PythonObjects, Recording, ScopeId};
use heaptide_analysis::views::aggregate::{Group, Key, Order, by_scope, top};

use crate::shared::command_line::command_line;
use crate::shared::frames;
use crate::shared::heading::{ended, removed_says, sampling_says, trace_says};
use crate::shared::hotspots::Charges;
use crate::shared::mapped::mapped_summary;
use crate::shared::names::printable;
use crate::shared::quantity::{bytes, counted, duration, percent};
use crate::shared::scope_path::scope_path;
use crate::text::missing;

/// The time from the first start to the last end is shown if it exceeds the program's own by more
/// than this fraction.
const SPAN_PART: u64 = 20;

/// Returns five lines about the started program, or about the process with the highest peak if the
/// started one is not known: what ran and how it ended, what it allocated, its peak and what held
/// it, what is live, and the next command. Further lines follow if another process used more
/// memory, for mappings, for a trace, and for each significant gap.
pub fn summary(recording: &Recording, path: &Path) -> String {
    let Some(largest) = recording.processes.iter().max_by_key(|p| p.totals.peak_bytes) else {
        return nothing(recording, path);
    };
    let process = recording.requested().unwrap_or(largest);
    let t = &process.totals;
    let temporary = percent(t.temporary, t.allocations);
    let mut lines = vec![
        first(recording, process),
        format!(
            "  allocated  {} of {} in all, {temporary} of them temporary",
            counted(t.allocations, "block"),
            bytes(t.requested_bytes)
        ),
        format!(
            "  peak       {} after {}{}",
            bytes(t.peak_bytes),
            duration(process.peak_time_ns),
            holder(process)
        ),
        format!(
            "  {}  {} in {}",
            if matches!(process.lifetime.end, End::Exited(_)) { "at exit  " } else { "at end   " },
            bytes(t.live_bytes),
            counted(t.live_blocks, "block")
        ),
    ];
    lines.extend(mapped_summary(process).map(|(peak, says)| format!("  mapped     {peak} {says}")));
    if !std::ptr::eq(process, largest) {
        let (peak, pid) = (bytes(largest.totals.peak_bytes), largest.identity.pid);
        let command = command_line(largest, 40);
        lines.push(format!("  largest    {peak} by {command}; `--process {pid}` selects it"));
    }
    lines.extend(sampling_says(process).map(|says| format!("  sampled    {says}")));
    lines.extend(trace_says(process).map(|says| format!("  trace      {says}")));
    lines.extend(removed_says(&recording.removed).map(|says| format!("  removed    {says}")));
    lines.extend(missing::lines(recording).iter().map(|what| format!("  missing    {what}")));
    lines.extend(python_says(recording).map(|says| format!("  python     {says}")));
    lines.push(next(path));
    lines.iter().map(|line| format!("heaptide: {}\n", printable(line))).collect()
}

/// Returns how the objects of Python are recorded; none if there are none. Of several processes, the
/// one with the fewest objects counts.
fn python_says(recording: &Recording) -> Option<&'static str> {
    let choices = recording.processes.iter().filter_map(|p| p.completeness.python_objects);
    Some(match choices.max()? {
        PythonObjects::None => return None,
        PythonObjects::Blocks => {
            "objects are blocks; `--python-memory arenas` records Python's arenas instead"
        }
        PythonObjects::TurnedOff => {
            "objects are in arenas, which are mappings (--python-memory arenas)"
        }
        PythonObjects::FreeThreaded => "objects are not recorded: the interpreter is free-threaded",
        PythonObjects::Running => {
            "objects are not recorded: the interpreter ran before the recorder found it"
        }
        PythonObjects::NoMemory => {
            "objects are not recorded: no memory for the recorder's table of their sizes"
        }
    })
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
