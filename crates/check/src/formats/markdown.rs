//! Output for a comment on a pull request: limits as a table, and for each exceeded one the owners
//! that changed, with links to their lines.

use std::io::{self, Write};

use crate::links::Sources;
use crate::result::{Finding, Findings, Responsible};

/// The most owners per limit.
const OWNERS: usize = 10;

/// Writes the results.
///
/// # Errors
///
/// Those of `out`.
pub fn write(out: &mut dyn Write, findings: &Findings, sources: &Sources) -> io::Result<()> {
    if let Some(sentence) = &findings.answer.sentence {
        writeln!(out, "{}\n", marked(sentence))?;
    }
    let (all, exceeded) = (findings.all.len(), findings.exceeded());
    match exceeded {
        0 => writeln!(out, "### Memory: all {all} limits kept\n")?,
        _ => writeln!(out, "### Memory: {exceeded} of {all} limits exceeded\n")?,
    }
    writeln!(out, "{}\n", code(&findings.subject))?;
    if let Some(says) = &findings.answer.subject {
        writeln!(out, "Subject: {}\n", escape(says))?;
    }
    writeln!(out, "| | limit on | at most | baseline | now | change |")?;
    writeln!(out, "|---|---|--:|--:|--:|--:|")?;
    findings.all.iter().try_for_each(|finding| row(out, finding))?;
    for finding in findings.all.iter().filter(|finding| !finding.owners.is_empty()) {
        owners(out, finding, sources)?;
    }
    findings.notes.iter().try_for_each(|note| writeln!(out, "\n> {}", escape(note)))
}

fn row(out: &mut dyn Write, finding: &Finding) -> io::Result<()> {
    let amount = |value: u64| finding.limit.quantity.amount(value);
    let verdict = if finding.is_exceeded { "**exceeded**" } else { "ok" };
    let before = finding.before.map_or("-".to_owned(), amount);
    let change = finding.change_from_baseline().unwrap_or_else(|| "-".to_owned());
    let (name, now) =
        (code(&finding.name), format!("{}{}", amount(finding.value), finding.interval_shown()));
    writeln!(out, "| {verdict} | {name} | {} | {before} | {now} | {change} |", finding.limit)
}

fn owners(out: &mut dyn Write, finding: &Finding, sources: &Sources) -> io::Result<()> {
    let name = code(&finding.name);
    let has_baseline = finding.owners.iter().any(|owner| owner.before.is_some());
    if has_baseline {
        writeln!(out, "\n{name}: functions that grew\n")?;
        writeln!(out, "| function | baseline | now | change |\n|---|--:|--:|--:|")?;
    } else {
        writeln!(out, "\n{name}: functions with most\n")?;
        writeln!(out, "| function | now |\n|---|--:|")?;
    }
    for owner in finding.owners.iter().take(OWNERS) {
        let amount = |value: u64| finding.limit.quantity.amount(value);
        write!(out, "| {} | ", linked(owner, sources))?;
        match owner.before {
            Some(before) => writeln!(
                out,
                "{} | {} | {} |",
                amount(before),
                amount(owner.value),
                finding.change(owner.growth())
            )?,
            None => writeln!(out, "{} |", amount(owner.value))?,
        }
    }
    match finding.owners.len().saturating_sub(OWNERS) {
        0 => Ok(()),
        more => writeln!(out, "\n{more} more"),
    }
}

/// Formats a function, with a link to its line or the name of the file.
fn linked(owner: &Responsible, sources: &Sources) -> String {
    let name = code(&owner.short_name());
    let Some(place) = &owner.place else { return name };
    match sources.link(place) {
        Some(link) => format!("[{name}]({link})"),
        None => {
            let file = sources.relative(place).unwrap_or_else(|| place.file.to_string());
            format!("{name} in {}", code(&format!("{file}:{}", place.line)))
        }
    }
}

/// Formats a name as code in a table cell.
fn code(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let name = name.replace('|', "\\|");
    // A run of backticks ends at a run of the same length.
    let longest = name.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!("{fence}{space}{name}{space}{fence}")
}

/// Formats a sentence whose names are between backticks.
fn marked(sentence: &str) -> String {
    let parts: Vec<&str> = sentence.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escape(sentence); // a name contains a backtick
    }
    let part = |(at, text): (usize, &&str)| if at % 2 == 0 { escape(text) } else { code(text) };
    parts.iter().enumerate().map(part).collect()
}

/// Escapes all markup in a text.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, c| {
        if "\\`*_{}[]<>#|!~".contains(c) {
            escaped.push('\\');
        }
        escaped.push(if c.is_control() { ' ' } else { c });
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_formatted_as_code() {
        assert_eq!(code("f<int>"), "`f<int>`");
        assert_eq!(code("a|b"), "`a\\|b`");
        assert_eq!(code("a`b"), "`` a`b ``");
        assert_eq!(code("a\nb"), "`a b`");
        assert_eq!(escape("a*b"), "a\\*b");
        assert_eq!(marked("`f<int>` holds *most*"), "`f<int>` holds \\*most\\*");
        assert_eq!(marked("`a`b` holds"), "\\`a\\`b\\` holds");
    }
}
