//! The findings of the page.

use heaptide_advise::{Advice, Finding};
use heaptide_analysis::model::Process;
use serde::Serialize;

use crate::shared::advice::{frame, labels, saves, subject};
use crate::shared::distinct_names::Labels;
use crate::shared::frames;
use crate::shared::names::printable;

/// Maximum number of findings on the page; the first are kept.
const FINDINGS: usize = 20;

/// The findings that the page shows. Serialized as a JSON list, which a server sends on request
/// after the data.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Findings(Vec<FindingEntry>);

impl Findings {
    /// Takes the findings of a process. Only names are kept, because the page may have other
    /// stacks.
    pub fn of(process: &Process, advice: &Advice) -> Findings {
        let first = || advice.findings.iter().take(FINDINGS);
        let labels = labels(process, first());
        Findings(first().map(|finding| FindingEntry::of(&labels, finding)).collect())
    }
}

/// A finding.
#[derive(Debug, Serialize)]
struct FindingEntry {
    rule: &'static str,
    subject: String,
    what: String,
    /// The owner's name as in the tables; null if the finding is about the process.
    owner: Option<String>,
    /// Its source place; empty if unknown.
    place: String,
    evidence: Vec<String>,
    advice: String,
    saves: String,
    certainty: &'static str,
    suppression: String,
}

impl FindingEntry {
    fn of(labels: &Labels, finding: &Finding) -> FindingEntry {
        let process = labels.process;
        let printable = |text: &str| printable(text).into_owned();
        let owner = finding.place.as_ref().map(|place| frame(process, place));
        FindingEntry {
            rule: finding.rule,
            subject: subject(labels, finding),
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
