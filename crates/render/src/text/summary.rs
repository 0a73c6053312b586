//! The summary at the end of `heaptide run`: what holds the memory, five lines, and further lines
//! for the choice among several processes, for a trace and for gaps.

use std::path::Path;

use heaptide_analysis::model::{End, OutOfMemory, Process, PythonObjects, Recording};

use crate::shared::accounts;
use crate::shared::answer::Answer;
use crate::shared::command_line::command_line;
use crate::shared::device::device_summary;
use crate::shared::heading::{ended, is_of_fault, removed_says, sampling_says, trace_says};
use crate::shared::mapped::mapped_summary;
use crate::shared::names::printable;
use crate::shared::quantity::{bytes, count, counted, duration, percent};
use crate::shared::runtime::runtime_says;
use crate::shared::sentence::is_peak_close;
use crate::text::missing;

/// The time from the first start to the last end is shown if it exceeds the program's own by more
/// than this fraction.
const SPAN_PART: u64 = 20;

/// What the summary needs of a recording in which no images are joined.
#[derive(Debug, Default)]
pub struct Separate {
    /// How and when the started program ended, as a predicate.
    pub ended: Option<String>,
    /// Which other images were killed, and what the kernel killed.
    pub killed: Option<String>,
}

impl Separate {
    /// Reads a recording in which no images are joined.
    pub fn of(recording: &Recording) -> Separate {
        Separate { ended: recording.requested().map(ended), killed: killed(recording) }
    }
}

/// Returns sentences about the memory of the subject, or if none was chosen of the started
/// program, and lines: what was started and how it ended; what the subject allocated, its peak,
/// what is live; and the next command. Further lines state the choice among several processes, and
/// there are lines for mappings, for resident memory, for what was killed, for a trace, and for
/// each significant gap.
pub fn summary(recording: &Recording, separate: &Separate, path: &Path) -> String {
    let Some(largest) = recording.processes.iter().max_by_key(|p| p.totals.peak_bytes) else {
        return nothing(recording, path);
    };
    let requested = recording.requested();
    let process = recording.subject_process().or(requested).unwrap_or(largest);
    let Answer { sentence, subject, .. } = Answer::of(recording, process);
    let t = &process.totals;
    let temporary = match t.allocations {
        0 => String::new(),
        all => format!(", {} of them temporary", percent(t.temporary, all)),
    };
    let mut lines: Vec<String> = sentence.into_iter().collect();
    lines.push(first(recording, requested.unwrap_or(process), subject.as_deref(), separate));
    lines.extend(subject.as_ref().map(|says| format!("  subject    {says}")));
    lines.extend([
        format!(
            "  allocated  {} of {} in all{temporary}",
            counted(t.allocations, "block"),
            bytes(t.requested_bytes)
        ),
        peak(process),
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
    let device = device_summary(process);
    lines.extend(device.map(|(peak, says)| format!("  device     {peak} {says}")));
    let resident = accounts::summary(process);
    lines.extend(resident.map(|(size, note)| format!("  resident   {} {note}", bytes(size))));
    if subject.is_none() && !std::ptr::eq(process, largest) {
        let (peak, pid) = (bytes(largest.totals.peak_bytes), largest.identity.pid);
        let command = command_line(largest, 40);
        lines.push(format!("  largest    {peak} by {command}; `--process {pid}` selects it"));
    }
    let killed = separate.killed.as_ref();
    lines.extend(killed.map(|says| format!("  killed     {says}")));
    lines.extend(sampling_says(process).map(|says| format!("  sampled    {says}")));
    lines.extend(trace_says(process).map(|says| format!("  trace      {says}")));
    lines.extend(removed_says(&recording.removed).map(|says| format!("  removed    {says}")));
    lines.extend(missing::lines(recording).iter().map(|what| format!("  missing    {what}")));
    lines.extend(python_says(recording).map(|says| format!("  python     {says}")));
    lines.push(next(path));
    lines.iter().map(|line| format!("heaptide: {}\n", printable(line))).collect()
}

/// Returns how the objects of Python are recorded; none if there are none. Of several processes,
/// the one with the fewest objects counts.
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
            "objects in arenas are not recorded: the interpreter ran with other allocators"
        }
        PythonObjects::NoMemory => {
            "objects are not recorded: no memory for the recorder's table of their sizes"
        }
    })
}

/// Returns the command, how it ended, and which other processes there are. A program that starts
/// others can end, or become another one by exec, long before they end.
fn first(
    recording: &Recording,
    process: &Process,
    subject: Option<&str>,
    separate: &Separate,
) -> String {
    let others = match recording.processes.len() - 1 {
        _ if subject.is_some() => String::new(),
        0 => String::new(),
        1 => "; 1 other process image is in the report".to_owned(),
        n => format!("; {n} other process images are in the report"),
    };
    let (span_ns, own_ns) = (recording.span_ns(), process.lifetime.duration_ns);
    let is_longer = span_ns - span_ns / SPAN_PART > own_ns;
    // Of joined images, the command is the first.
    let of_command = separate.ended.clone().filter(|_| process.identity.images > 1);
    let is_running = |process: &&Process| process.lifetime.end == End::Running;
    let running = recording.processes.iter().filter(is_running).count() as u64;
    let span = match (running, is_longer) {
        (0, true) => format!(", {} for all", duration(span_ns)),
        (1.., _) if process.lifetime.end != End::Running || of_command.is_some() => {
            format!("; {} still running", counted(running, "process image"))
        }
        _ => String::new(),
    };
    let ended = of_command.unwrap_or_else(|| ended(process));
    format!("{} {ended}{span}{others}", command_line(process, 60))
}

const SIGKILL: i32 = 9;
/// The most killed images in the summary, of which the others are only counted.
const KILLED: usize = 2;

/// Returns which images other than the started one were killed, those with most live bytes first,
/// and whether the kernel killed processes because memory ran out. In the recording no images are
/// joined.
fn killed(recording: &Recording) -> Option<String> {
    let started = recording.requested();
    let is_killed = |process: &&Process| {
        let is_started = started.is_some_and(|started| std::ptr::eq(*process, started));
        !is_started && matches!(process.lifetime.end, End::Signaled(signal) if is_of_fault(signal))
    };
    let mut killed: Vec<&Process> = recording.processes.iter().filter(is_killed).collect();
    killed.sort_by_key(|process| std::cmp::Reverse(process.totals.live_bytes));
    let mut says: Vec<String> = killed
        .iter()
        .take(KILLED)
        .map(|process| {
            let (command, who) = (command_line(process, 40), process.who());
            let live = bytes(process.totals.live_bytes);
            format!("{command} ({who}), {}, with {live} live", ended(process))
        })
        .collect();
    let more = killed.len().saturating_sub(KILLED) as u64;
    says.extend((more > 0).then(|| counted(more, "other process image")));
    let is_by_kill = |process: &Process| process.lifetime.end == End::Signaled(SIGKILL);
    let out_of_memory = recording.out_of_memory;
    let out_of_memory = out_of_memory.filter(|_| recording.processes.iter().any(is_by_kill));
    says.extend(out_of_memory.map(|OutOfMemory { processes, in_group }| {
        let place = if in_group { "control group" } else { "machine" };
        let killed = match processes {
            1 => "1 process".to_owned(),
            all => format!("{} processes", count(all)),
        };
        format!("the kernel killed {killed} of this {place} because memory ran out")
    }));
    (!says.is_empty()).then(|| says.join("; "))
}

/// Returns the peak: for heap and mappings with that of each kind, and for several images the
/// highest sum at one time with its bound.
fn peak(process: &Process) -> String {
    let (size, after) = (bytes(process.totals.peak_bytes), duration(process.peak_time_ns));
    let of = match (&process.time.highest, &process.completeness.memory) {
        (Some(highest), _) => {
            let live = bytes(highest.live_bytes);
            format!("{live} at one time by samples, at most {size}, after {after}")
        }
        (None, Some(memory)) => {
            let bound = match (process.completeness.peak_is_least, is_peak_close(process)) {
                (true, true) => "at least ",
                (false, false) => "at most ",
                (false, true) | (true, false) => "",
            };
            format!("{bound}{size}, {memory}")
        }
        (None, None) if process.identity.images > 1 => format!("at most {size} after {after}"),
        (None, None) => format!("{size} after {after}"),
    };
    format!("  peak       {of}")
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
