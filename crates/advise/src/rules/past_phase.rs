//! Blocks of a finished phase that are live at peak usage.
//!
//! The saving is their size, an upper bound: another moment may need nearly as much memory.

use heaptide_analysis::model::{Measures, Mode, Process, ScopeId, Site, SiteKind};
use heaptide_analysis::quantity::{bytes, counted, duration};
use heaptide_analysis::views::open_scopes::OpenScopes;
use rustc_hash::FxHashMap;

use crate::finding::{Certainty, Finding, Saves};
use crate::material::{Group, Material, Row};
use crate::rule::{Judged, Rule, scope_name};

pub(super) const RULE: Rule = Rule {
    name: "past-phase",
    title: "Blocks of a phase that ended before the peak",
    about: "At peak usage, in one scope of the program, large blocks are live that were allocated \
            in another scope, which had already ended, and the scope of the peak does not free \
            them. If they are no longer needed, free them when their phase ends.",
    judge,
};

/// The minimal part of peak usage for blocks of one phase and one line, in percent.
const PEAK_PERCENT_MIN: u64 = 10;
/// The average block size, in bytes, from which blocks are large.
const LARGE_MIN: u64 = 64 << 10;
/// How long before the peak the phase ended, as a fraction of the run.
const RUN_PART_MIN: u64 = 50;
/// The maximal percentage that is freed in scopes that were open at peak, because such scopes still
/// needed it.
const FREED_PERCENT_MAX: u64 = 10;

fn judge(material: &Material) -> Judged {
    let process = material.process;
    if process.mode != Mode::Stacks || process.time.traces.is_empty() {
        return Judged::Needs("a trace: record with `--mode trace`");
    }
    if process.tables.scopes.len() < 3 {
        return Judged::Needs(
            "two scopes or more: mark the phases of the program with the interface",
        );
    }
    // Commands that show the trace report that it cannot be read.
    let Ok(open) = OpenScopes::at_peak(process) else {
        return Judged::Needs("a trace that can be read");
    };
    let mut freed: FxHashMap<u32, Vec<(ScopeId, u64)>> = FxHashMap::default();
    for (&(site, scope), &bytes) in &open.freed {
        freed.entry(site).or_default().push((scope, bytes));
    }
    let phases = Phases { process, open, freed };
    let mut sites: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    for (index, site) in process.tables.sites.iter().enumerate() {
        let is_counted = site.kind == SiteKind::Heap && site.measures.at_peak_bytes > 0;
        if is_counted && phases.ended(site.scope).is_some() {
            sites.entry(site.stack.0).or_default().push(index);
        }
    }
    let findings =
        material.groups.iter().flat_map(|group| phases.findings(material, group, &sites));
    Judged::Found(findings.collect())
}

struct Phases<'a> {
    process: &'a Process,
    open: OpenScopes,
    /// By site, the scopes in which blocks of the peak were freed.
    freed: FxHashMap<u32, Vec<(ScopeId, u64)>>,
}

/// The memory of a line that belongs to a phase.
#[derive(Default)]
struct OfPhase {
    rows: Vec<Row>,
    freed_in_open: u64,
}

impl Phases<'_> {
    /// Returns a scope and the scopes around it, innermost first.
    fn path(&self, innermost: ScopeId) -> impl Iterator<Item = ScopeId> {
        let parent = |at: &ScopeId| Some(self.process.tables.scopes.get(at.0 as usize)?.parent);
        std::iter::successors(Some(innermost), parent).take_while(|at| *at != ScopeId(0))
    }

    fn is_open(&self, scope: ScopeId) -> bool {
        self.open.threads.get(scope.0 as usize).is_some_and(|threads| *threads > 0)
    }

    /// Returns the outermost enclosing scope of blocks that had ended before the peak; `None` if
    /// the innermost is still open.
    fn ended(&self, innermost: ScopeId) -> Option<ScopeId> {
        self.path(innermost).take_while(|at| !self.is_open(*at)).last()
    }

    /// Returns the scopes that were open at peak, except those around a phase.
    fn open_beside(&self, phase: ScopeId) -> Vec<ScopeId> {
        let around: Vec<ScopeId> = self.path(phase).collect();
        let all = (1..self.process.tables.scopes.len()).map(|index| ScopeId(index as u32));
        all.filter(|id| self.is_open(*id) && !around.contains(id)).collect()
    }

    /// Returns the memory of a site that was freed in some scopes, or inside of them.
    fn freed_in(&self, site: usize, scopes: &[ScopeId]) -> u64 {
        let freed = self.freed.get(&(site as u32)).into_iter().flatten();
        let inside = freed.filter(|(scope, _)| self.path(*scope).any(|at| scopes.contains(&at)));
        inside.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn findings(
        &self,
        material: &Material,
        group: &Group,
        sites: &FxHashMap<u32, Vec<usize>>,
    ) -> Vec<Finding> {
        let mut of_phases: Vec<(ScopeId, OfPhase)> = Vec::new();
        for row in &group.rows {
            for &index in sites.get(&row.stack.0).into_iter().flatten() {
                let site: &Site = &self.process.tables.sites[index];
                let Some(phase) = self.ended(site.scope) else { continue };
                let place = of_phases.iter().position(|(of, _)| *of == phase);
                let place = place.unwrap_or_else(|| {
                    of_phases.push((phase, OfPhase::default()));
                    of_phases.len() - 1
                });
                let of = &mut of_phases[place].1;
                of.rows.push(Row { stack: row.stack, measures: site.measures });
                let freed = self.freed_in(index, &self.open_beside(phase));
                of.freed_in_open = of.freed_in_open.saturating_add(freed);
            }
        }
        let finding = |(phase, of): (ScopeId, OfPhase)| self.finding(material, phase, &of);
        of_phases.into_iter().filter_map(finding).collect()
    }

    fn finding(&self, material: &Material, phase: ScopeId, of: &OfPhase) -> Option<Finding> {
        let process = self.process;
        let place = material.place(&of.rows, |m| m.at_peak_bytes)?;
        let m: Measures = place.measures;
        let left_ns = (*self.open.left_ns.get(phase.0 as usize)?)?;
        let before_ns = self.open.peak_ns.saturating_sub(left_ns);
        let is_much = m.at_peak_bytes >= process.totals.peak_bytes / 100 * PEAK_PERCENT_MIN
            && material.is_much(m.at_peak_bytes)
            && m.at_peak_bytes / m.at_peak_blocks.max(1) >= LARGE_MIN;
        if !is_much
            || before_ns < process.lifetime.duration_ns / RUN_PART_MIN
            || of.freed_in_open > m.at_peak_bytes / 100 * FREED_PERCENT_MAX
        {
            return None;
        }
        let name = scope_name(&process.tables.scopes[phase.0 as usize]);
        let open = self.open_beside(phase);
        let innermost = open.iter().max_by_key(|id| self.path(**id).count())?;
        let of_peak = scope_name(&process.tables.scopes[innermost.0 as usize]);
        Some(Finding {
            rule: RULE.name,
            place: Some(place),
            what: format!(
                "has {} live at peak, although the scope {name} had ended",
                counted(m.at_peak_blocks, "block"),
            ),
            evidence: vec![
                format!(
                    "{} of scope {name}, which was left {} before the peak",
                    bytes(m.at_peak_bytes),
                    duration(before_ns)
                ),
                format!("the peak is in scope {of_peak}, which does not free them"),
            ],
            advice: format!("Free them at the end of {name} if they are not needed later."),
            saves: Saves { peak_bytes: m.at_peak_bytes, ..Saves::default() },
            certainty: Certainty::Possible,
        })
    }
}
