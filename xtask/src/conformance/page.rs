//! The page `docs/conformance.md`: an introduction, and a section for each tool.

use std::fmt::Write;

use super::row::{Outcome, Row};

const INTRODUCTION: &str = "\
# Conformance

This page lists the tests and examples of other tools, compiled unchanged with the headers and
libraries of `heaptide sdk` and run with the recorder. `cargo xtask conformance TOOL=CHECKOUT`
takes them from a checkout of the tool and rewrites the section of the tool. *Same* means that the
results equal those of the tool itself, where it builds, or those that the test states. A dash marks
a step that the test does not have or that could not be tried.
";

/// Returns the page with new rows of a tool. Sections of other tools are kept; sections have the
/// order of `tools`.
pub fn with_section(old: &str, tools: &[&str], tool: &str, checkout: &str, rows: &[Row]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for &name in tools {
        if name == tool {
            page.push_str(&section(name, checkout, rows));
        } else if let Some(kept) = section_of(old, name) {
            page.push_str(kept);
        }
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn heading(tool: &str) -> String {
    format!("\n## {tool}\n")
}

/// Returns a section, from the empty line before its heading to its last line.
fn section_of<'a>(page: &'a str, tool: &str) -> Option<&'a str> {
    let heading = heading(tool);
    let start = page.find(&heading)?;
    let after = start + heading.len();
    let end = page[after..].find("\n## ").map_or(page.len(), |at| after + at);
    Some(&page[start..end])
}

fn section(tool: &str, checkout: &str, rows: &[Row]) -> String {
    let mut text = heading(tool);
    let _ = write!(text, "\n{checkout}: {}.\n\n", summary(rows));
    text.push_str("| test | compiled | ran | same | remarks |\n|---|---|---|---|---|\n");
    for row in rows {
        let Row { test, compiled, ran, same, why } = row;
        let why = why.replace('|', "\\|").replace('\n', " ");
        let marks = [*compiled, *ran, *same].map(mark);
        let _ = writeln!(text, "| `{test}` | {} | {why} |", marks.join(" | "));
    }
    text
}

/// Counts the rows without a failed step.
fn summary(rows: &[Row]) -> String {
    let has_failed = |row: &&Row| [row.compiled, row.ran, row.same].contains(&Outcome::No);
    let failed = rows.iter().filter(has_failed).count();
    format!("{} of {} without a failure", rows.len() - failed, rows.len())
}

fn mark(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Yes => "yes",
        Outcome::No => "**no**",
        Outcome::NotApplicable => "–",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sections_are_kept() {
        let tools = ["a", "b", "c"];
        let rows = [Row::compared("x.c", Outcome::Yes, "|"), Row::failed("y.c", "exit 1")];
        let one = with_section("", &tools, "b", "b at 12", &rows);
        assert!(one.starts_with(INTRODUCTION) && one.ends_with(" | exit 1 |\n"), "{one}");
        assert!(one.contains("\n## b\n\nb at 12: 1 of 2 without a failure.\n"), "{one}");
        assert!(one.contains("\n| `x.c` | yes | yes | yes | \\| |\n"), "{one}");
        let two = with_section(&one, &tools, "a", "a at 3", &rows[..1]);
        let sections: Vec<&str> = two.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(sections, ["## a", "## b"]);
        assert!(two.contains("| `y.c` | yes | **no** | – | exit 1 |"), "{two}");
        assert_eq!(with_section(&two, &tools, "b", "b at 12", &rows), two);
    }
}
