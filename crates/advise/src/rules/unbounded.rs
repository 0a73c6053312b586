//! Memory of one function that grows from the start of a long run to its end.
//!
//! The samples of every recording show the growth, and the metrics at peak show the owner. A
//! recording cannot show whether growth is the purpose of the program, so conditions exclude
//! programs that build their data and end: the run is long, live memory grows in all parts of it at
//! a similar rate until the end, and one function holds most of it, which compilers, linkers and
//! sorters do not show. The saving is the peak usage that the function holds: a bound.

use heaptide_analysis::attribution::FunctionId;
use heaptide_analysis::model::{End, Measures, Mode, Process, Sample};
use heaptide_analysis::quantity::{bytes, count, duration};
use rustc_hash::FxHashMap;

use super::{growing, python_cache};
use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Material, Row};
use crate::rule::{Judged, NEEDS_STACKS, Rule};
use crate::timeline::{floors, last_time_above};

pub(super) const RULE: Rule = Rule {
    name: "unbounded",
    title: "Memory that grows until the end",
    about: "In a run of ten seconds or more, live bytes grow from the beginning to the end at a \
            similar rate, and blocks of one function are most of them. Until the end, hardly any \
            of these blocks is freed. The cause can be a cache without a limit, a list that is only \
            appended to, or a leak. If the program is meant to run longer, bound it.",
    judge,
};

/// In shorter runs, programs that build their data and end look the same; in nanoseconds.
const RUN_MIN_NS: u64 = 10_000_000_000;
/// Live bytes from which a time belongs to the work of the program rather than to its cleanup, in
/// percent of the largest sample.
const AT_WORK_PERCENT_MIN: u64 = 90;
/// The number of equal parts of the run whose least live bytes are compared. The first is the start
/// of the program.
const PARTS: usize = 10;
/// The minimal growth, in bytes and in percent of the largest sample: less may be random, or a
/// small part of a program that has its data in memory.
const GROWTH_MIN: u64 = 1 << 20;
const GROWTH_PERCENT_MIN: u64 = 50;
/// The maximal fraction of the growth in one part: more indicates a phase.
const PART_MAX: u64 = 3;
/// The minimal fraction of the growth in the second half, and in the last quarter: with less,
/// growth slows down and may have a limit.
const SECOND_HALF_MIN: u64 = 3;
const LAST_QUARTER_MIN: u64 = 8;
/// The last tenth of the run must grow, too: before it, less than this percentage of the largest
/// sample is live.
const BEFORE_LAST_PERCENT_MAX: u64 = 97;
/// The minimal part of the growth that is held by one function, in percent.
const HELD_PERCENT_MIN: u64 = 60;
/// The minimal part of the bytes that a stack ever allocated that is live at peak, in percent.
const KEPT_PERCENT_MIN: u64 = 90;
/// From this percentage on, a function holds all of the growth.
const ALL_PERCENT: u64 = 95;

fn judge(material: &Material) -> Judged {
    let process = material.process;
    if process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    if process.identity.images != 1 {
        return Judged::Needs("samples over time, of one process");
    }
    if growing::has_history(material) {
        return Judged::Found(Vec::new()); // snapshots show the growth of each line
    }
    let growth = Growth::of(process);
    Judged::Found(growth.and_then(|growth| finding(material, &growth)).into_iter().collect())
}

/// The growth of a process until the end of its work.
struct Growth {
    end_ns: u64,
    floors: [u64; PARTS],
    /// Live bytes of the largest sample, and of the largest one before the last part.
    highest: u64,
    before_last: u64,
}

impl Growth {
    /// Returns the growth if it is as steady as in a process whose memory has no bound.
    fn of(process: &Process) -> Option<Growth> {
        let samples = &process.time.samples;
        let highest = samples.iter().map(|sample| sample.live_bytes).max()?;
        let end_ns = last_time_above(process, highest / 100 * AT_WORK_PERCENT_MIN)?;
        let growth = Growth::until(samples, end_ns);
        (end_ns >= RUN_MIN_NS && growth.is_steady()).then_some(growth)
    }

    fn until(samples: &[Sample], end_ns: u64) -> Growth {
        let most = |samples: &[Sample]| samples.iter().map(|sample| sample.live_bytes).max();
        let last_part_ns = end_ns - end_ns / PARTS as u64;
        let before_last = samples.partition_point(|sample| sample.time_ns < last_part_ns);
        Growth {
            end_ns,
            floors: floors(samples, end_ns),
            highest: most(samples).unwrap_or(0),
            before_last: most(&samples[..before_last]).unwrap_or(0),
        }
    }

    /// Returns the bytes by which live memory grew, without the first part of the run.
    fn bytes(&self) -> u64 {
        self.floors[PARTS - 1].saturating_sub(self.floors[1])
    }

    fn is_steady(&self) -> bool {
        let grown = self.bytes();
        let steps = self.floors[1..].windows(2).map(|pair| pair[1].checked_sub(pair[0]));
        let Some(steps) = steps.collect::<Option<Vec<u64>>>() else { return false };
        let sum = |steps: &[u64]| steps.iter().fold(0u64, |sum, step| sum.saturating_add(*step));
        let flat = steps.iter().filter(|step| **step == 0).count();
        let largest = steps.iter().max().copied().unwrap_or(0);
        let (half, quarter) = (steps.len() / 2, steps.len() / 4);
        grown >= GROWTH_MIN
            && self.before_last <= self.highest / 100 * BEFORE_LAST_PERCENT_MAX
            && grown >= self.highest / 100 * GROWTH_PERCENT_MIN
            && flat <= 1
            && largest <= grown / PART_MAX
            && sum(&steps[half..]) >= grown / SECOND_HALF_MIN
            && sum(&steps[steps.len() - quarter..]) >= grown / LAST_QUARTER_MIN
    }
}

fn finding(material: &Material, growth: &Growth) -> Option<Finding> {
    let process = material.process;
    let rows = kept_rows(material);
    let place = material.place(&rows, |m| m.at_peak_bytes)?;
    let m = place.measures;
    // Memory of the first part of the run may be of this function, too.
    let held = m.at_peak_bytes.saturating_sub(growth.floors[1]).min(growth.bytes());
    let percent = (u128::from(held) * 100 / u128::from(growth.bytes().max(1))) as u64;
    if percent < HELD_PERCENT_MIN || !material.is_much(held) {
        return None;
    }
    let part = match percent {
        ALL_PERCENT.. => "all".to_owned(),
        percent => format!("at least {percent} %"),
    };
    Some(Finding {
        rule: RULE.name,
        what: format!(
            "holds {} at peak, and grows until the end of the run",
            bytes(m.at_peak_bytes)
        ),
        evidence: vec![
            format!(
                "live bytes of the process grew from {} to {} in {}, at a similar rate until the \
                 end; {part} of it is held by blocks of this function",
                bytes(growth.floors[0]),
                bytes(growth.highest),
                duration(growth.end_ns),
            ),
            format!(
                "{} of the {} blocks that it allocated are live at peak; {}",
                count(m.at_peak_blocks),
                count(m.allocations),
                fate(process, &m)
            ),
        ],
        advice: "Bound what it keeps, or remove what is no longer needed, if the program can run \
                 longer than this."
            .to_owned(),
        saves: Saves { peak_bytes: held, ..Saves::default() },
        certainty: Certainty::Possible,
        place: Some(place),
    })
}

/// Describes what became of blocks after the peak.
fn fate(process: &Process, m: &Measures) -> &'static str {
    let is_freed = m.live_bytes <= m.at_peak_bytes / 100 * (100 - KEPT_PERCENT_MIN);
    match process.lifetime.end {
        _ if is_freed => "freed only at the end",
        End::Running | End::Detached => "not freed so far",
        _ => "not freed before the end",
    }
}

/// Returns the stacks of the function with the most memory at peak, among the stacks from which
/// hardly any block had been freed at peak.
fn kept_rows(material: &Material) -> Vec<Row> {
    let mut of_functions: FxHashMap<FunctionId, (u64, Vec<Row>)> = FxHashMap::default();
    for group in &material.groups {
        let is_kept = |row: &&Row| {
            let m = &row.measures;
            m.at_peak_bytes > 0 && m.at_peak_bytes >= m.usable_bytes / 100 * KEPT_PERCENT_MIN
        };
        let kept = group.rows.iter().filter(is_kept);
        // Another rule reports what a cache of Python holds.
        for row in kept.filter(|row| !python_cache::is_in_cache(material, row.stack)) {
            let (sum, rows) = of_functions.entry(group.function).or_default();
            *sum = sum.saturating_add(row.measures.at_peak_bytes);
            rows.push(*row);
        }
    }
    let largest = of_functions.into_iter().max_by_key(|(id, (sum, _))| (*sum, id.0));
    largest.map(|(_, (_, rows))| rows).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: u64 = 100;

    /// Returns whether live MiB with these values, each second, grow steadily.
    fn grows(live: impl Fn(u64) -> f64) -> bool {
        let mib = |second| (live(second).max(0.0) * f64::from(1 << 20)) as u64;
        let samples: Vec<Sample> = (0..SECONDS)
            .map(|second| Sample {
                time_ns: second * 1_000_000_000,
                live_bytes: mib(second),
                ..Sample::default()
            })
            .collect();
        Growth::until(&samples, SECONDS * 1_000_000_000).is_steady()
    }

    #[test]
    fn steady_growth_is_distinct_from_phases_limits_and_levels() {
        let at = |second: u64| second as f64;
        assert!(grows(at));
        assert!(grows(|s| at(s) * 7.0 + at(s % 3) * 5.0), "requests need memory for a moment");
        assert!(grows(|s| at(s / 4 * 4)), "in steps");
        assert!(grows(|s| at(s) + 20.0), "with data that it has from its start on");
        assert!(!grows(|s| at(s) * 0.01), "less than a MiB");
        assert!(!grows(|_| 50.0), "a level");
        assert!(!grows(|s| at(s.min(50))), "built, then used");
        assert!(!grows(|s| at(s.min(85))), "built, then written");
        assert!(!grows(|s| if s < 60 { 1.0 } else { at(s) }), "a late phase");
        assert!(!grows(|s| at(s % 10) + at(s) * 0.1 * at(s % 20)), "a saw");
        assert!(!grows(|s| 100.0 * (1.0 - (-at(s) / 40.0).exp())), "a limit");
        assert!(!grows(|s| at(s) + 400.0), "a small part of its data");
        assert!(!grows(|s| f64::from(1u32 << (s / 6).min(20))), "a container that doubles");
        assert!(!grows(|s| 100.0 - at(s)), "it shrinks");
    }
}
