//! Blocks that are allocated in one thread and freed in another.

use heaptide_analysis::model::Mode;
use heaptide_analysis::quantity::count;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material};
use crate::rule::{Judged, NEEDS_STACKS, Rule};

pub(super) const RULE: Rule = Rule {
    name: "cross-thread",
    title: "Blocks freed by another thread",
    about: "Most blocks that a line of code allocates are freed by another thread. Allocators keep \
            free blocks for each thread: such a free has to lock the arena of the other thread or \
            to return the block to it, and the allocating thread finds no free block. Return used \
            blocks to their thread, or pass many blocks at once.",
    judge,
};

/// If most blocks of a line stay in their thread, threads do not wait for each other there; in
/// percent.
const PERCENT_MIN: u64 = 50;

fn judge(material: &Material) -> Judged {
    if material.process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    Judged::Found(material.groups.iter().filter_map(|group| finding(material, group)).collect())
}

fn finding(material: &Material, group: &Group) -> Option<Finding> {
    let m = &group.measures;
    if m.cross_thread_frees < m.frees / 100 * PERCENT_MIN
        || !material.is_many(m.cross_thread_frees)
        || material.is_python(group)
    {
        return None;
    }
    Some(Finding {
        rule: RULE.name,
        place: material.place(&group.rows, |m| m.cross_thread_frees),
        what: format!("allocates {} blocks that other threads free", count(m.cross_thread_frees)),
        evidence: vec![format!(
            "{} of the {} frees of its blocks are in another thread than the allocation",
            count(m.cross_thread_frees),
            count(m.frees)
        )],
        advice: "Return used blocks to the thread that allocates them, or pass many values in one \
                 block."
            .to_owned(),
        saves: Saves { allocations: m.cross_thread_frees, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}
