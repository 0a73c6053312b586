//! Containers that grow step by step, by reallocation.
//!
//! Each reallocation that enlarges a block is an allocation that a reserved size avoids, so their
//! number is the saving; for a value that is copied to grow, it is that of the copies except the
//! last. At peak, it is the old block of a container that is just copied.

use heaptide_analysis::model::{Frame, Measures, Mode};
use heaptide_analysis::quantity::{bytes, count, counted};
use rustc_hash::FxHashMap;

use super::fills;
use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, Row};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "growth",
    title: "Growth by repeated reallocation",
    about: "A container grows by repeated reallocation. Each reallocation may have to copy the \
            contents, and during the copy both the old and the new block are live. Reserve the \
            final size if it is known; otherwise grow by a factor, not by a number of elements.",
    judge,
};

/// Functions of containers that allocate a larger block and copy, by parts of their names.
const GROWTH_FUNCTIONS: [&str; 5] = [
    "_M_realloc_insert",
    "_M_realloc_append",
    "__push_back_slow_path",
    "__emplace_back_slow_path",
    "_M_default_append",
];
/// Functions of CPython that concatenate two values, by parts of their names.
const CONCATENATIONS: [&str; 5] =
    ["PyUnicode_Concat", "PyUnicode_Append", "bytes_concat", "list_concat", "tupleconcat"];
/// The ratio of largest to mean size for copies of a value that grows by equal parts: 2, or more if
/// the same line also creates other small values.
const CONCATENATED_RATIO: std::ops::Range<f64> = 1.5..8.0;
/// Average number of reallocations per container from which reserving its size is worth a line of
/// code. Four doublings are a factor of 16.
const STEPS_MIN: u64 = 4;
/// The number of steps that distinguishes growth by equal parts from growth by a factor. In the
/// first case the mean size is half of the largest; with a factor of 1.125, that of CPython, it is
/// less than a quarter after this many steps.
const EQUAL_STEPS_MIN: u64 = 40;
/// Maximal ratio of largest to mean size for growth by equal parts.
const EQUAL_RATIO_MAX: u64 = 4;
/// The size, in bytes, from which copies of a container matter.
const COPIED_MIN: u64 = 1 << 20;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    // The first block of a container may come from another line of the same function.
    let mut of_function: FxHashMap<_, Measures> = FxHashMap::default();
    for group in &material.groups {
        of_function.entry(group.function).or_default().add(&group.measures);
    }
    let sizes = fills::Sizes::of(material.process);
    let mut findings = Vec::new();
    for group in &material.groups {
        findings.extend(fills::finding(RULE.name, material, group, &sizes, STEPS_MIN));
        if group.measures.reallocations > 0 {
            findings.extend(reallocated(material, group, &of_function[&group.function]));
        } else {
            findings.extend(copied(material, group));
        }
        if material.is_python(group) {
            findings.extend(concatenated(material, group));
        }
    }
    Judged::Found(findings)
}

/// Checks a line that calls `realloc`; `function` has the sums of all lines of its function.
fn reallocated(material: &Material, group: &Group, function: &Measures) -> Option<Finding> {
    let rows: Vec<Row> =
        group.rows.iter().filter(|row| row.measures.reallocations > 0).copied().collect();
    let place = material.place(&rows, |m| m.reallocations)?;
    let m = place.measures;
    let containers = function.allocations.saturating_sub(function.reallocations);
    if containers == 0 {
        return None; // their first blocks are from elsewhere, so their number is unknown
    }
    let steps = m.reallocations / containers;
    let mean = m.requested_bytes / m.allocations.max(1);
    let has_equal_steps =
        steps >= EQUAL_STEPS_MIN && m.largest_bytes / mean.max(1) < EQUAL_RATIO_MAX;
    let copied = m.requested_bytes;
    // Blocks of other functions that are reallocated once have one size, or are more than the
    // containers; at peak, the old and the new block of each can be live.
    let live = m.at_peak_blocks.max(m.live_blocks);
    if m.largest_bytes / 5 < mean / 4 || live > containers.saturating_mul(2) {
        return None;
    }
    let is_costly = has_equal_steps && copied >= COPIED_MIN && material.is_part_of_bytes(copied);
    let is_python = material.is_python(group);
    let is_many = steps >= STEPS_MIN && material.is_many(m.reallocations);
    if !(is_costly || is_many && !is_python) {
        return None;
    }
    let how = if has_equal_steps { " in equal steps" } else { "" };
    let what = format!(
        "lets {} grow by {}{how}",
        counted(containers, "container"),
        counted(m.reallocations, "reallocation")
    );
    let each = if containers == 1 { "" } else { " of each on average" };
    let sizes =
        format!("{} reallocations{each}, to {} at most", count(steps), bytes(m.largest_bytes));
    let copies =
        format!("the new blocks have {} in total, which realloc may have to copy", bytes(copied));
    let advice = match (is_python, has_equal_steps) {
        (true, _) => "Collect the parts in a list and join them once, or preallocate.".to_owned(),
        (_, true) => format!(
            "Reserve {} at the start, or double the size at each step.",
            bytes(m.largest_bytes)
        ),
        (_, false) => "Reserve the final size, if it is known or can be estimated.".to_owned(),
    };
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what,
        evidence: vec![sizes, copies],
        advice,
        saves: Saves { allocations: m.reallocations, ..Saves::default() },
        certainty: if has_equal_steps { Certainty::Certain } else { Certainty::Likely },
    })
}

/// Checks a Python value to which parts are added one by one, creating a new value each time.
fn concatenated(material: &Material, group: &Group) -> Option<Finding> {
    let makes = |frame: &Frame| {
        let name = frame.function.as_deref().unwrap_or_default();
        CONCATENATIONS.iter().any(|part| name.contains(part))
    };
    let is_concatenated =
        |row: &&Row| row.measures.reallocations == 0 && material.inside(row.stack).any(makes);
    let rows: Vec<Row> = group.rows.iter().filter(is_concatenated).copied().collect();
    let place = material.place(&rows, |m| m.requested_bytes)?;
    let m = place.measures;
    let mean = m.requested_bytes as f64 / m.allocations.max(1) as f64;
    let is_one_that_grows = CONCATENATED_RATIO.contains(&(m.largest_bytes as f64 / mean))
        && m.at_peak_blocks <= 2
        && m.allocations >= EQUAL_STEPS_MIN;
    let copied = m.requested_bytes;
    if !is_one_that_grows || copied < COPIED_MIN || !material.is_part_of_bytes(copied) {
        return None;
    }
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: format!("adds to a value {} times and copies it each time", count(m.allocations)),
        evidence: vec![
            format!("the value grows to {}", bytes(m.largest_bytes)),
            format!("its copies have {} in total", bytes(copied)),
        ],
        advice: "Collect the parts in a list and join them once.".to_owned(),
        saves: Saves { allocations: m.allocations.saturating_sub(1), ..Saves::default() },
        certainty: Certainty::Likely,
    })
}

/// Checks a container that allocates a new block and copies, and did so at peak, when both its old
/// and its new block were live.
fn copied(material: &Material, group: &Group) -> Option<Finding> {
    let grows = |frame: &Frame| {
        let name = frame.function.as_deref().unwrap_or_default();
        GROWTH_FUNCTIONS.iter().any(|part| name.contains(part))
    };
    let rows: Vec<Row> =
        group.rows.iter().filter(|row| material.inside(row.stack).any(grows)).copied().collect();
    let place = material.place(&rows, |m| m.requested_bytes)?;
    let m = place.measures;
    // Sizes that double, starting with one element, sum up to less than twice the last one. With
    // two containers the sum is larger: the sizes of each sum up to at least twice its last size
    // minus its first.
    let is_one = m.requested_bytes < m.largest_bytes.saturating_mul(2);
    let old = m.at_peak_bytes.saturating_sub(m.largest_bytes);
    if !is_one || m.at_peak_blocks != 2 || !material.is_much(old) {
        return None;
    }
    let [steps, last] = [m.allocations, m.largest_bytes];
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: "lets a container grow at peak usage, and copies it".to_owned(),
        evidence: vec![
            format!("its {} grow to {}", counted(steps, "block"), bytes(last)),
            format!("at peak, the previous block is live, too: {}", bytes(old)),
        ],
        advice: format!("Reserve {} before it is filled.", bytes(last)),
        saves: Saves {
            peak_bytes: old,
            allocations: m.allocations.saturating_sub(1),
            ..Saves::default()
        },
        certainty: Certainty::Certain,
    })
}
