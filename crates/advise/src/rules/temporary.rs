//! Blocks that the allocating thread frees before it allocates again.
//!
//! All of these blocks are saved by a buffer on the stack, and all but one of each thread by a
//! buffer that is kept. That one block suffices is certain, because no other block of the line is
//! live in the meantime.

use heaptide_analysis::model::{Mode, SiteKind};
use heaptide_analysis::quantity::{bytes, count};
use heaptide_analysis::views::sizes::only_size;
use rustc_hash::FxHashSet;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "temporary",
    title: "Blocks freed before the next allocation",
    about: "A line of code allocates blocks that its thread frees before it allocates anything \
            else. No other block can be in the same place in the meantime, so one buffer suffices \
            for all of them: on the stack if it is small, otherwise one that is kept and reused.",
    judge,
};

/// The minimal percentage of a line's blocks that are temporary: if blocks sometimes live longer,
/// one buffer is not enough.
const TEMPORARY_PERCENT_MIN: u64 = 90;
/// Bytes that a function can safely put on its stack.
const ON_STACK_MAX: u64 = 4096;
/// Python objects are temporary by nature; arrays with this average size in bytes are not.
const PYTHON_BYTES_MIN: u64 = 16 << 10;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    Judged::Found(material.groups.iter().filter_map(|group| finding(material, group)).collect())
}

fn finding(material: &Material, group: &Group) -> Option<Finding> {
    let m = &group.measures;
    let is_most = m.temporary >= m.allocations / 100 * TEMPORARY_PERCENT_MIN;
    if !is_most || !material.is_many(m.temporary) {
        return None;
    }
    let mean = m.requested_bytes / m.allocations.max(1);
    let is_python = material.is_python(group);
    if is_python && mean < PYTHON_BYTES_MIN {
        return None;
    }
    let sizes = match only_size(m) {
        Some(size) => format!("each of {}", bytes(size)),
        None => format!("{} on average, {} at most", bytes(mean), bytes(m.largest_bytes)),
    };
    let is_on_stack = m.largest_bytes <= ON_STACK_MAX && !is_python;
    let kept = if is_on_stack { 0 } else { threads(material, group) };
    let advice = if is_python {
        "Write the result into an array that exists (`out=`), or work on parts of it.".to_owned()
    } else if is_on_stack {
        format!(
            "Use a buffer of {} on the stack, or keep one and reuse it.",
            bytes(m.largest_bytes)
        )
    } else {
        "Keep one buffer, which grows to the largest size, and reuse it.".to_owned()
    };
    Some(Finding {
        rule: RULE.name,
        place: material.place(&group.rows, |m| m.temporary),
        what: format!("allocates {} blocks that it needs only for a moment", count(m.temporary)),
        evidence: vec![format!(
            "{} of its {} blocks are freed before their thread allocates again; {sizes}",
            count(m.temporary),
            count(m.allocations)
        )],
        advice,
        saves: Saves { allocations: m.temporary.saturating_sub(kept), ..Saves::default() },
        certainty: Certainty::Certain,
    })
}

/// Returns the number of threads that allocate in a line.
fn threads(material: &Material, group: &Group) -> u64 {
    let stacks: FxHashSet<u32> = group.rows.iter().map(|row| row.stack.0).collect();
    let sites = material.process.tables.sites.iter();
    let own = sites.filter(|site| site.kind == SiteKind::Heap && stacks.contains(&site.stack.0));
    own.map(|site| site.lane).collect::<FxHashSet<_>>().len() as u64
}
