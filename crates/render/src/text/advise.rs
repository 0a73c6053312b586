//! Findings as text: each with its stack, its evidence, the advice and the savings.

use std::io::{self, Write};

use heaptide_advise::{Advice, Finding, Suppressions};
use heaptide_analysis::model::Process;
use heaptide_analysis::quantity::{bytes, counted};

use crate::shared::advice::{labels, saves, subject};
use crate::shared::distinct_names::Labels;
use crate::shared::names::printable;
use crate::shared::printed_stack;
use crate::text::caption::caption;
use crate::text::screen::{Screen, Style};
use crate::text::stack_lines;

/// Default number of findings.
const FINDINGS: usize = 10;
/// Lines of a stack, from the owner outwards.
const LINES: usize = 4;
/// Maximum characters of a name.
const NAME: usize = 60;
/// Characters before a place.
const LABEL: usize = 60;

/// Writes the page with at most `top` findings.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut Screen,
    process: &Process,
    advice: &Advice,
    suppressions: &Suppressions,
    top: Option<usize>,
) -> io::Result<()> {
    caption(out, process)?;
    let totals = &process.totals;
    let (peak, allocations) = (bytes(totals.peak_bytes), counted(totals.allocations, "allocation"));
    let findings = match advice.findings.len() {
        0 => "no findings".to_owned(),
        count => format!("{}, {}", counted(count as u64, "finding"), advice.order()),
    };
    let of_heap = if process.completeness.leaves_mappings { " of the heap" } else { "" };
    writeln!(out, "peak usage{of_heap} {peak}, {allocations}: {findings}")?;
    let shown = top.unwrap_or(FINDINGS).min(advice.findings.len());
    let labels = labels(process, &advice.findings[..shown]);
    for (finding, number) in advice.findings.iter().take(shown).zip(1..) {
        writeln!(out)?;
        write_finding(out, &labels, finding, number)?;
    }
    if shown < advice.findings.len() {
        let all = advice.findings.len();
        writeln!(out, "\n{} more; --top {all} shows all", all - shown)?;
    }
    suppressed(out, advice, suppressions)?;
    let unjudged = advice.unjudged.iter().filter(|unjudged| !unjudged.is_on_request);
    for (unjudged, index) in unjudged.zip(0..) {
        let before = if index == 0 { "\n" } else { "" };
        let line = format!("not judged: {} needs {}", unjudged.rule.name, unjudged.needs);
        writeln!(out, "{before}{}", Style::Minor.of(line))?;
    }
    Ok(())
}

fn write_finding(
    out: &mut Screen,
    labels: &Labels,
    finding: &Finding,
    number: usize,
) -> io::Result<()> {
    let process = labels.process;
    let subject = subject(labels, finding);
    let title = format!("{number}. {subject} {}", printable(&finding.what));
    writeln!(out, "{}", Style::Heading.of(title))?;
    if let Some(place) = &finding.place {
        let stack: Vec<_> = process.frames_of(place.owner).collect();
        for line in printed_stack::lines(labels, &stack, LINES, out.fit(NAME)) {
            stack_lines::write(out, "     ", &line, LABEL.min(out.fit(LABEL)))?;
        }
        if place.stacks > 1 {
            let stacks = counted(place.stacks as u64, "stack");
            let line = format!("     ({stacks}; the heaviest is shown)");
            writeln!(out, "{}", Style::Minor.of(line))?;
        }
    }
    for sentence in &finding.evidence {
        writeln!(out, "   - {}", printable(sentence))?;
    }
    writeln!(out, "   {}", printable(&finding.advice))?;
    let (rule, certainty) = (finding.rule, finding.certainty.name());
    writeln!(out, "   Saves up to {}; {rule}, {certainty}", saves(process, &finding.saves))?;
    let suppression = quoted(&finding.suppression(process));
    writeln!(out, "   {}", Style::Minor.of(format!("--suppress {suppression}")))
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Writes how many findings each suppression matched, and which suppressions matched none.
fn suppressed(out: &mut Screen, advice: &Advice, suppressions: &Suppressions) -> io::Result<()> {
    let rows = || suppressions.texts().zip(&advice.suppressed);
    for ((text, count), index) in rows().filter(|(_, count)| **count > 0).zip(0..) {
        let before = if index == 0 { "\n" } else { "" };
        let findings = counted(*count as u64, "finding");
        writeln!(out, "{before}suppressed {findings}: {}", printable(text))?;
    }
    let idle: Vec<&str> = rows().filter(|(_, count)| **count == 0).map(|(text, _)| text).collect();
    if idle.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nsuppressions not used: {}", printable(&idle.join(", ")))
}
