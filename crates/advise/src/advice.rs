//! Collects the findings of a process, sorted by what they save.

use heaptide_analysis::model::Process;

use crate::finding::Finding;
use crate::material::{History, Material};
use crate::rule::{Judged, Rule};
use crate::rules::{FIRST, RULES};
use crate::suppression::Suppressions;

/// The result of all rules for a process.
#[derive(Debug)]
pub struct Advice {
    /// Findings that are not suppressed: memory that grows with the run first, then by savings.
    pub findings: Vec<Finding>,
    /// The number of findings that each suppression suppressed, in the order of suppressions.
    pub suppressed: Vec<usize>,
    /// Rules that lack data.
    pub unjudged: Vec<Unjudged>,
}

/// A rule that lacks data to judge a process.
#[derive(Clone, Copy, Debug)]
pub struct Unjudged {
    /// The rule.
    pub rule: &'static Rule,
    /// What a recording needs for the rule, as words that follow "needs".
    pub needs: &'static str,
    /// Whether the data is recorded only on request, so that outputs for people omit the rule.
    pub is_on_request: bool,
}

impl Advice {
    /// Applies all rules to a process.
    ///
    /// ```
    /// use heaptide_advise::{Advice, History, Suppressions};
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let advice = Advice::of(&process, &History::default(), &Suppressions::none());
    /// assert!(advice.findings.is_empty() && !advice.unjudged.is_empty());
    /// ```
    pub fn of(process: &Process, history: &History, suppressions: &Suppressions) -> Advice {
        let material = Material::of(process, history);
        let mut found = Vec::new();
        let mut unjudged = Vec::new();
        for rule in RULES {
            match (rule.judge)(&material) {
                Judged::Found(findings) => found.extend(findings),
                Judged::Needs(needs) => {
                    unjudged.push(Unjudged { rule, needs, is_on_request: false });
                }
                Judged::NeedsRequest(needs) => {
                    unjudged.push(Unjudged { rule, needs, is_on_request: true });
                }
            }
        }
        let matched = suppressions.matched(process);
        let mut suppressed = vec![0; suppressions.len()];
        found.retain(|finding| match matched.by(process, finding) {
            Some(by) => {
                suppressed[by] += 1;
                false
            }
            None => true,
        });
        // The sort is stable: findings with equal savings stay in the order of the rules.
        let is_later = |finding: &Finding| !FIRST.contains(&finding.rule);
        found.sort_by(|a, b| {
            let by_savings = || b.saves.part(process).total_cmp(&a.saves.part(process));
            is_later(a).cmp(&is_later(b)).then_with(by_savings)
        });
        Advice { findings: found, suppressed, unjudged }
    }

    /// Returns the order of the findings in a few words.
    pub fn order(&self) -> &'static str {
        let comes_first = |finding: &&Finding| FIRST.contains(&finding.rule);
        match self.findings.iter().filter(comes_first).count() {
            0 => "those that save most first",
            _ => "memory that grows first",
        }
    }
}
