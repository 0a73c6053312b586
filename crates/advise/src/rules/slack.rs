//! Blocks that are much larger than requested.
//!
//! The saving is the difference of usable and requested bytes at peak. It is exact, because only
//! stacks count whose blocks all have the same size.

use heaptide_analysis::model::Mode;
use heaptide_analysis::quantity::{bytes, count};
use heaptide_analysis::views::sizes::only_size;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, Row, TINY_MAX};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "slack",
    title: "Blocks much larger than requested",
    about: "The allocator provides blocks of certain sizes only, and the requests of a line of \
            code are just above one of these sizes, so that much of each block is unused. A \
            smaller structure, or several in one block, fits better.",
    judge,
};

/// The minimal slack, in percent of usable bytes, that is worth a change.
const SLACK_PERCENT_MIN: u64 = 25;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    Judged::Found(material.groups.iter().filter_map(|group| finding(material, group)).collect())
}

fn finding(material: &Material, group: &Group) -> Option<Finding> {
    if material.is_python(group) {
        return None; // programs do not choose the sizes of Python objects
    }
    // For blocks of several sizes, it is unknown how many of the live bytes were requested.
    let is_concerned = |row: &&Row| {
        let size = only_size(&row.measures);
        row.measures.at_peak_blocks > 0 && size.is_some_and(|size| size > TINY_MAX)
    };
    let rows: Vec<Row> = group.rows.iter().filter(is_concerned).copied().collect();
    let place = material.place(&rows, |m| m.at_peak_bytes)?;
    let requested = rows.iter().fold(0u64, |sum, row| {
        let bytes =
            only_size(&row.measures).unwrap_or(0).saturating_mul(row.measures.at_peak_blocks);
        sum.saturating_add(bytes)
    });
    let m = place.measures;
    let slack = m.at_peak_bytes.saturating_sub(requested);
    if slack < m.at_peak_bytes / 100 * SLACK_PERCENT_MIN || !material.is_much(slack) {
        return None;
    }
    let [mean, given] = [requested, m.at_peak_bytes].map(|bytes| bytes / m.at_peak_blocks);
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: format!("gets {} where it requests {}", bytes(given), bytes(mean)),
        evidence: vec![format!(
            "{} blocks at peak have {}, of which {} were requested",
            count(m.at_peak_blocks),
            bytes(m.at_peak_bytes),
            bytes(requested)
        )],
        advice: "Make the structure smaller than the next lower size of the allocator, or \
                 allocate several at once."
            .to_owned(),
        saves: Saves { peak_bytes: slack, ..Saves::default() },
        certainty: Certainty::Certain,
    })
}
