//! The document of first answers: reads, changes and writes its sections.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::program::Program;
use crate::commands;

const PATH: &str = "docs/first-answers.md";
/// The line of a section that a person writes after reading the answer.
const JUDGED: &str = "Judged: ";
const UNJUDGED: &str = "Judged: not yet.";

const INTRODUCTION: &str = "\
# First answers

Forty programs, and the first ten lines that `heaptide run -- PROGRAM` prints when they end. \
`cargo xtask answers` records them and writes this page; without a name it records all, and \
keeps the sections of programs that the machine lacks. `cargo xtask answers --pictures` takes \
pictures of the first view of their pages.

Numbers differ between versions of the programs, processors and loads. \"Right\" is what an \
engineer who knows the program expects, written before the recording and corrected where the \
expectation was wrong. \"Judged\" compares both; a person writes it, and the command removes it when the \
first line changes by more than its numbers.
";

/// The sections of the document by the name of the program.
pub struct Document {
    sections: BTreeMap<String, String>,
}

impl Document {
    /// Reads the document; it is empty before the first recording.
    pub fn read(root: &Path) -> Result<Document, String> {
        let text = match fs::read_to_string(root.join(PATH)) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(format!("{PATH}: {e}")),
        };
        let section = |part: &str| {
            let (name, rest) = part.split_once('\n')?;
            let end = rest.find("\n## ").map_or(rest.len(), |at| at + 1);
            Some((name.to_string(), rest[..end].trim().to_string()))
        };
        let sections = text.split("\n### ").skip(1).filter_map(section).collect();
        Ok(Document { sections })
    }

    /// Replaces the section of a program.
    pub fn insert(
        &mut self,
        root: &Path,
        program: &Program,
        lines: &[String],
    ) -> Result<(), String> {
        let old = self.sections.get(program.name);
        let first = without_numbers(lines.first().map_or("", |l| l));
        let unchanged =
            |old: &&String| old.lines().nth(3).is_some_and(|line| without_numbers(line) == first);
        let judged = old.filter(unchanged).and_then(|o| o.lines().find(|l| l.starts_with(JUDGED)));
        let mut git = Command::new("git");
        git.args(["log", "-1", "--format=%h", "--abbrev=10"]).current_dir(root);
        let commit = commands::output(&mut git)?;
        let text = format!(
            "```text\n$ heaptide run -- {}\n…\n{}\n```\n\nRight: {}.\n\n{}\n\nRecorded at {}.",
            program.command,
            without_home(&lines.join("\n")),
            program.right,
            judged.unwrap_or(UNJUDGED),
            commit.trim(),
        );
        self.sections.insert(program.name.to_string(), text);
        Ok(())
    }

    /// Writes the document in the order of the table.
    pub fn write(&self, root: &Path, groups: &[(&str, &[Program])]) -> Result<(), String> {
        let judged = |what: &str| {
            let line = format!("\n{JUDGED}{what}");
            self.sections.values().filter(|s| s.contains(&line)).count()
        };
        let mut text = format!(
            "{INTRODUCTION}\n{} programs are recorded here: {} answers are right, {} are right in \
             part, {} are wrong, {} are not judged yet. Each section ends with the commit of its \
             recording.\n",
            self.sections.len(),
            judged("right.") + judged("right:"),
            judged("right in part"),
            judged("wrong"),
            judged("not yet"),
        );
        for (title, programs) in groups {
            text += &format!("\n## {title}\n");
            for program in *programs {
                if let Some(section) = self.sections.get(program.name) {
                    text += &format!("\n### {}\n\n{section}\n", program.name);
                }
            }
        }
        fs::write(root.join(PATH), text).map_err(|e| format!("{PATH}: {e}"))
    }
}

/// Returns a text with `~` in place of the home directory.
fn without_home(text: &str) -> String {
    match std::env::var("HOME") {
        Ok(home) if home.len() > 1 => text.replace(&format!("{home}/"), "~/"),
        _ => text.to_owned(),
    }
}

/// Returns a line without digits, to compare the text of two answers.
fn without_numbers(line: &str) -> String {
    line.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section keeps the judgement of a person while only numbers of its first line change.
    #[test]
    fn keeps_a_judgement_of_the_same_answer() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let program = &super::super::GROUPS[0].1[0];
        let mut document = Document { sections: BTreeMap::new() };
        let mut judged_after = |line: &str| {
            document.insert(root, program, &[line.to_string()]).expect("a section");
            let section = document.sections.get_mut(program.name).expect("the section");
            let kept = !section.contains(UNJUDGED);
            *section = section.replace(UNJUDGED, "Judged: right.");
            kept
        };
        assert!(!judged_after("`build` (a.py:2) holds 22.1 MiB"));
        assert!(judged_after("`build` (a.py:2) holds 9.25 MiB"));
        assert!(!judged_after("`main` (a.py:2) holds 9.25 MiB"));
    }
}
