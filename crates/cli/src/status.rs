//! `heaptide ctl REC status`: what a running program's recorder is set to and has been told.

use heaptide_analysis::snapshot::{self, Snapshot};
use heaptide_format::{
    COMMAND_OFF, CONTROL_FEWER, CONTROL_OFF, CONTROL_PAUSE, CONTROL_THRESHOLD, FileHeader,
};

use crate::control::Control;
use crate::error::Error;
use crate::source;

/// On or off, and by whom.
pub fn on_or_off(header: &FileHeader) -> String {
    let pauses = header.control / CONTROL_PAUSE;
    let mut why = Vec::new();
    if header.command_bits & COMMAND_OFF != 0 {
        why.push("by command".to_owned());
    }
    if header.control & CONTROL_OFF != 0 {
        why.push("by the program".to_owned());
    }
    if pauses > 0 {
        why.push(format!("paused by the program ({pauses} deep)"));
    }
    if why.is_empty() { "on".to_owned() } else { format!("off, {}", why.join(", ")) }
}

/// Which requests get a stack.
fn threshold(header: &FileHeader) -> String {
    let bytes = header.threshold_bytes;
    match header.control {
        control if control & CONTROL_THRESHOLD == 0 => "stacks of all requests".to_owned(),
        control if control & CONTROL_FEWER != 0 => {
            format!("stacks of requests below {bytes} bytes")
        }
        _ => format!("stacks of requests from {bytes} bytes on"),
    }
}

/// Prints it.
pub fn print(control: &Control) -> Result<(), Error> {
    let header = control.header()?;
    let running = control.running();
    let directory = running.file.parent().unwrap_or(std::path::Path::new("."));
    let mut snapshots = snapshot::all(directory)?;
    snapshots.retain(|s| (s.pid, s.image) == (header.pid, header.image));
    source::print(|out| {
        writeln!(out, "pid {} image {}: {}", running.pid, header.image, running.file.display())?;
        writeln!(out, "  recording  {}", on_or_off(&header))?;
        writeln!(out, "  threshold  {}", threshold(&header))?;
        if header.resets > 0 {
            let (resets, at) = (header.resets, seconds(header.reset_time_ns));
            writeln!(out, "  resets     {resets}, the last at {at}")?;
        }
        if header.request != header.answered {
            writeln!(out, "  waiting    a request, for the program's next allocation")?;
        }
        writeln!(out, "  snapshots  {}", snapshots.len())?;
        snapshots.iter().try_for_each(|s| writeln!(out, "    {}", line(s)))
    })
}

/// Number, time and name of a snapshot.
pub fn line(snapshot: &Snapshot) -> String {
    let number = snapshot.number;
    match &snapshot.damaged {
        Some(why) => format!("{number:>4}  unreadable: {why}"),
        None => format!("{number:>4}  {:>12}  {}", seconds(snapshot.time_ns), snapshot.name),
    }
}

/// A time from the start of a recording.
fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}
