//! What a recording lacks, as far as it matters: for the summary of a run.

use heaptide_analysis::model::{Loss, Process, Recording};

use crate::shared::losses::meaning;
use crate::shared::quantity::{count, counted, percent};

/// Losses that leave events out of the totals, or out of their stack, are reported from this part
/// of the allocations on, …
const EVENTS_PART: u64 = 1000;
/// … others, which cut stacks or the trace short, from this part.
const OTHER_PART: u64 = 50;
/// Losses of events.
const EVENTS: [&str; 3] = ["no_lane", "no_shadow", "no_site"];
/// Losses that are reported whenever they occur: of whole processes and snapshots.
const ALWAYS: [&str; 2] = ["child_", "no_snapshot"];
/// Lines at most, one for the rest included.
const LINES: usize = 5;

/// A line for each thing that is missing; none if nothing is.
pub(crate) fn lines(recording: &Recording) -> Vec<String> {
    let mut lines = unrecorded(recording);
    lines.extend(own_malloc(recording));
    lines.extend(other_allocator(recording));
    match recording.damaged.len() as u64 {
        0 => {}
        files => lines.push(format!("{} that cannot be read", counted(files, "file"))),
    }
    lines.extend(losses(recording));
    let rest = lines.len().saturating_sub(LINES - 1);
    if rest > 1 {
        lines.truncate(LINES - 1);
        lines.push(format!("{rest} more; `heaptide info` lists them"));
    }
    lines
}

/// Processes of which nothing is recorded, by reason.
fn unrecorded(recording: &Recording) -> Vec<String> {
    let reasons = recording.processes.iter().filter_map(|process| process.completeness.unrecorded);
    grouped(reasons).map(|(reason, n)| whose(recording, n, "everything", reason)).collect()
}

fn own_malloc(recording: &Recording) -> Option<String> {
    let with =
        recording.processes.iter().filter(|process| process.completeness.has_own_malloc).count();
    let why = "the executable defines malloc; only allocations it forwards are recorded";
    (with > 0).then(|| whose(recording, with as u64, "some memory", why))
}

fn other_allocator(recording: &Recording) -> Option<String> {
    let has = |process: &&Process| process.completeness.has_other_allocator;
    let with = recording.processes.iter().filter(has).count();
    let why = "the program has an allocator of its own that is not intercepted";
    (with > 0).then(|| whose(recording, with as u64, "some memory", why))
}

/// `WHAT: WHY`, and of how many processes if there are several.
fn whose(recording: &Recording, n: u64, what: &str, why: &str) -> String {
    match recording.processes.len() {
        1 => format!("{what}: {why}"),
        all => format!("{what} of {n} of {all} process images: {why}"),
    }
}

fn losses(recording: &Recording) -> Vec<String> {
    let all = &recording.processes;
    let sum = |of: fn(&Process) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    let allocations = sum(|process| process.totals.allocations);
    let mut found: Vec<Loss> = Vec::new();
    for loss in all.iter().flat_map(|process| &process.completeness.losses) {
        match found.iter_mut().find(|known| known.name == loss.name) {
            Some(known) => known.count = known.count.saturating_add(loss.count),
            None => found.push(*loss),
        }
    }
    let matters = |loss: &&Loss| {
        let part = if EVENTS.contains(&loss.name) { EVENTS_PART } else { OTHER_PART };
        ALWAYS.iter().any(|always| loss.name.starts_with(always))
            || loss.count >= allocations.div_ceil(part)
    };
    let line = |loss: &Loss| {
        let (&Loss { name, count: n, .. }, meaning) = (loss, meaning(all.iter(), loss));
        if EVENTS.contains(&name) {
            format!("{} ({}) {meaning}", count(n), percent(n, allocations))
        } else {
            format!("{} {meaning}", count(n))
        }
    };
    found.iter().filter(matters).map(line).collect()
}

/// Equal texts, each with how many there are, in order of first.
fn grouped<'a>(texts: impl Iterator<Item = &'a str>) -> impl Iterator<Item = (&'a str, u64)> {
    let mut groups: Vec<(&str, u64)> = Vec::new();
    for text in texts {
        match groups.iter_mut().find(|group| group.0 == text) {
            Some(group) => group.1 += 1,
            None => groups.push((text, 1)),
        }
    }
    groups.into_iter()
}
