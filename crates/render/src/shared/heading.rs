//! Lines about a process with which several views begin: how it ran and ended, what part it is, its
//! trace.

use std::sync::Arc;

use heaptide_analysis::model::{Completeness, End, Highest, Process, Removed};
use heaptide_analysis::trace::OnDisk;

use crate::shared::names::printable;
use crate::shared::quantity::{bytes, count, counted, duration};

/// Returns the name of the bytes that are live when counting ends.
pub(crate) fn live_name(process: &Process) -> &'static str {
    match process.lifetime.end {
        End::Exited(_) => "live at exit",
        End::Running => "live now",
        End::Exec => "live at exec",
        End::Detached => "live at detach",
        End::Signaled(_) | End::Unknown => "live at the end",
    }
}

/// Describes how blocks were sampled, and what is an estimate; `None` if all were recorded.
pub fn sampling_says(p: &Process) -> Option<String> {
    let sampling = p.sampling.as_ref()?;
    let (mean, blocks) = (bytes(sampling.mean_bytes), counted(sampling.blocks, "block"));
    let exact = if p.is_part_of_sampled() {
        "all counts of this part are estimates"
    } else {
        "totals are exact, the rest are estimates"
    };
    Some(format!("{blocks}, one for each {mean} on average; {exact}"))
}

/// Maximum number of holders that are named: they fit on a line.
const HOLDERS_MAX: usize = 3;

/// Describes when joined processes had most live bytes together, and which of them held most.
pub(crate) fn highest_says(highest: &Highest) -> String {
    let of = |(name, held): &(Arc<str>, u64)| format!("{} {}", printable(name), bytes(*held));
    let named: Vec<String> = highest.holders.iter().take(HOLDERS_MAX).map(of).collect();
    let rest = match highest.holders.len() - named.len() {
        0 => String::new(),
        rest => format!(", {}", counted(rest as u64, "other image")),
    };
    let when = duration(highest.time_ns);
    let live = counted(highest.live_bytes, "byte");
    let least = if highest.at_most_bytes.is_some() { "at least " } else { "" };
    format!("{least}{live} at one time by samples, after {when}: {}{rest}", named.join(", "))
}

/// Describes what the counts cover if not the whole process, and how it was sampled.
pub(crate) fn counts_say(p: &Process) -> Vec<String> {
    let sampled = sampling_says(p).map(|says| format!("sampled: {says}"));
    let Completeness { part, memory, .. } = &p.completeness;
    part.iter().chain(memory).cloned().chain(sampled).collect()
}

/// Describes what a trace contains and its size on disk; `None` without a trace.
pub(crate) fn trace_says(p: &Process) -> Option<String> {
    let OnDisk { bytes: size, stopped_ns, limit_bytes, begin_ns, dropped_bytes } =
        p.trace_on_disk()?;
    if let Some(begin_ns) = begin_ns {
        let [size, dropped] = [size, dropped_bytes].map(bytes);
        return Some(format!(
            "{size}, from {} on; older events were dropped ({dropped})",
            duration(begin_ns)
        ));
    }
    let Some(stopped_ns) = stopped_ns else {
        let t = &p.totals;
        let events = t.allocations.saturating_add(t.frees).saturating_add(t.failed);
        // After a reset, the totals cover only part of the trace.
        return Some(if p.completeness.part.is_none() && events > 0 {
            let each = size as f64 / events as f64;
            let what = if events == 1 { "allocation" } else { "allocations and frees" };
            let events = count(events);
            format!("{events} {what} in {}, {each:.1} bytes each", bytes(size))
        } else {
            bytes(size)
        });
    };
    let why = match limit_bytes {
        Some(limit) => format!("--max-trace-size of {} was reached", bytes(limit)),
        None => "out of space".to_owned(),
    };
    Some(format!("{}, ended after {}: {why}", bytes(size), duration(stopped_ns)))
}

/// Describes what was removed to keep a recording within its limits; `None` if nothing was.
pub(crate) fn removed_says(removed: &Removed) -> Option<String> {
    let Removed { snapshots, snapshot_bytes, images, .. } = *removed;
    let size = match snapshot_bytes {
        0 => String::new(), // removed by the programs, which do not count the bytes
        size => format!(" ({})", bytes(size)),
    };
    let snapshots = (snapshots > 0)
        .then(|| format!("{}{size}, to keep the newest", counted(snapshots, "snapshot")));
    let images = (images > 0).then(|| {
        format!(
            "{} ({}), with {} of {}, to keep to the limit of the recording",
            counted(images, "ended process image"),
            bytes(removed.image_bytes),
            counted(removed.allocations, "allocation"),
            bytes(removed.requested_bytes)
        )
    });
    let all: Vec<String> = snapshots.into_iter().chain(images).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Describes the images that were removed from a recording to keep it within its limit, with what
/// was live in them at their end; `None` if there are none.
pub fn removed_images(removed: &Removed) -> Option<String> {
    let Removed { images, live_bytes, peak_bytes, .. } = *removed;
    (images > 0).then(|| {
        format!(
            "{} no longer in the recording, to keep to its limit (peak at most {}, {} live at exit)",
            counted(images, "ended process image"),
            bytes(peak_bytes),
            bytes(live_bytes)
        )
    })
}

/// Describes how an image ended, as a predicate after "it".
pub(crate) fn ending(process: &Process) -> String {
    match process.lifetime.end {
        End::Exited(code) => format!("exited with status {code}"),
        End::Signaled(signal) => format!("killed by signal {signal}{}", signal_name(signal)),
        End::Exec => "became another program by exec".to_owned(),
        End::Detached => "detached".to_owned(),
        End::Running => "still running".to_owned(),
        End::Unknown if process.identity.images > 1 => "ends differ or were not seen".to_owned(),
        End::Unknown => "end not seen".to_owned(),
    }
}

/// Describes how and when an image ended, as a predicate after "it".
pub(crate) fn ended(process: &Process) -> String {
    let seen = if process.lifetime.duration_is_known { "" } else { ", last seen" };
    format!("{}{seen} after {}", ending(process), duration(process.lifetime.duration_ns))
}

/// Describes how long an image ran, as a predicate after "it".
pub(crate) fn ran(process: &Process) -> String {
    let verb = if process.lifetime.duration_is_known { "ran" } else { "ran at least" };
    format!("{verb} {}", duration(process.lifetime.duration_ns))
}

/// Describes the rank in a parallel job: `3 of 8, job 4711`; `None` outside of a job.
pub(crate) fn place(process: &Process) -> Option<String> {
    let rank = process.identity.rank?;
    let of = if rank.of == 0 { String::new() } else { format!(" of {}", rank.of) };
    let job = if process.identity.job.is_empty() { "" } else { ", job " };
    Some(format!("{}{of}{job}{}", rank.number, process.identity.job))
}

/// Returns whether a signal ends a program because of a fault or from outside for good, not as a
/// request or because a pipe has no reader.
pub(crate) fn is_of_fault(signal: i32) -> bool {
    matches!(signal, 4..=9 | 11 | 24 | 25 | 31)
}

/// Returns the name of a signal on Linux, in parentheses after a space; empty for uncommon signals.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        5 => " (SIGTRAP)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        10 => " (SIGUSR1)",
        11 => " (SIGSEGV)",
        12 => " (SIGUSR2)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        25 => " (SIGXFSZ)",
        31 => " (SIGSYS)",
        _ => "",
    }
}
