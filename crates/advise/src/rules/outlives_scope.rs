//! Blocks that each execution of a scope leaves behind, in a program that is still running or was
//! killed.
//!
//! The saving is the memory of the blocks that are left, an upper bound: the program may still need
//! those of the last executions.

use heaptide_analysis::model::{End, Measures, Mode, ScopeId, SiteKind, Sum};
use heaptide_analysis::quantity::{bytes, count, counted};
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, Row};
use crate::rule::{Judged, Rule, scope_name};

pub(super) const RULE: Rule = Rule {
    name: "outlives-scope",
    title: "Blocks that outlive their scope",
    about: "Each pass through a scope leaves the same number of blocks of a line of code, none of \
            which is ever freed, although the scope frees its other blocks. In a service, this is \
            a leak with each request. The rule `never-freed` covers programs that exit.",
    judge,
};

/// The number of executions of a scope from which equal numbers are not random.
const PASSES_MIN: u64 = 100;
/// Blocks of other lines in the scope, of which it frees …
const OTHERS_MIN: u64 = 100;
/// … this percentage.
const OTHERS_FREED_PERCENT_MIN: u64 = 90;
/// The number of blocks that matters even if their bytes are few.
const MANY_BLOCKS: u64 = 10_000;

fn judge(material: &Material) -> Judged {
    let process = material.process;
    let scopes = &process.tables.scopes;
    if process.mode != Mode::Stacks || scopes.len() < 2 {
        return Judged::Needs("scopes: mark requests with the interface, such as `heaptide_begin`");
    }
    if matches!(process.lifetime.end, End::Exited(_)) {
        return Judged::Found(Vec::new());
    }
    let mut lines: FxHashMap<u32, usize> = FxHashMap::default();
    for (index, group) in material.groups.iter().enumerate() {
        group.rows.iter().for_each(|row| _ = lines.insert(row.stack.0, index));
    }
    let mut of_lines: FxHashMap<(ScopeId, usize), Vec<Row>> = FxHashMap::default();
    let mut all: FxHashMap<ScopeId, Sum> = FxHashMap::default();
    for site in process.tables.sites.iter().filter(|site| site.kind == SiteKind::Heap) {
        let Some(scope) = outermost_loop(material, site.scope) else { continue };
        all.entry(scope).or_default().add(site);
        if let Some(&line) = lines.get(&site.stack.0) {
            let row = Row { stack: site.stack, measures: site.measures };
            of_lines.entry((scope, line)).or_default().push(row);
        }
    }
    let mut found: Vec<(usize, Finding)> = of_lines
        .iter()
        .filter_map(|(&(scope, line), rows)| {
            let group = &material.groups[line];
            Some((line, finding(material, group, scope, rows, &all[&scope].total())?))
        })
        .collect();
    found.sort_by_key(|(line, _)| *line);
    Judged::Found(found.into_iter().map(|(_, finding)| finding).collect())
}

/// Returns the outermost repeated scope around blocks.
fn outermost_loop(material: &Material, innermost: ScopeId) -> Option<ScopeId> {
    let scopes = &material.process.tables.scopes;
    let (mut at, mut found) = (innermost, None);
    while at != ScopeId(0) {
        let scope = scopes.get(at.0 as usize)?;
        if scope.entered >= PASSES_MIN {
            found = Some(at);
        }
        at = scope.parent;
    }
    found
}

/// Checks a line with `rows` in a scope that allocates `all`.
fn finding(
    material: &Material,
    group: &Group,
    scope: ScopeId,
    rows: &[Row],
    all: &Measures,
) -> Option<Finding> {
    let place = material.place(rows, |m| m.live_bytes)?;
    let m = place.measures;
    let of = &material.process.tables.scopes[scope.0 as usize];
    // The last execution may not have finished.
    let passes = [of.entered, of.entered - 1];
    let passes = passes.into_iter().find(|passes| m.live_blocks.is_multiple_of(*passes))?;
    let others = all.allocations.saturating_sub(m.allocations);
    let others_live = all.live_blocks.saturating_sub(m.live_blocks);
    let frees_others = others >= OTHERS_MIN
        && others.saturating_sub(others_live) >= others / 100 * OTHERS_FREED_PERCENT_MIN;
    let is_worth_it = material.is_much(m.live_bytes) || m.live_blocks >= MANY_BLOCKS;
    if m.frees > 0 || m.live_blocks < passes || !frees_others || !is_worth_it {
        return None;
    }
    if material.is_python(group) {
        return None; // the interpreter keeps data for reuse
    }
    let (each, name) = (m.live_blocks / passes, scope_name(of));
    Some(Finding {
        rule: RULE.name,
        place: Some(place),
        what: format!("leaves {} with each pass through scope {name}", counted(each, "block")),
        evidence: vec![
            format!(
                "{} passes left {} blocks of {}, none of which is freed",
                count(passes),
                count(m.live_blocks),
                bytes(m.live_bytes)
            ),
            format!(
                "of {} other blocks of the scope, {} are freed",
                count(others),
                count(others.saturating_sub(others_live))
            ),
        ],
        advice:
            "Free each block at the end of the pass, or bound what is kept from earlier passes."
                .to_owned(),
        saves: Saves { peak_bytes: m.at_peak_bytes, live_bytes: m.live_bytes, ..Saves::default() },
        certainty: Certainty::Likely,
    })
}
