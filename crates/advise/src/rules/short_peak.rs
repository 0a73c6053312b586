//! A short peak, far above the rest of the run.
//!
//! The saving is the memory of the line at peak, and at most the height of the peak above the rest
//! of the run: no other moment needs more.

use heaptide_analysis::model::{Mode, Process};
use heaptide_analysis::quantity::{bytes, duration};

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "short-peak",
    title: "A short peak far above the rest",
    about: "Peak usage is far above the live bytes before and after, and lasts only for a moment. \
            The blocks that one line of code allocates for that moment determine how much memory \
            the process needs.",
    judge,
};

/// The maximal duration of a short peak, in percent of the run.
const TIME_PERCENT_MAX: u64 = 10;
/// Limits of live bytes outside of the peak, in percent of the peak: there is a short peak if one
/// of them is exceeded only for a short time.
const OUTSIDE_PERCENT_MAX: [u64; 4] = [10, 25, 50, 75];
/// The number of samples before and after the peak from which the level there is known.
const SAMPLES_MIN: usize = 8;
/// The part of the peak's height above the rest that one line allocates, in percent.
const OWNER_PERCENT_MIN: u64 = 75;
/// Shorter runs are not worth a change, in nanoseconds.
const RUN_MIN_NS: u64 = 200_000_000;

fn judge(material: &Material) -> Judged {
    let process = material.process;
    if process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    if process.identity.images != 1 || process.time.samples.len() < SAMPLES_MIN {
        return Judged::Needs("samples over time, of one process");
    }
    Judged::Found(finding(material).into_iter().collect())
}

/// A peak, and the level of the rest of the run.
struct Moment {
    lasts_ns: u64,
    /// The limit that is not exceeded outside of it.
    limit: u64,
    outside: u64,
}

/// Returns the time around the peak with more live bytes than a limit, if this is not exceeded at
/// other times.
fn moment(process: &Process, limit: u64) -> Option<Moment> {
    let samples = &process.time.samples;
    let at = samples.partition_point(|sample| sample.time_ns < process.peak_time_ns);
    let before = samples[..at].iter().rposition(|sample| sample.live_bytes <= limit)?;
    let after = at + samples[at..].iter().position(|sample| sample.live_bytes <= limit)?;
    let outside = samples[..=before].iter().chain(&samples[after..]);
    let highest = outside.map(|sample| sample.live_bytes).max()?;
    let is_known = before + 1 + samples.len() - after >= SAMPLES_MIN;
    let lasts_ns = samples[after].time_ns.saturating_sub(samples[before].time_ns);
    let is_moment = is_known && highest <= limit && !is_cleanup(process, after);
    is_moment.then_some(Moment { lasts_ns, limit, outside: highest })
}

/// Returns whether the samples from this one on may be those of the final cleanup: live bytes never
/// rise again, nor stay at a level for as long as a short peak may last. Then memory was needed
/// until the end of the program's work.
fn is_cleanup(process: &Process, first: usize) -> bool {
    let level_ns = process.lifetime.duration_ns / 100 * TIME_PERCENT_MAX;
    let samples = &process.time.samples[first..];
    let rise_min = process.totals.peak_bytes / 200;
    let ends = samples.iter().skip(1).map(|next| next.time_ns);
    let holds = samples.iter().zip(ends.chain([process.lifetime.duration_ns]));
    let is_level = { holds }.any(|(sample, end)| end.saturating_sub(sample.time_ns) >= level_ns);
    let mut lowest = u64::MAX;
    let rises = samples.iter().any(|sample| {
        lowest = lowest.min(sample.live_bytes);
        sample.live_bytes > lowest + rise_min
    });
    !is_level && !rises
}

/// Returns the short time around the peak with more live bytes than one of the limits, and the
/// lowest level above which it is short. So memory that rises to the peak in steps does not count
/// as live outside of it.
fn short_moment(process: &Process) -> Option<Moment> {
    let longest_ns = process.lifetime.duration_ns / 100 * TIME_PERCENT_MAX;
    let at = |percent: u64| {
        let found = moment(process, process.totals.peak_bytes / 100 * percent);
        found.filter(|moment| moment.lasts_ns <= longest_ns)
    };
    let percent = OUTSIDE_PERCENT_MAX.into_iter().find(|&percent| at(percent).is_some())?;
    (1..=percent).find_map(at)
}

fn finding(material: &Material) -> Option<Finding> {
    let process = material.process;
    let run_ns = process.lifetime.duration_ns;
    let moment = short_moment(process)?;
    let above = process.totals.peak_bytes.saturating_sub(moment.outside);
    if run_ns < RUN_MIN_NS || !material.is_much(above) {
        return None;
    }
    // Memory that a line still holds at the end was not allocated for the peak.
    let for_moment =
        |group: &&Group| group.measures.at_peak_bytes.saturating_sub(group.measures.live_bytes);
    let group = material.groups.iter().max_by_key(for_moment)?;
    let own = for_moment(&group);
    if own < above / 100 * OWNER_PERCENT_MIN {
        return None;
    }
    let place = material.place(&group.rows, |m| m.at_peak_bytes)?;
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: format!("holds {} during a short peak", bytes(own)),
        evidence: vec![
            format!(
                "more than {} are live for {} of {} only",
                bytes(moment.limit),
                duration(moment.lasts_ns),
                duration(run_ns)
            ),
            format!("before and after, at most {} are live", bytes(moment.outside)),
        ],
        advice: format!(
            "Work on smaller parts at a time: at the peak, the rest of the program has {} of {}.",
            bytes(process.totals.peak_bytes.saturating_sub(own)),
            bytes(process.totals.peak_bytes)
        ),
        saves: Saves { peak_bytes: own, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}
