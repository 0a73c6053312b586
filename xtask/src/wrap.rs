//! Wraps comments that are too wide, which the formatter does not change.

use std::path::Path;

use crate::text;
use crate::tidy::COLUMNS;

/// Wraps wide comments in all files, and prints the names of changed files.
pub fn all(root: &Path) -> Result<(), String> {
    for text in text::all(root)?.iter().filter(|text| text.ends_with(&[".rs", ".c", ".cpp", ".h"]))
    {
        let wrapped = wrap(&text.content);
        if wrapped != text.content {
            println!("wrapped {}", text.path);
            let path = root.join(&text.path);
            std::fs::write(&path, wrapped).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// A parsed comment line.
struct Line<'a> {
    /// Indentation and marker.
    head: &'a str,
    /// The text after the marker and one space.
    body: &'a str,
}

/// Returns the text with wide comments wrapped.
fn wrap(content: &str) -> String {
    let mut out = Vec::new();
    let mut fenced = false;
    let lines: Vec<&str> = content.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let Some(first) = comment(lines[at]) else {
            fenced = false;
            out.extend(trailing(lines[at]));
            at += 1;
            continue;
        };
        fenced ^= first.body.starts_with("```");
        let end = if fenced || !flows(first.body) { at + 1 } else { paragraph(&lines, at) };
        if !fenced && flows(first.body) && lines[at..end].iter().any(|line| is_wide(line)) {
            out.extend(fill(&lines[at..end]));
        } else {
            out.extend(lines[at..end].iter().map(|line| line.to_string()));
        }
        at = end;
    }
    let ending = if content.ends_with('\n') { "\n" } else { "" };
    out.join("\n") + ending
}

fn is_wide(line: &str) -> bool {
    line.chars().count() > COLUMNS
}

fn comment(line: &str) -> Option<Line<'_>> {
    let indent = line.len() - line.trim_start().len();
    let marker = ["//!", "///", "//"].into_iter().find(|m| line[indent..].starts_with(m))?;
    let (head, rest) = line.split_at(indent + marker.len());
    Some(Line { head, body: rest.strip_prefix(' ').unwrap_or(rest) })
}

/// Returns whether a line can be reflowed: prose and list items can; tables, headings, fences and
/// indented code cannot.
fn flows(body: &str) -> bool {
    !body.is_empty() && !body.starts_with(['|', '#', ' ']) && !body.starts_with("```")
}

/// Returns the width of a list item's bullet, 0 for prose.
fn bullet(body: &str) -> usize {
    if body.starts_with("- ") || body.starts_with("* ") {
        return 2;
    }
    let digits = body.chars().take_while(char::is_ascii_digit).count();
    if digits > 0 && body[digits..].starts_with(". ") { digits + 2 } else { 0 }
}

/// Returns the end of the paragraph or item that starts at `from`.
fn paragraph(lines: &[&str], from: usize) -> usize {
    let Some(first) = comment(lines[from]) else {
        return from + 1;
    };
    let indent = bullet(first.body);
    let goes_on = |line: &&&str| {
        comment(line).is_some_and(|next| {
            let hanging = next.body.len() - next.body.trim_start().len();
            let body = next.body.trim_start();
            next.head == first.head && flows(body) && bullet(body) == 0 && hanging == indent
        })
    };
    from + 1 + lines[from + 1..].iter().take_while(goes_on).count()
}

/// Reflows the lines of a paragraph.
fn fill(lines: &[&str]) -> Vec<String> {
    let parts: Vec<Line> = lines.iter().filter_map(|line| comment(line)).collect();
    let head = parts[0].head;
    let hanging = format!("{head}{}", " ".repeat(bullet(parts[0].body)));
    let (mut filled, mut line, mut words) = (Vec::new(), head.to_string(), 0);
    for word in parts.iter().flat_map(|part| part.body.split_whitespace()) {
        if words > 0 && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            filled.push(std::mem::replace(&mut line, hanging.clone()));
            words = 0;
        }
        line.push(' ');
        line.push_str(word);
        words += 1;
    }
    filled.push(line);
    filled
}

/// Moves the comment of a wide line of code to a line above.
fn trailing(line: &str) -> Vec<String> {
    match line.find(" // ") {
        Some(at) if is_wide(line) && !line.contains('"') => {
            let indent = &line[..line.len() - line.trim_start().len()];
            let (code, comment) = line.split_at(at);
            let mut lines = fill(&[&format!("{indent}{}", comment.trim_start())]);
            lines.push(code.trim_end().to_string());
            lines
        }
        _ => vec![line.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        vec!["words"; count].join(" ")
    }

    #[test]
    fn a_wide_paragraph_is_filled_and_keeps_its_words() {
        let before = format!("    /// {}\n    /// {}\n", words(20), words(3));
        let after = wrap(&before);
        assert!(after.lines().all(|line| line.chars().count() <= COLUMNS && line.contains("/// ")));
        assert_eq!(after.matches("words").count(), 23);
        assert_eq!(wrap(&after), after);
    }

    #[test]
    fn items_keep_hanging_indents_and_stay_separate() {
        let after = wrap(&format!("//! - {}\n//! - second\n", words(20)));
        let lines: Vec<&str> = after.lines().collect();
        assert!(lines[0].starts_with("//! - words") && lines[1].starts_with("//!   words"));
        assert_eq!(lines[2], "//! - second");
        assert_eq!(wrap(&after), after);
    }

    #[test]
    fn pictures_tables_and_code_stay() {
        let wide = words(20);
        for same in [
            format!("//! ```text\n//! {wide}\n//! ```\n"),
            format!("//! | {wide} |\n"),
            format!("let x = \"{wide}\";\n"),
        ] {
            assert_eq!(wrap(&same), same);
        }
    }

    #[test]
    fn a_comment_after_wide_code_moves_above_it() {
        let after = wrap(&format!("    let x = 1; // {}\n", words(15)));
        assert_eq!(after, format!("    // {}\n    let x = 1;\n", words(15)));
    }
}
