//! The state of a running recording as text: settings, requests, snapshots, marks.

use std::fmt::Write;
use std::path::Path;

use heaptide_analysis::recording::snapshot::{self, Snapshot};
use heaptide_analysis::text::{of_path, printable};
use heaptide_analysis::trace::file::path_of;
use heaptide_format::{
    CONTROL_FEWER, CONTROL_OFF, CONTROL_PAUSE, CONTROL_THRESHOLD, FileHeader, MarkKind, TRACE_ON,
};
use heaptide_render::shared::quantity::bytes;

use crate::control::Control;
use crate::error::Error;

/// Maximum number of snapshots and marks that are shown; the newest are kept.
const SHOWN: usize = 20;

/// Describes whether recording is on, and what turned it off.
pub fn on_or_off(header: &FileHeader) -> String {
    let pauses = header.control / CONTROL_PAUSE;
    let mut why = Vec::new();
    if header.command_off != 0 {
        why.push("by ctl".to_owned());
    }
    if header.control & CONTROL_OFF != 0 {
        why.push("by the program".to_owned());
    }
    if pauses > 0 {
        why.push(format!("paused by the program ({pauses} nested pauses)"));
    }
    if why.is_empty() { "on".to_owned() } else { format!("off, {}", why.join(", ")) }
}

/// Describes the threshold for stacks.
fn threshold(header: &FileHeader) -> String {
    let bytes = header.threshold_bytes;
    match header.control {
        control if control & CONTROL_THRESHOLD == 0 => "stacks of all requests".to_owned(),
        control if control & CONTROL_FEWER != 0 => {
            format!("stacks of requests below {bytes} bytes")
        }
        _ => format!("stacks of requests of at least {bytes} bytes"),
    }
}

/// Describes where the trace is stored.
fn trace(header: &FileHeader, profile: &Path) -> String {
    let moved = std::fs::metadata(path_of(profile)).map_or(0, |file| file.len());
    let here = bytes(header.trace_bytes);
    let is = match header.trace_stopped_ns {
        0 => "on".to_owned(),
        ns => format!("ended at {}, out of space", seconds(ns)),
    };
    format!("{is}; {} moved to the trace file, {here} reserved in the profile", bytes(moved))
}

/// Describes a recording in lines of text.
pub fn describe(control: &Control) -> Result<String, Error> {
    let header = control.header()?;
    let running = control.running();
    let profile = heaptide_analysis::profile::reader::read(&running.file)?;
    let directory = running.file.parent().unwrap_or(Path::new("."));
    let mut snapshots = snapshot::all(directory)?;
    snapshots.retain(|s| (s.pid, s.image) == (header.pid, header.image));
    let marks = profile.named.marks.iter();
    let snapshot_marks = marks.clone().filter(|m| m.record.kind == MarkKind::Snapshot as u32);
    let told =
        snapshot_marks.map(|m| (MarkKind::Snapshot, m.record.number, &*m.name, m.record.time_ns));
    snapshot::name_by_marks(&mut snapshots, told);
    let mut out = String::new();
    let (pid, image, file) = (running.pid, header.image, of_path(&running.file));
    let _ = writeln!(out, "pid {pid} image {image}: {file}");
    let mut row = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<10} {value}");
    };
    row("recording", on_or_off(&header));
    row("threshold", threshold(&header));
    if header.trace & TRACE_ON != 0 {
        row("trace", trace(&header, &running.file));
    }
    if header.resets > 0 {
        row("resets", format!("{}, the last at {}", header.resets, seconds(header.reset_time_ns)));
    }
    if header.request != header.answered {
        row("waiting", "one request, until the next allocation".to_owned());
    }
    row("snapshots", newest(snapshots.len()));
    for snapshot in &snapshots[snapshots.len().saturating_sub(SHOWN)..] {
        row("", line(snapshot));
    }
    let marks: Vec<_> = marks.filter(|m| m.record.kind == MarkKind::Mark as u32).collect();
    row("marks", newest(marks.len()));
    for mark in &marks[marks.len().saturating_sub(SHOWN)..] {
        row("", format!("      {:>12}  {}", seconds(mark.record.time_ns), printable(&mark.name)));
    }
    Ok(out)
}

/// Describes a count, and how many of these are shown.
fn newest(count: usize) -> String {
    if count > SHOWN { format!("{count}, the last {SHOWN}:") } else { count.to_string() }
}

/// Formats number, time and name of a snapshot.
pub fn line(snapshot: &Snapshot) -> String {
    let number = snapshot.number;
    match &snapshot.damaged {
        Some(why) => format!("{number:>4}  unreadable: {}", printable(why)),
        None => {
            let name = printable(&snapshot.name);
            format!("{number:>4}  {:>12}  {name}", seconds(snapshot.time_ns))
        }
    }
}

/// Formats a time since the start of a recording.
fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}
