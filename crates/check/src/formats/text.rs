//! Output for a terminal: a line per limit, and below exceeded ones the responsible owners.

use std::io::{self, Write};

use heaptide_render::shared::names::printable;

use super::OWNERS;
use crate::result::{Finding, Findings};

/// The most characters to which names of rules are padded.
const NAME_MAX: usize = 60;

/// Writes the results.
///
/// # Errors
///
/// Those of `out`.
pub fn write(out: &mut dyn Write, findings: &Findings) -> io::Result<()> {
    let answer = &findings.answer;
    answer.sentence.iter().try_for_each(|sentence| writeln!(out, "{}", printable(sentence)))?;
    writeln!(out, "{}", printable(&findings.subject))?;
    let shown = answer.subject.iter();
    shown.into_iter().try_for_each(|says| writeln!(out, "  subject   {}", printable(says)))?;
    let widest = findings.all.iter().map(|finding| finding.name.chars().count()).max();
    let width = widest.unwrap_or(0).min(NAME_MAX);
    for finding in &findings.all {
        let verdict = if finding.is_exceeded { "EXCEEDED" } else { "ok" };
        let name = printable(&finding.name);
        let change = finding.change_from_baseline();
        let change = change.map_or(String::new(), |change| format!(", {change} from the baseline"));
        writeln!(out, "  {verdict:8}  {name:width$}  {}{change}", finding.measured())?;
        owners(out, finding)?;
    }
    findings.notes.iter().try_for_each(|note| writeln!(out, "  note: {}", printable(note)))
}

fn owners(out: &mut dyn Write, finding: &Finding) -> io::Result<()> {
    for owner in finding.owners.iter().take(OWNERS) {
        let place = owner.place.as_ref();
        let place = place.map_or(String::new(), |p| format!("  {}:{}", p.file, p.line));
        writeln!(out, "              {}", printable(&format!("{}{place}", finding.shown(owner))))?;
    }
    match finding.owners.len().saturating_sub(OWNERS) {
        0 => Ok(()),
        more => writeln!(out, "              {more} more"),
    }
}
