//! Findings as the page shows them.

use heaptide_advise::{Advice, Finding};
use heaptide_analysis::model::Process;
use serde::Serialize;

use crate::shared::advice::{frame, saves, subject};
use crate::shared::frames;
use crate::shared::names::printable;

/// Findings that the page has at most: those that save most.
const FINDINGS: usize = 20;

/// What the page shows of findings; as JSON a list, for a server that is asked for it after the
/// data.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Findings(Vec<FindingEntry>);

impl Findings {
    /// Those of a process. Its stacks may be others than those of the page: only names are kept.
    pub fn of(process: &Process, advice: &Advice) -> Findings {
        let first = advice.findings.iter().take(FINDINGS);
        Findings(first.map(|finding| FindingEntry::of(process, finding)).collect())
    }
}

/// A finding.
#[derive(Debug, Serialize)]
struct FindingEntry {
    rule: &'static str,
    subject: String,
    what: String,
    /// The name of the owner as tables have it; null if the finding is of the process.
    owner: Option<String>,
    /// Its line of source; empty if that is not known.
    place: String,
    evidence: Vec<String>,
    advice: String,
    saves: String,
    certainty: &'static str,
    suppression: String,
}

impl FindingEntry {
    fn of(process: &Process, finding: &Finding) -> FindingEntry {
        let printable = |text: &str| printable(text).into_owned();
        let owner = finding.place.as_ref().map(|place| frame(process, place));
        FindingEntry {
            rule: finding.rule,
            subject: subject(process, finding),
            what: printable(&finding.what),
            owner: owner.and_then(|frame| frame.function.as_deref()).map(printable),
            place: owner.map(|frame| frames::place(process, frame)).unwrap_or_default(),
            evidence: finding.evidence.iter().map(|text| printable(text)).collect(),
            advice: printable(&finding.advice),
            saves: saves(process, &finding.saves),
            certainty: finding.certainty.name(),
            suppression: printable(&finding.suppression(process)),
        }
    }
}
