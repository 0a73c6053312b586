//! The subject of a recording as a line: which process is shown, and why.

use heaptide_analysis::model::{Process, Reason, Recording, Rest, Subject};
use heaptide_analysis::recording::images::ImageSummary;

use crate::shared::command_line::{command_line, command_line_of};
use crate::shared::names::printable;
use crate::shared::quantity::{bytes, counted, percent};

/// Characters of a command.
const COMMAND: usize = 40;
/// Other images are listed apart if one of them has at least this fraction of the highest peak.
const OTHER_PART: u64 = 8;
/// Number of names of other programs.
const NAMES: usize = 3;
/// Parts of a share.
const PARTS: f64 = 1e6;

/// Returns which process image is the subject and why, with the launchers and the other images;
/// `None` if the recording has only one image or the subject was not chosen.
pub fn subject_says(recording: &Recording) -> Option<String> {
    let subject = recording.subject.as_ref()?;
    let command = |process: &Process| (command_line(process, COMMAND), process.who());
    let lacks_nothing = |process: &Process| {
        let completeness = &process.completeness;
        completeness.unrecorded.is_none() && completeness.unrecorded_programs.is_empty()
    };
    let is_whole = recording.processes.iter().all(lacks_nothing);
    line(subject, recording.subject_process().map(command), is_whole)
}

/// Like [`subject_says`], for a subject that was chosen by headers of profiles; `first` is the
/// image of it that is shown.
pub fn subject_of_headers(subject: &Subject, first: &ImageSummary) -> Option<String> {
    let command = command_line_of(&first.command, &first.program, COMMAND);
    let says = line(subject, Some((command, format!("pid {}", first.pid))), false)?;
    let several = subject.peaks.len() > 1;
    Some(if several { format!("pid {} of {says}", first.pid) } else { says })
}

/// Describes a subject; the command and its process are those of its only image. `is_whole`: all
/// programs that it started were recorded.
fn line(subject: &Subject, only: Option<(String, String)>, is_whole: bool) -> Option<String> {
    if subject.images() <= 1 {
        return None;
    }
    let mut says = match &subject.peaks[..] {
        [] => return None,
        [_] => {
            let (command, who) = only?;
            let is_cut = command.ends_with('…');
            let command = if is_cut { printable(&subject.name).into_owned() } else { command };
            format!("{command} ({who})")
        }
        [least, .., most] => {
            let images = counted(subject.peaks.len() as u64, "image");
            let [least, median, most] = [*least, median(&subject.peaks), *most].map(bytes);
            let name = printable(&subject.name);
            format!("{images} of {name}, peaks {least} to {most}, median {median}")
        }
    };
    says += &why(subject, is_whole);
    let most = subject.peaks.last().copied().unwrap_or(0);
    if subject.others.peak_bytes < most / OTHER_PART {
        says += &rest(&both(&subject.launchers, &subject.others));
    } else {
        says += &rest(&subject.launchers);
        says += &rest(&subject.others);
    }
    Some(says)
}

/// Returns launchers and other images together.
fn both(launchers: &Rest, others: &Rest) -> Rest {
    let largest = if launchers.peak_bytes >= others.peak_bytes { launchers } else { others };
    let names = launchers.names.iter().chain(&others.names).take(NAMES).cloned();
    Rest {
        images: launchers.images + others.images,
        names: names.collect(),
        programs: launchers.programs + others.programs,
        ..largest.clone()
    }
}

fn why(subject: &Subject, is_whole: bool) -> String {
    let Some(part) = subject.share else {
        return match subject.reason {
            Reason::Only => String::new(),
            Reason::Started => ", which was started".to_owned(),
            Reason::Most | Reason::Launcher => ", most memory by peak and duration".to_owned(),
        };
    };
    let share = percent((part * PARTS) as u64, PARTS as u64);
    match subject.reason {
        Reason::Only => String::new(),
        Reason::Started if part < 0.5 => {
            format!(", which was started, {share} of memory over time")
        }
        Reason::Started | Reason::Most => format!(", {share} of memory over time"),
        Reason::Launcher if is_whole => {
            format!(", {share} of memory over time, more than what it started")
        }
        Reason::Launcher => format!(", {share} of the recorded memory over time"),
    }
}

/// Describes images that are not the subject, after a semicolon; empty if they held nothing.
fn rest(rest: &Rest) -> String {
    let most = bytes(rest.peak_bytes);
    match rest.images {
        0 => String::new(),
        _ if rest.peak_bytes == 0 => String::new(),
        1 => format!("; {} held {most}", names(rest)),
        n => format!("; {} of {} held {most} at most", counted(n as u64, "image"), names(rest)),
    }
}

/// Returns the names as a list.
fn names(rest: &Rest) -> String {
    let names: Vec<_> = rest.names.iter().map(|name| printable(name)).collect();
    match (&names[..], rest.programs.saturating_sub(names.len())) {
        ([], _) => "unknown programs".to_owned(),
        ([name], 0) => name.to_string(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        (_, more) => format!("{} and {}", names.join(", "), counted(more as u64, "other program")),
    }
}

/// Returns the median of sorted numbers; between the middle two of an even number.
fn median(sorted: &[u64]) -> u64 {
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    low + (high - low) / 2
}
