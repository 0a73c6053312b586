//! Findings as JSON.

use std::io::{self, Write};

use heaptide_advise::{Advice, Finding, Place, RULES, Suppressions};
use heaptide_analysis::model::{Process, Recording};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::document;
use crate::json::entries::MeasuresEntry;
use crate::json::sites::FrameNumbers;
use crate::shared::advice::{labels, subject};
use crate::shared::distinct_names::Labels;
use crate::shared::sequence::seq;

/// Writes at most `top` findings of a process as JSON.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    process: &Process,
    advice: &Advice,
    suppressions: &Suppressions,
    top: Option<usize>,
) -> io::Result<()> {
    let view = View { process, advice, suppressions, top };
    document::write_one(out, recording, process, view)
}

struct View<'a> {
    process: &'a Process,
    advice: &'a Advice,
    suppressions: &'a Suppressions,
    top: Option<usize>,
}

#[derive(serde::Serialize)]
struct RuleEntry {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    /// What the recording lacks to evaluate the rule; null if it was evaluated.
    needs: Option<&'static str>,
}

#[derive(serde::Serialize)]
struct SuppressionEntry<'a> {
    suppression: &'a str,
    findings: usize,
}

impl Serialize for View<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let View { process, advice, suppressions, top } = self;
        let shown = &advice.findings[..top.unwrap_or(usize::MAX).min(advice.findings.len())];
        let stacks = shown.iter().filter_map(|finding| Some(finding.place.as_ref()?.stack));
        let numbers = FrameNumbers::of_stacks(process, stacks);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("peak_bytes", &process.totals.peak_bytes)?;
        map.serialize_entry("allocations", &process.totals.allocations)?;
        map.serialize_entry("frames", &numbers.entries(process))?;
        let labels = &labels(process, shown);
        let findings = shown.iter().map(|finding| Entry { labels, numbers: &numbers, finding });
        map.serialize_entry("findings", &seq(findings))?;
        let rules = RULES.iter().map(|rule| RuleEntry {
            name: rule.name,
            title: rule.title,
            about: rule.about,
            needs: advice.unjudged.iter().find(|u| u.rule.name == rule.name).map(|u| u.needs),
        });
        map.serialize_entry("rules", &seq(rules))?;
        let suppressed = suppressions.texts().zip(&advice.suppressed);
        let suppressed =
            suppressed.map(|(suppression, &findings)| SuppressionEntry { suppression, findings });
        map.serialize_entry("suppressions", &seq(suppressed))?;
        map.end()
    }
}

struct Entry<'a> {
    labels: &'a Labels<'a>,
    numbers: &'a FrameNumbers,
    finding: &'a Finding,
}

#[derive(serde::Serialize)]
struct SavesEntry {
    peak_bytes: u64,
    allocations: u64,
    live_bytes: u64,
    resident_bytes: u64,
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Entry { labels, numbers, finding } = self;
        let process = labels.process;
        let saves = &finding.saves;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("rule", finding.rule)?;
        map.serialize_entry("subject", &subject(labels, finding))?;
        map.serialize_entry("what", &finding.what)?;
        map.serialize_entry("evidence", &finding.evidence)?;
        map.serialize_entry("advice", &finding.advice)?;
        map.serialize_entry("certainty", finding.certainty.name())?;
        let entry = SavesEntry {
            peak_bytes: saves.peak_bytes,
            allocations: saves.allocations,
            live_bytes: saves.live_bytes,
            resident_bytes: saves.resident_bytes,
        };
        map.serialize_entry("saves", &entry)?;
        map.serialize_entry("suppression", &finding.suppression(process))?;
        let place = finding.place.as_ref().map(|place| PlaceEntry { process, numbers, place });
        map.serialize_entry("place", &place)?;
        map.end()
    }
}

struct PlaceEntry<'a> {
    process: &'a Process,
    numbers: &'a FrameNumbers,
    place: &'a Place,
}

impl Serialize for PlaceEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PlaceEntry { process, numbers, place } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("owner", &numbers.of(place.frame))?;
        map.serialize_entry("stack", &numbers.stack(process, place.stack))?;
        map.serialize_entry("stacks", &place.stacks)?;
        map.serialize_entry("sums", &MeasuresEntry(place.measures, process))?;
        map.end()
    }
}
