//! Blocks that are never freed, in a program that frees others.
//!
//! The saving is the memory of these blocks, an upper bound: the program may need some of them at
//! peak.

use std::cmp::Reverse;

use heaptide_analysis::model::{End, Measures, Mode, ScopeId};
use heaptide_analysis::quantity::{bytes, count};
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material};
use crate::rule::{Judged, NEEDS_STACKS, Rule, scope_name};
use crate::rules::lost;

pub(super) const RULE: Rule = Rule {
    name: "never-freed",
    title: "Blocks that are never freed",
    about: "A line of code keeps allocating blocks, none of which is ever freed, in a program that \
            frees nearly all other blocks before it ends. Memory that a program keeps until its \
            end is no fault, and neither are a few blocks that it allocates once.",
    judge,
};

/// A line that runs less often allocates data that exists once.
const BLOCKS_MIN: u64 = 100;
/// The number of blocks that matters even if their bytes are few.
const MANY_BLOCKS: u64 = 10_000;
/// If more lines of code than this never free, the program does not free its data at its end.
const LINES_MAX: usize = 3;
/// The maximal live bytes of other lines, in percent of theirs at peak, in a program that frees its
/// data before it ends.
const OTHERS_LIVE_PERCENT_MAX: u64 = 10;
/// Minimal bytes of other lines at peak: with less, there is no basis for comparison.
const OTHERS_MIN: u64 = 64 << 10;

fn judge(material: &Material) -> Judged {
    let process = material.process;
    if process.mode != Mode::Stacks {
        return Judged::Needs(NEEDS_STACKS);
    }
    if !matches!(process.lifetime.end, End::Exited(_)) {
        return Judged::Needs("a program that exits; this one may free blocks later");
    }
    let is_leaked = |group: &Group| {
        let m = &group.measures;
        m.frees == 0 && m.live_blocks >= BLOCKS_MIN && !material.is_python(group)
    };
    let leaked: Vec<(usize, &Group)> =
        (0..).zip(&material.groups).filter(|(_, group)| is_leaked(group)).collect();
    let mut sum = Measures::default();
    leaked.iter().for_each(|(_, group)| sum.add(&group.measures));
    let totals = &process.totals;
    let live = totals.live_bytes.saturating_sub(sum.live_bytes);
    let at_peak = totals.at_peak_bytes.saturating_sub(sum.at_peak_bytes);
    let frees_others = at_peak >= OTHERS_MIN && live <= at_peak / 100 * OTHERS_LIVE_PERCENT_MAX;
    if !frees_others || leaked.len() > LINES_MAX {
        return Judged::Found(Vec::new());
    }
    let per_scope = per_scope(material);
    // Another rule reports those to which no pointer leads.
    let lost = lost::blocks(material);
    let is_lost = |at: usize, group: &Group| {
        lost.get(&at).is_some_and(|blocks| *blocks >= group.measures.live_blocks / 2)
    };
    let kept = leaked.into_iter().filter(|(at, group)| !is_lost(*at, group));
    let findings = kept.filter_map(|(_, group)| finding(material, group, &per_scope));
    Judged::Found(findings.collect())
}

/// Describes that many other blocks.
fn others(freed: u64) -> String {
    match freed {
        0 => "no other".to_owned(),
        1 => "one other".to_owned(),
        freed => format!("{} others", count(freed)),
    }
}

fn finding(material: &Material, group: &Group, scopes: &Live) -> Option<Finding> {
    let m = &group.measures;
    if !material.is_much(m.live_bytes) && m.live_blocks < MANY_BLOCKS {
        return None;
    }
    let place = material.place(&group.rows, |m| m.live_bytes)?;
    let mut evidence = vec![format!(
        "{} blocks with {} in total, none of which is freed; the program frees {}",
        count(m.live_blocks),
        bytes(m.live_bytes),
        others(material.process.totals.frees)
    )];
    let of_scope = scopes.sentence(material, group);
    let certainty = if of_scope.is_some() { Certainty::Likely } else { Certainty::Possible };
    evidence.extend(of_scope);
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: format!("allocates {} blocks that are never freed", count(m.live_blocks)),
        evidence,
        advice: "Free each block when it is no longer needed, or reuse it.".to_owned(),
        saves: Saves { peak_bytes: m.at_peak_bytes, live_bytes: m.live_bytes, ..Saves::default() },
        certainty,
    })
}

/// Live blocks of each stack, by the scope of their allocation.
struct Live(FxHashMap<u32, Vec<(ScopeId, u64)>>);

fn per_scope(material: &Material) -> Live {
    let mut live: FxHashMap<u32, Vec<(ScopeId, u64)>> = FxHashMap::default();
    for site in &material.process.tables.sites {
        if site.scope != ScopeId(0) && site.measures.live_blocks > 0 {
            live.entry(site.stack.0).or_default().push((site.scope, site.measures.live_blocks));
        }
    }
    Live(live)
}

impl Live {
    /// Describes how many blocks each execution of a scope leaves, if all of them come from one
    /// scope.
    fn sentence(&self, material: &Material, group: &Group) -> Option<String> {
        let rows = group.rows.iter().filter_map(|row| self.0.get(&row.stack.0)).flatten();
        let (scope, _) = rows.clone().max_by_key(|(scope, blocks)| (*blocks, Reverse(*scope)))?;
        let blocks: u64 =
            rows.filter(|(of, _)| of == scope).fold(0u64, |sum, (_, of)| sum.saturating_add(*of));
        let of = material.process.tables.scopes.get(scope.0 as usize)?;
        if blocks < group.measures.live_blocks
            || of.entered == 0
            || !blocks.is_multiple_of(of.entered)
        {
            return None;
        }
        let (each, passes) = (blocks / of.entered, of.entered);
        Some(format!(
            "each of {} passes through scope {} leaves {}",
            count(passes),
            scope_name(of),
            count(each)
        ))
    }
}
