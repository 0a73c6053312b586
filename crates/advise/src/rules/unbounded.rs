//! Memory of one function that grows from the start of a long run to its end.
//!
//! The samples of every recording show the growth, and the metrics at peak show the owner. A
//! recording cannot show whether growth is the purpose of the program, so conditions exclude
//! programs that build their data and end: the run is long, live memory grows in all parts of it at
//! a similar rate until the end, and one function holds most of it, which compilers, linkers and
//! sorters do not show. The saving is the peak usage that the function holds: a bound.

use heaptide_analysis::attribution::FunctionId;
use heaptide_analysis::model::{End, Measures, Mode, Process};
use heaptide_analysis::quantity::{bytes, count, duration};
use rustc_hash::FxHashMap;

use super::{growing, python_cache};
use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Material, Row};
use crate::rule::{Judged, NEEDS_STACKS, Rule};
use crate::steady_growth::SteadyGrowth;

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
/// The minimal part of the growth that is held by one function, in percent.
const HELD_PERCENT_MIN: u64 = 60;
/// The minimal part of the bytes that a stack ever allocated that is live at peak, in percent.
const KEPT_PERCENT_MIN: u64 = 90;

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
    let growth = SteadyGrowth::of(process, RUN_MIN_NS);
    Judged::Found(growth.and_then(|growth| finding(material, &growth)).into_iter().collect())
}

fn finding(material: &Material, growth: &SteadyGrowth) -> Option<Finding> {
    let process = material.process;
    let rows = kept_rows(material);
    let place = material.place(&rows, |m| m.at_peak_bytes)?;
    let m = place.measures;
    // Memory of the first part of the run may be of this function, too.
    let before = growth.floors[1];
    let held = m.at_peak_bytes.saturating_sub(before);
    let grown = process.totals.peak_bytes.saturating_sub(before).max(1);
    let percent = (u128::from(held) * 100 / u128::from(grown)) as u64;
    if percent < HELD_PERCENT_MIN || !material.is_much(held) {
        return None;
    }
    let part = match percent {
        100.. => "all".to_owned(),
        percent => format!("at least {percent} %"),
    };
    let (from, to) = growth.ends();
    Some(Finding {
        rule: RULE.name,
        what: format!(
            "holds {} at peak, and grows until the end of the run",
            bytes(m.at_peak_bytes)
        ),
        evidence: vec![
            format!(
                "live bytes of the process grew from {} to {} in {}, at a similar rate until the \
                 end; {part} of the growth up to the peak is held by blocks of this function",
                bytes(from),
                bytes(to),
                duration(growth.time_ns()),
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
