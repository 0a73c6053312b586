//! Output for GitHub: workflow commands, which it shows as annotations of lines.
//! <https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions>

use std::io::{self, Write};

use crate::links::Sources;
use crate::result::Findings;

/// Writes an error for each exceeded limit, at the line of the owner with the largest contribution,
/// and a notice otherwise.
///
/// # Errors
///
/// Those of `out`.
pub fn write(out: &mut dyn Write, findings: &Findings, sources: &Sources) -> io::Result<()> {
    for finding in findings.all.iter().filter(|finding| finding.is_exceeded) {
        let title = property(&format!("heaptide: {}", finding.name));
        let place = finding.owners.first().and_then(|owner| owner.place.as_ref());
        let file = place.and_then(|place| Some((sources.relative(place)?, place.line)));
        let at = file.map(|(file, line)| format!("file={},line={line},", property(&file)));
        let at = at.unwrap_or_default();
        writeln!(out, "::error {at}title={title}::{}", message(&finding.sentence()))?;
    }
    if findings.exceeded() == 0 {
        let all = findings.all.len();
        writeln!(out, "::notice title=heaptide::all {all} memory limits kept")?;
    }
    findings
        .notes
        .iter()
        .try_for_each(|note| writeln!(out, "::warning title=heaptide::{}", message(note)))
}

fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_end_a_command_are_escaped() {
        assert_eq!(message("5% of\na::b"), "5%25 of%0Aa::b");
        assert_eq!(property("a::f<x, y>"), "a%3A%3Af<x%2C y>");
    }
}
