//! Output for scripts: all results.

use std::io::{self, Write};

use serde::Serialize;

use crate::result::{Finding, Findings, Responsible};

/// The version of the format.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    heaptide: &'static str,
    subject: &'a str,
    answer: Option<&'a str>,
    chosen: Option<&'a str>,
    exceeded: usize,
    limits: Vec<Entry<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    metric: &'static str,
    limit: String,
    exceeded: bool,
    value: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_low: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_high: Option<u64>,
    most: Option<u64>,
    whole: Option<u64>,
    baseline: Option<u64>,
    owners: Vec<OwnerEntry<'a>>,
}

#[derive(Serialize)]
struct OwnerEntry<'a> {
    owner: &'a str,
    value: u64,
    baseline: Option<u64>,
    file: Option<&'a str>,
    line: Option<u32>,
}

/// Writes the results as one JSON object and a newline.
///
/// # Errors
///
/// Those of `out`.
pub fn write(out: &mut dyn Write, findings: &Findings) -> io::Result<()> {
    let document = Document {
        schema: SCHEMA,
        heaptide: env!("CARGO_PKG_VERSION"),
        subject: &findings.subject,
        answer: findings.answer.sentence.as_deref(),
        chosen: findings.answer.subject.as_deref(),
        exceeded: findings.exceeded(),
        limits: findings.all.iter().map(entry).collect(),
        notes: &findings.notes,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    out.write_all(b"\n")
}

fn entry(finding: &Finding) -> Entry<'_> {
    Entry {
        name: &finding.name,
        metric: finding.limit.quantity.name(),
        limit: finding.limit.to_string(),
        exceeded: finding.is_exceeded,
        value: finding.value,
        value_low: finding.interval.map(|interval| interval.low),
        value_high: finding.interval.map(|interval| interval.high),
        most: finding.most(),
        whole: finding.whole,
        baseline: finding.before,
        owners: finding.owners.iter().map(owner).collect(),
    }
}

fn owner(owner: &Responsible) -> OwnerEntry<'_> {
    OwnerEntry {
        owner: &owner.name,
        value: owner.value,
        baseline: owner.before,
        file: owner.place.as_ref().map(|place| &*place.file),
        line: owner.place.as_ref().map(|place| place.line),
    }
}
