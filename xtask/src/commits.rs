//! Checks the subjects of commits: `area: imperative`, short enough for every log.

use std::path::Path;
use std::process::Command;

use crate::commands::output;
use crate::problem::Problem;

/// Older commits are exempt.
const SINCE: &str = "e3099211d3fd174336ac5496f067a1461e19c29b";
/// The longest subject, in characters.
const SUBJECT: usize = 72;

/// Returns the problems of subjects since a fixed commit. Checks nothing if that is missing, as in
/// a shallow clone or a tarball.
pub fn check(root: &Path) -> Vec<Problem> {
    let mut git = Command::new("git");
    git.args(["log", "--no-merges", "--format=%h %s", &format!("{SINCE}..HEAD")]);
    let log = output(git.current_dir(root)).unwrap_or_default();
    log.lines().filter_map(|line| line.split_once(' ')).filter_map(problem).collect()
}

fn problem((commit, subject): (&str, &str)) -> Option<Problem> {
    let length = subject.chars().count();
    let what = if length > SUBJECT {
        format!("a subject of {length} characters, the limit is {SUBJECT}: {subject}")
    } else if !has_area(subject) {
        format!("expected `area: imperative` as the subject: {subject}")
    } else {
        return None;
    };
    Some(Problem::new(&format!("commit {commit}"), 0, what))
}

fn has_area(subject: &str) -> bool {
    let is_of_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/,".contains(c);
    subject.split_once(": ").is_some_and(|(area, rest)| {
        let mut areas = area.split(", ");
        areas.all(|area| !area.is_empty() && area.chars().all(is_of_area))
            && !rest.trim().is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_an_area_and_a_maximal_width() {
        let is_good = |subject: &str| problem(("abc", subject)).is_none();
        assert!(is_good("unwind: keep return addresses in an array of their own"));
        assert!(is_good("cli,docs: rename a flag") && is_good("cli, docs: rename a flag"));
        for bad in ["Clippy's wishes", "Docs: fix", "docs:fix", "docs: ", ": fix", "a b: fix"] {
            assert!(!is_good(bad), "{bad}");
        }
        let wide = |length| format!("docs: {}", "é".repeat(length - 6));
        assert!(is_good(&wide(SUBJECT)) && !is_good(&wide(SUBJECT + 1)));
    }

    #[test]
    fn without_a_repository_there_is_nothing_to_check() {
        assert!(check(Path::new("/")).is_empty());
    }
}
