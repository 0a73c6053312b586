//! Blocks of equal sizes that each execution of a scope allocates and frees.
//!
//! The saving is the number of these blocks without those of one execution, which are kept. A block
//! that a label describes counts once.

use std::cmp::Reverse;

use heaptide_analysis::model::{Measures, Mode, ScopeId, Site, SiteKind, StackId, Sum};
use heaptide_analysis::quantity::{bytes, count, counted};
use heaptide_analysis::views::scopes::{self, ScopeSums};
use heaptide_analysis::views::sizes::only_size;
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Material, Row};
use crate::rule::{Judged, Rule, scope_name};

pub(super) const RULE: Rule = Rule {
    name: "per-iteration",
    title: "The same blocks in each iteration",
    about: "Each pass through a scope allocates the same number of blocks of the same sizes as the \
            pass before, and frees them. Allocate them before the loop and reuse them, or take \
            them from an arena that is reset at the end of each pass.",
    judge,
};

/// The number of executions of a scope from which equal numbers are not random.
const PASSES_MIN: u64 = 16;
/// Minimal allocations of all executions; a few large blocks matter as much as many small ones.
const ALLOCATIONS_MIN: u64 = 256;
/// The part of a scope's allocations that must be equal in each execution, in percent.
const SAME_PERCENT_MIN: u64 = 90;
/// The minimal fraction of all allocations, or of all allocated bytes, for a scope.
const PART_OF_ALL: u64 = 20;
/// The most sizes to list.
const SIZES: usize = 4;

fn judge(material: &Material) -> Judged {
    let process = material.process;
    let scopes = &process.tables.scopes;
    if process.mode == Mode::Counters || scopes.len() < 2 {
        return Judged::Needs(
            "scopes: mark the loops of the program with the interface, such as \
             `heaptide_begin_int`",
        );
    }
    let sums = scopes::sums(process, None);
    // Blocks freed in a scope, or in scopes nested in it.
    let mut freed: Vec<u64> = scopes.iter().map(|scope| scope.frees_here).collect();
    for index in (1..scopes.len()).rev() {
        let parent = scopes[index].parent.0 as usize;
        freed[parent] = freed[parent].saturating_add(freed[index]);
    }
    let totals = &process.totals;
    // The outermost scope with this property gets the finding.
    let mut within: Vec<Option<usize>> = vec![None; scopes.len()];
    let mut loops: Vec<Loop> = Vec::new();
    for index in 1..scopes.len() {
        within[index] = within[scopes[index].parent.0 as usize];
        let (m, passes) = (&sums[index].inclusive, scopes[index].entered);
        let is_large = m.allocations >= totals.allocations / PART_OF_ALL
            || m.usable_bytes >= totals.usable_bytes / PART_OF_ALL;
        // The last execution may not have finished.
        let frees = m.frees.min(freed[index]);
        let is_freed = frees.saturating_add(m.allocations / passes.max(1)) >= m.allocations;
        if within[index].is_none()
            && passes >= PASSES_MIN
            && m.allocations >= ALLOCATIONS_MIN
            && is_large
            && is_freed
        {
            within[index] = Some(loops.len());
            let scope = ScopeId(index as u32);
            loops.push(Loop { scope, passes, rows: FxHashMap::default() });
        }
    }
    for site in process.tables.sites.iter().filter(|site| site.kind == SiteKind::Heap) {
        if let Some(of) = within[site.scope.0 as usize] {
            loops[of].add(site);
        }
    }
    Judged::Found(loops.iter().filter_map(|of| of.finding(material, &sums)).collect())
}

/// A repeated scope.
struct Loop {
    scope: ScopeId,
    passes: u64,
    /// By stack, and by size if recorded: sums over all executions, including nested scopes.
    rows: FxHashMap<(StackId, Option<u64>), Sum>,
}

impl Loop {
    fn add(&mut self, site: &Site) {
        self.rows.entry((site.stack, site.size)).or_default().add(site);
    }

    /// Returns the size of a stack's blocks, if all have the same size and each execution allocates
    /// the same number of them.
    fn size(&self, size: Option<u64>, m: &Measures) -> Option<u64> {
        // The last execution may not have finished.
        let is_same = m.allocations >= self.passes - 1
            && (m.allocations.is_multiple_of(self.passes)
                || m.allocations.is_multiple_of(self.passes - 1));
        size.or_else(|| only_size(m)).filter(|_| is_same)
    }

    fn finding(&self, material: &Material, sums: &[ScopeSums]) -> Option<Finding> {
        let m = &sums[self.scope.0 as usize].inclusive;
        let mut rows = Vec::new();
        let mut blocks_of: FxHashMap<u64, u64> = FxHashMap::default();
        for (&(stack, size), sum) in &self.rows {
            let measures = sum.total();
            if let Some(size) = self.size(size, &measures) {
                let blocks = blocks_of.entry(size).or_default();
                *blocks = blocks.saturating_add(measures.allocations);
                rows.push(Row { stack, measures });
            }
        }
        let same = blocks_of.values().fold(0u64, |sum, blocks| sum.saturating_add(*blocks));
        if same < m.allocations / 100 * SAME_PERCENT_MIN {
            return None;
        }
        let place = material.place(&rows, |m| m.usable_bytes)?;
        let each_pass = |sum: u64| sum.div_ceil(self.passes);
        let mut sizes: Vec<(u64, u64)> =
            blocks_of.into_iter().map(|(size, blocks)| (size, each_pass(blocks))).collect();
        sizes.sort_by_key(|(size, blocks)| Reverse((size.saturating_mul(*blocks), *size)));
        let list: Vec<String> = sizes
            .iter()
            .take(SIZES)
            .map(|(size, blocks)| format!("{} of {}", count(*blocks), bytes(*size)))
            .collect();
        let more = match sizes.len().saturating_sub(SIZES) {
            0 => String::new(),
            more => format!(" and {}", counted(more as u64, "more size")),
        };
        let (list, blocks) = (list.join(", "), each_pass(same));
        let all = bytes(each_pass(place.measures.requested_bytes));
        let name = scope_name(&material.process.tables.scopes[self.scope.0 as usize]);
        Some(Finding {
            rule: RULE.name,
            place: Some(place),
            what: format!(
                "allocates the same {} anew in each of {} passes through scope {name}",
                counted(blocks, "block"),
                count(self.passes)
            ),
            evidence: vec![
                format!("in each pass {list}{more}: {all}"),
                format!("{} of its {} allocations, freed in it", count(same), count(m.allocations)),
            ],
            advice: format!(
                "Allocate the blocks before the loop and reuse them, or take them from an arena of \
                 {all} that each pass resets.",
            ),
            saves: Saves { allocations: same.saturating_sub(blocks), ..Saves::default() },
            certainty: Certainty::Likely,
        })
    }
}
