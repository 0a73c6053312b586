//! Checks that published numbers are not much older than the code that they measure.
//!
//! A file of `benches/results` has the commit at which it was measured. A table that no command
//! writes has it in a comment of its page: `<!-- measured COMMIT: PATH … -->`, with the paths of
//! the code that determines the numbers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::commands::output;
use crate::problem::Problem;
use crate::text::Text;

/// The most commits to the measured code since the measurement.
const COMMITS_MAX: u32 = 200;
/// The directory of results.
const RESULTS: &str = "benches/results/";
/// The beginning of a comment with a commit.
const COMMENT: &str = "<!-- measured ";

/// Code that runs in the recorded program.
const RECORDER: &[&str] = &[
    "crates/format",
    "crates/preload",
    "crates/recorder",
    "crates/relocate",
    "crates/trace",
    "crates/unwind",
];
/// Code that reads recordings and writes their tables.
const READERS: &[&str] = &["crates/analysis", "crates/command", "crates/query", "crates/render"];

/// The code that determines the results of each kind.
const MEASURED: &[(&str, &[&str])] = &[
    ("counts", RECORDER),
    ("interface", RECORDER),
    ("programs", RECORDER),
    ("python", RECORDER),
    ("recordings", RECORDER),
    ("rivals", RECORDER),
    ("reading", READERS),
];

/// A measurement: where its commit is stored, the commit, and the paths of the measured code.
#[derive(PartialEq, Eq, Debug)]
struct Measured<'a> {
    file: &'a str,
    line: usize,
    commit: String,
    paths: Vec<&'a str>,
}

/// Returns a problem for each measurement that is too old. Without the history, as in a tarball or
/// a shallow clone, prints a note instead.
pub fn check(root: &Path, texts: &[Text]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut measured: Vec<Measured<'_>> = texts.iter().flat_map(of_page).collect();
    for text in texts.iter().filter(|text| is_results(text)) {
        match of_results(text) {
            Ok(one) => measured.push(one),
            Err(what) => problems.push(Problem::new(&text.path, 1, what)),
        }
    }
    if !has_history(root) {
        eprintln!("tidy: without the history of git, the age of results is not checked");
        return problems;
    }
    problems.extend(measured.iter().filter_map(|one| {
        let what = too_old(one, commits_since(root, one))?;
        Some(Problem::new(one.file, one.line, what))
    }));
    problems
}

fn is_results(text: &Text) -> bool {
    text.path.starts_with(RESULTS) && text.path.ends_with(".json")
}

/// Returns the measurement of a file of results.
///
/// Errors: it has no kind or commit, or the kind is unknown.
fn of_results(text: &Text) -> Result<Measured<'_>, String> {
    let stored: Value = serde_json::from_str(&text.content).map_err(|error| error.to_string())?;
    let field = |name: &str| {
        let value = stored[name].as_str().filter(|value| is_word(value));
        value.ok_or_else(|| format!("no `{name}`; `cargo xtask bench --store` writes it"))
    };
    let (kind, commit) = (field("kind")?, field("commit")?.to_owned());
    let paths = MEASURED.iter().find(|(known, _)| *known == kind);
    let (_, paths) =
        paths.ok_or_else(|| format!("kind `{kind}` is not in the list of {}", file!()))?;
    Ok(Measured { file: &text.path, line: 1, commit, paths: paths.to_vec() })
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns the measurements that comments of a page name.
fn of_page(text: &Text) -> Vec<Measured<'_>> {
    if !text.path.ends_with(".md") {
        return Vec::new();
    }
    let comments = text.lines().filter_map(|(line, content)| {
        let (commit, paths) =
            content.strip_prefix(COMMENT)?.strip_suffix(" -->")?.split_once(": ")?;
        let (commit, paths) = (commit.to_owned(), paths.split(' ').collect());
        Some(Measured { file: &text.path, line, commit, paths })
    });
    comments.collect()
}

/// Returns whether all commits are known here.
fn has_history(root: &Path) -> bool {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--is-shallow-repository"]).current_dir(root);
    output(&mut git).is_ok_and(|answer| answer.trim() == "false")
}

/// Returns the number of commits to the measured code since the measurement; `None` if its commit
/// is not part of the history.
fn commits_since(root: &Path, measured: &Measured<'_>) -> Option<u32> {
    let mut ancestor = Command::new("git");
    ancestor.args(["merge-base", "--is-ancestor", &measured.commit, "HEAD"]).current_dir(root);
    output(&mut ancestor).ok()?;
    let mut count = Command::new("git");
    count.args(["rev-list", "--count", &format!("{}..HEAD", measured.commit), "--"]);
    output(count.args(&measured.paths).current_dir(root)).ok()?.trim().parse().ok()
}

/// Returns the problem with a measurement, given the number of commits since.
fn too_old(measured: &Measured<'_>, commits: Option<u32>) -> Option<String> {
    let commit = &measured.commit;
    match commits {
        None => Some(format!("measured at {commit}, which is not a commit before this one")),
        Some(commits) if commits > COMMITS_MAX => Some(format!(
            "measured at {commit}, {commits} commits to the measured code ago, the limit is \
             {COMMITS_MAX}; measure again (`cargo xtask bench --store`)"
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    fn text(path: &str, content: &str) -> Text {
        Text { path: path.to_owned(), content: content.to_owned() }
    }

    #[test]
    fn results_have_a_known_kind_and_a_commit() {
        let of = |content: &str| {
            let text = text("benches/results/a.json", content);
            of_results(&text).map(|found| (found.commit, found.paths.len())).ok()
        };
        let good = r#"{"kind": "counts", "commit": "de9e5846a4"}"#;
        assert_eq!(of(good), Some(("de9e5846a4".to_owned(), RECORDER.len())));
        for bad in ["", "{}", r#"{"kind": "counts"}"#, r#"{"kind": "x", "commit": "de9e"}"#] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(of(r#"{"kind": "counts", "commit": "--all"}"#), None);
    }

    #[test]
    fn pages_name_the_commit_and_the_code() {
        let page = text("a.md", "x\n<!-- measured de9e: crates/a crates/b -->\n\n| 1 |\n");
        let found = of_page(&page);
        let paths = vec!["crates/a", "crates/b"];
        let expected = Measured { file: "a.md", line: 2, commit: "de9e".to_owned(), paths };
        assert_eq!(found, [expected]);
        assert_eq!(of_page(&text("a.rs", &page.content)), []);
    }

    #[test]
    fn numbers_older_than_the_limit_are_a_problem() {
        let measured =
            Measured { file: "a", line: 1, commit: "de9e".to_owned(), paths: vec!["crates/a"] };
        assert_eq!(too_old(&measured, Some(COMMITS_MAX)), None);
        assert!(too_old(&measured, Some(COMMITS_MAX + 1)).is_some_and(|what| what.contains("201")));
        assert!(too_old(&measured, None).is_some());
    }

    #[test]
    fn commits_to_the_measured_code_are_counted() {
        let root = root();
        if !has_history(&root) {
            return; // a tarball or a shallow clone
        }
        let of = |commit: &str, path: &'static str| {
            let measured =
                Measured { file: "a", line: 1, commit: commit.to_owned(), paths: vec![path] };
            commits_since(&root, &measured)
        };
        assert_eq!(of("HEAD", "crates"), Some(0));
        assert_eq!(of("0000000000", "crates"), None);
        // Three commits of 2026-11-22 changed the files of results.
        assert!(of("de9e5846a4", "benches/results").is_some_and(|count| count > 0));
    }

    #[test]
    fn without_a_repository_nothing_is_counted() {
        assert!(check(Path::new("/"), &[]).is_empty());
    }
}
