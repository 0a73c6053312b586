//! Very many blocks that are hardly larger than the allocator's overhead per block.
//!
//! The overhead of these blocks is saved, an upper bound: a pool has a header for each chunk, and
//! its last chunk is partly empty. Of the overhead, peak usage contains the unused bytes of blocks,
//! but not the allocator's headers, which are only resident. The saving of allocations is the
//! number of blocks without the chunks that all of them would fill, a lower bound, because a pool
//! reuses its blocks. If sizes differ, the overhead is computed from the mean size of all blocks of
//! the line.

use heaptide_analysis::model::Mode;
use heaptide_analysis::quantity::{bytes, count};
use heaptide_analysis::views::sizes::only_size;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, TINY_MAX};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "tiny-blocks",
    title: "Very many tiny blocks",
    about: "At peak usage, a line of code holds very many blocks that are hardly larger than the \
            allocator's overhead for each. A pool that takes them from larger chunks, an array of \
            values instead of pointers, or sharing equal values avoids this overhead.",
    judge,
};

/// glibc's header before each block, in bytes.
const HEADER_BYTES: u64 = 8;
/// Fewer blocks at peak are not worth a pool.
const BLOCKS_MIN: u64 = 10_000;
/// The size of a chunk of a pool, in bytes, which replaces many blocks.
const CHUNK_BYTES: u64 = 4096;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    let has_headers =
        material.process.time.accounts.last().is_some_and(|account| account.glibc().is_some());
    let header = if has_headers { HEADER_BYTES } else { 0 };
    let findings = material.groups.iter().filter_map(|group| finding(material, group, header));
    Judged::Found(findings.collect())
}

/// Returns the mean, rounded to the nearest number.
fn rounded(sum: u64, count: u64) -> u64 {
    sum.saturating_add(count / 2) / count.max(1)
}

/// Checks a line whose blocks cost the allocator `header` bytes each, in addition to their usable
/// bytes.
fn finding(material: &Material, group: &Group, header: u64) -> Option<Finding> {
    let m = &group.measures;
    if m.at_peak_blocks < BLOCKS_MIN || m.largest_bytes > TINY_MAX {
        return None;
    }
    // The requested bytes of blocks at peak are not recorded; they are estimated from the ratio for
    // all blocks.
    let requested = m.requested_bytes as f64 / m.usable_bytes.max(1) as f64;
    let requested = (m.at_peak_bytes as f64 * requested.min(1.0)).round() as u64;
    let mean = rounded(requested, m.at_peak_blocks);
    let headers = header.saturating_mul(m.at_peak_blocks);
    let slack = m.at_peak_bytes.saturating_sub(requested);
    let overhead = slack.saturating_add(headers);
    if !material.is_much(overhead) {
        return None;
    }
    let average = if only_size(m).is_some() { "" } else { " on average" };
    let chunks = mean.saturating_mul(m.allocations).div_ceil(CHUNK_BYTES);
    let advice = if material.is_python(group) {
        "Hold plain numbers in an `array` or a numpy array, or process them one at a time."
    } else {
        "Take them from a pool, hold the values themselves in an array, or share equal ones."
    };
    Some(Finding {
        rule: RULE.name,
        place: material.place(&group.rows, |m| m.at_peak_blocks),
        what: format!("holds {} blocks of {mean} bytes{average} at peak", count(m.at_peak_blocks)),
        evidence: vec![format!(
            "the allocator needs {} bytes for each{average}: {} of {} are overhead",
            rounded(m.at_peak_bytes, m.at_peak_blocks).saturating_add(header),
            bytes(overhead),
            bytes(m.at_peak_bytes.saturating_add(headers)),
        )],
        advice: advice.to_owned(),
        saves: Saves {
            peak_bytes: slack,
            resident_bytes: headers,
            allocations: m.allocations.saturating_sub(chunks),
            ..Saves::default()
        },
        certainty: Certainty::Likely,
    })
}
