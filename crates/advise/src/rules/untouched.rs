//! Memory that is requested but not used: its pages were never written.
//!
//! The saving is a lower bound: the untouched bytes that cannot belong to any other line.

use heaptide_analysis::model::{Measures, Mode, Process, SiteKind};
use heaptide_analysis::quantity::bytes;
use heaptide_analysis::views::memory::Memory;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, Row};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "untouched",
    title: "Requests far larger than needed",
    about: "At peak usage, a line of code holds large blocks most of whose pages were never \
            written: buffers that are far larger than their contents, or containers that are mostly \
            empty. They count towards peak usage and limits of address space, and become resident \
            once they are cleared or copied.",
    judge,
};

/// The size, in bytes, from which a block has its own pages; smaller blocks share a page with
/// others and with allocator data.
const LARGE_MIN: u64 = 8192;
/// The minimal part of a line's blocks that was never written, in percent.
const UNTOUCHED_PERCENT_MIN: u64 = 50;
/// Allocators may keep less than this in reserve, in bytes.
const UNTOUCHED_MIN: u64 = 1 << 20;
/// The minimal live bytes at an account near the peak, in percent of peak usage.
const NEAR_PEAK_PERCENT_MIN: u64 = 95;
/// The minimal time between the first and the last such account, in percent of the run, because
/// memory may be allocated some time before it is filled.
const TIME_PERCENT_MIN: u64 = 10;

fn judge(material: &Material) -> Judged {
    let process = material.process;
    if process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    if process.time.accounts.is_empty() {
        return Judged::Needs(match process.identity.images {
            1 => "accounts of resident memory: record a longer run",
            _ => "accounts of one process: choose it with `--process`",
        });
    }
    let Some(untouched) = untouched_at_peak(process) else { return Judged::Found(Vec::new()) };
    let heap = process.tables.sites.iter().filter(|site| site.kind == SiteKind::Heap);
    let large = heap.fold(0u64, |sum, site| sum.saturating_add(large_bytes(&site.measures)));
    let findings =
        material.groups.iter().filter_map(|group| finding(material, group, untouched, large));
    Judged::Found(findings.collect())
}

/// Returns the live bytes near the peak that have no resident page: the minimum over several
/// accounts, because pages may be written some time after their allocation.
fn untouched_at_peak(process: &Process) -> Option<u64> {
    let least = process.totals.peak_bytes / 100 * NEAR_PEAK_PERCENT_MIN;
    let near: Vec<(u64, u64)> = Memory::over_time(process)
        .filter(|memory| memory.account.live_bytes >= least)
        .filter_map(|memory| Some((memory.account.time_ns, untouched(&memory)?)))
        .collect();
    let (first, last) = (near.first()?.0, near.last()?.0);
    let is_long =
        last.saturating_sub(first) >= process.lifetime.duration_ns / 100 * TIME_PERCENT_MIN;
    near.iter().map(|(_, bytes)| *bytes).min().filter(|_| is_long)
}

fn untouched(memory: &Memory) -> Option<u64> {
    let heap = memory.row("heap").filter(|heap| heap.swap_bytes == 0)?;
    let live = heap.children.iter().filter(|row| row.name.starts_with("live "));
    let absent = live.map(|row| row.size_bytes.saturating_sub(row.resident_bytes));
    Some(absent.fold(0, u64::saturating_add))
}

/// Returns the bytes at peak of blocks that have their own pages.
fn large_bytes(m: &Measures) -> u64 {
    let is_large = m.at_peak_bytes / m.at_peak_blocks.max(1) >= LARGE_MIN;
    if is_large { m.at_peak_bytes } else { 0 }
}

/// Checks a line of a process with `untouched` bytes, of `large` bytes in blocks with their own
/// pages. The owners of untouched pages are unknown; a line has at least those that exceed the size
/// of all other lines.
fn finding(material: &Material, group: &Group, untouched: u64, large: u64) -> Option<Finding> {
    let is_large = |row: &&Row| large_bytes(&row.measures) > 0;
    let rows: Vec<Row> = group.rows.iter().filter(is_large).copied().collect();
    let process = material.process;
    let place = material.place(&rows, |m| m.at_peak_bytes)?;
    let m = place.measures;
    let others = large.saturating_sub(m.at_peak_bytes);
    // An account is taken while a block is allocated, which has not been written yet. Blocks that
    // are never replaced are the same at all accounts near the peak, if these need them.
    let is_needed =
        m.at_peak_bytes > process.totals.peak_bytes / 100 * (100 - NEAR_PEAK_PERCENT_MIN);
    let stay = m.allocations == m.at_peak_blocks && m.reallocations == 0 && is_needed;
    let new = if stay { 0 } else { m.largest_bytes };
    let written = others.saturating_add(new);
    let at_least = untouched.min(m.at_peak_bytes).saturating_sub(written);
    if at_least < UNTOUCHED_MIN
        || at_least < m.at_peak_bytes / 100 * UNTOUCHED_PERCENT_MIN
        || !material.is_much(at_least)
    {
        return None;
    }
    let is_container = m.reallocations > 0;
    let subject = if is_container { "containers" } else { "blocks" };
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: format!(
            "holds {subject} of {} at peak, of which {} or more were never written",
            bytes(m.at_peak_bytes),
            bytes(at_least)
        ),
        evidence: vec![
            format!("of the live bytes at peak, {} are in pages never written", bytes(untouched)),
            format!("all other large blocks have {} in total", bytes(others)),
        ],
        advice: if is_container {
            "Let the containers grow by less, or shrink them once they are filled.".to_owned()
        } else {
            "Request only what is needed, and more when it is needed.".to_owned()
        },
        saves: Saves { peak_bytes: at_least, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}
