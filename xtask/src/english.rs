//! Plain English: phrases that are rejected in texts for users, or in any comment.

use std::iter::Peekable;
use std::str::CharIndices;

use crate::problem::Problem;
use crate::text::Text;

/// Rejected phrases, each with a replacement.
type Phrases = [(&'static str, &'static str)];

/// Rejected in documents, help texts and messages.
const USERS: &Phrases = &[
    ("whoever", "the owner, the thread that …"),
    ("whichever", "any, regardless of"),
    ("goes on", "continues"),
    ("go on", "continue"),
    ("is told", "is notified, receives"),
    ("are told", "are notified, receive"),
    ("tells", "reports, returns, distinguishes"),
    ("says", "contains, reports, shows"),
    ("figures", "counters, metrics, numbers"),
    ("put together", "merged"),
    ("for want of", "for lack of"),
];
/// Rejected in documents, help texts, messages and comments.
const ALL: &Phrases = &[
    ("whosever", "of any …"),
    ("the system refused", "the failed call, the path and the error"),
    ("the answer is no", "check failed or nothing found"),
    ("steer", "control"),
    ("steers", "controls"),
    ("steered", "controlled"),
    ("steering", "control"),
    ("made up", "synthetic"),
];
/// Rejected in comments.
const COMMENTS: &Phrases = &[
    ("so many", "this many, `n`"),
    ("goes on", "continues"),
    ("go on", "continue"),
    ("is told", "is notified, receives"),
    ("are told", "are notified, receive"),
    ("was told", "was notified, received"),
    ("tells", "reports, returns, distinguishes"),
    ("says", "contains, reports, shows"),
    ("whichever", "any, regardless of"),
    ("nobody", "no thread, nothing"),
    ("somebody", "another thread, the user"),
    ("anybody", "any thread, anything"),
    ("asked for", "requested"),
    ("asks for", "requests"),
    ("left out", "omitted, excluded"),
    ("leaves out", "omits, excludes"),
    ("given back", "freed, returned, restored"),
    ("gives back", "frees, returns, restores"),
    ("taken back", "reverted, removed"),
    ("put down to", "attributed to"),
    ("handed on", "forwarded, passed on"),
    ("hands on", "forwards, passes on"),
    ("looked at", "read, checked, visited"),
    ("as it was", "unchanged, as before"),
    ("is what", "the noun that the clause describes"),
    ("unharmed", "not affected"),
];
/// Rejected in help texts and messages. Documents explain the term for JSON, CalQL and the file
/// format.
const MESSAGES: &Phrases = &[("lane", "thread"), ("lanes", "threads"), ("guest", "program")];

/// Directories and names of documents for users.
const DOCUMENTS: [&str; 3] = ["docs/", "README.md", "benches/README.md"];
/// The help of the command.
const HELP: &str = "docs/options.md";
/// Crates with messages for users.
const CRATES: [&str; 10] = [
    "analysis",
    "attach",
    "cli",
    "command",
    "control",
    "query",
    "render",
    "sql",
    "supervise",
    "top",
];
/// Suffixes of sources with `//` comments.
const SOURCES: &[&str] = &[".rs", ".c", ".cpp", ".h", ".hpp", ".js"];

/// Returns the rejected phrases of a text.
pub fn check(text: &Text) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut hold = |lines: &[(usize, String)], phrases: &[&Phrases]| {
        for (number, phrase, instead) in found(lines, &phrases.concat()) {
            let what = format!("`{phrase}` is not plain English here; write: {instead}");
            problems.push(Problem::new(&text.path, number, what));
        }
    };
    if text.path == HELP {
        let lines: Vec<_> = text.lines().map(|(n, line)| (n, line.to_owned())).collect();
        hold(&lines, &[USERS, ALL, MESSAGES]);
    } else if DOCUMENTS.iter().any(|start| text.path.starts_with(start))
        && text.path.ends_with(".md")
    {
        hold(&prose(text), &[USERS, ALL]);
    }
    if text.ends_with(SOURCES) {
        let comment = |line: &str| line.split_once("//").map(|(_, comment)| comment.to_owned());
        let comments: Vec<_> = text.lines().filter_map(|(n, l)| Some((n, comment(l)?))).collect();
        hold(&comments, &[ALL, COMMENTS]);
    }
    let sees = |name: &&str| text.path.starts_with(&format!("crates/{name}/src/"));
    if text.path.ends_with(".rs") && CRATES.iter().any(sees) {
        hold(&messages(&text.content), &[USERS, ALL, MESSAGES]);
    }
    problems
}

/// Returns phrases found in lines, with the number of the line in which each starts.
fn found<'a>(
    lines: &'a [(usize, String)],
    phrases: &'a Phrases,
) -> impl Iterator<Item = (usize, &'static str, &'static str)> {
    let next = |i: usize| lines.get(i + 1).filter(|(n, _)| *n == lines[i].0 + 1);
    lines.iter().enumerate().flat_map(move |(i, (number, line))| {
        // A phrase may continue on the next line.
        let more = next(i).map_or("", |(_, line)| line.trim_start());
        let whole = format!("{line} {more}").to_lowercase();
        let begins = move |phrase: &str| {
            let mut at = whole.match_indices(phrase).map(|(at, _)| at);
            at.any(|at| at < line.len() && is_whole(&whole, at, phrase.len()))
        };
        phrases.iter().filter(move |(phrase, _)| begins(phrase)).map(move |&(p, i)| (*number, p, i))
    })
}

/// Returns whether a part of a text is delimited by other characters than those of words.
fn is_whole(text: &str, at: usize, length: usize) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let before = text[..at].chars().next_back();
    !before.is_some_and(is_letter) && !text[at + length..].chars().next().is_some_and(is_letter)
}

/// Returns a document without code and link targets.
fn prose(text: &Text) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if !fenced && !is_fence {
            let spoken: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            let mut parts = spoken.split("](");
            let first = parts.next().unwrap_or("").to_owned();
            let after = |part: &str| part.split_once(')').map_or("", |(_, rest)| rest).to_owned();
            lines.push((number, parts.fold(first, |line, part| line + " " + &after(part))));
        }
    }
    lines
}

/// Returns the string literals of a source that contain spaces, excluding its tests.
fn messages(source: &str) -> Vec<(usize, String)> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or("");
    let mut strings = Vec::new();
    let mut chars = source.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '/' if source[at..].starts_with("//") => drop(chars.find(|(_, c)| *c == '\n')),
            '\'' if source[at..].starts_with("'\"'") => drop(chars.next()),
            '"' => {
                let text = literal(&mut chars);
                if text.contains(' ') {
                    strings.push((source[..at].matches('\n').count() + 1, text));
                }
            }
            _ => {}
        }
    }
    strings
}

/// Returns the rest of a string literal without placeholders; continued lines are joined.
fn literal(chars: &mut Peekable<CharIndices<'_>>) -> String {
    let mut text = String::new();
    while let Some((_, c)) = chars.next() {
        match c {
            '"' => break,
            '{' => while chars.next_if(|(_, c)| !matches!(c, '}' | '"')).is_some() {},
            '\\' => match chars.next() {
                Some((_, '\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some((_, 'n')) => text.push(' '),
                Some((_, other)) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, content: &str) -> Vec<String> {
        let text = Text { path: path.to_owned(), content: content.to_owned() };
        check(&text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn phrases_in_documents_are_found_across_lines() {
        let found = said("docs/a.md", "It Goes\non; so we go one by one.\nSee `figures`.\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("tidy: docs/a.md:1: `goes on` is not"), "{found:?}");
        assert_eq!(said("docs/a.md", "The table of\nfigures.\n").len(), 1);
        assert_eq!(said("docs/a.md", "[table](../README.md#figures)\n").len(), 0);
        // The comments in strings are split, so that this file passes its own check.
        let fenced = concat!("```c\n/", "/ it says\n```\nIt says.\n");
        assert_eq!(said("docs/a.md", fenced).len(), 1);
        assert_eq!(said("docs/a.md", "a lane of the file format").len(), 0);
        assert_eq!(said("a.md", "whoever").len(), 0);
    }

    #[test]
    fn printed_help_is_checked() {
        let help = "```text\n  --per-lane  Show a tree for each lane\n```\n";
        assert_eq!(said("docs/options.md", help).len(), 1);
    }

    #[test]
    fn messages_are_checked_and_names_are_not() {
        let source = concat!(
            "fn f() {\n    let _ = \"the page \\\n        says so\"; /",
            "/ says, \"says so\"\n    key(\"says\");\n}\n"
        );
        // The comment, and in crates with messages for users the message.
        assert_eq!(said("crates/cli/src/a.rs", source).len(), 2);
        assert_eq!(said("crates/recorder/src/a.rs", source).len(), 1);
        assert_eq!(said("crates/sql/src/a.rs", "f(\"{lane} {says}\"); f(\"a lane\")").len(), 1);
        let quote = "if c == '\"' { says() } else { f(\"by lane\") }";
        assert_eq!(said("crates/render/src/a.rs", quote).len(), 1);
        let tests = "#[cfg(test)]\nmod tests { f(\"by lane\") }";
        assert_eq!(said("crates/render/src/a.rs", tests).len(), 0);
    }

    #[test]
    fn comments_are_checked_for_the_worst_phrases() {
        let comment = |text: &str| format!("let x = 1; {} {text}\n", concat!("/", "/"));
        assert_eq!(said("crates/recorder/src/a.rs", &comment("It says whoever steers.")).len(), 2);
        assert_eq!(said("include/a.h", &comment("made up")).len(), 1);
        assert_eq!(said("crates/format/src/a.rs", &comment("It says what it is.")).len(), 1);
        assert_eq!(said("crates/format/src/a.rs", "fn f() { key(\"says\") }").len(), 0);
    }
}
