//! Blocks that are allocated in one thread and freed in another, again and again.
//!
//! A program that frees its data in the main thread at its end frees blocks of all threads, too.
//! These blocks are live at the same time, so there are at most as many of them as blocks of the
//! process were ever live together. Only frees beyond this number are evidence, and only these
//! allocations can be saved: blocks that are returned and reused are never more than those that
//! are live together.

use heaptide_analysis::model::Mode;
use heaptide_analysis::quantity::count;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material};
use crate::rule::{Judged, NEEDS_STACKS, Rule};
use crate::timeline::live_blocks_max;

pub(super) const RULE: Rule = Rule {
    name: "cross-thread",
    title: "Blocks freed by another thread",
    about: "Most blocks that a line of code allocates are freed by another thread while the \
            program works. Allocators keep free blocks for each thread: such a free has to lock \
            the arena of the other thread or to return the block to it, and the allocating thread \
            finds no free block. Return used blocks to their thread, or pass many blocks at once.",
    judge,
};

/// If most blocks of a line stay in their thread, threads do not wait for each other there; in
/// percent.
const PERCENT_MIN: u64 = 50;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    let Some(live_max) = live_blocks_max(material.process) else {
        return Judged::Needs("samples over time, of one process");
    };
    let groups = material.groups.iter();
    Judged::Found(groups.filter_map(|group| finding(material, group, live_max)).collect())
}

/// Checks a line of a process that never had more than `live_max` live blocks.
fn finding(material: &Material, group: &Group, live_max: u64) -> Option<Finding> {
    let m = &group.measures;
    let at_work = m.cross_thread_frees.saturating_sub(live_max);
    if at_work < m.frees / 100 * PERCENT_MIN
        || !material.is_many(at_work)
        || material.is_python(group)
    {
        return None;
    }
    Some(Finding {
        rule: RULE.name,
        place: material.place(&group.rows, |m| m.cross_thread_frees),
        what: format!("allocates {} blocks that other threads free", count(m.cross_thread_frees)),
        evidence: vec![
            format!(
                "{} of the {} frees of its blocks are in another thread than the allocation",
                count(m.cross_thread_frees),
                count(m.frees)
            ),
            format!(
                "at most {} blocks of the process were live at a time, so {} or more of these \
                 frees were not in a final cleanup",
                count(live_max),
                count(at_work)
            ),
        ],
        advice: "Return used blocks to the thread that allocates them, or pass many values in one \
                 block."
            .to_owned(),
        saves: Saves { allocations: at_work, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}
