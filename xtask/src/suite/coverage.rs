//! Coverage of lines by the two tiers of tests, from cargo-llvm-cov.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::commands::{cargo_program, output, run, target};
use crate::runner::Runner;
use crate::tiers;

/// The subcommand of cargo.
const LLVM_COV: &str = "llvm-cov";

/// Lines of a crate.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Lines {
    pub all: u64,
    pub covered: u64,
}

/// Lines by the name of a crate's directory.
pub type Crates = BTreeMap<String, Lines>;

/// The coverage by the fast tier alone, and by both tiers.
pub struct Coverage {
    pub fast: Crates,
    pub both: Crates,
}

/// Runs the tests of the fast tier, and then those of the second tier without the SQL engine, all
/// compiled with counters. Tests that fail are counted as they are: some compare files or
/// environments, to which the counters add.
pub fn measure(runner: &Runner<'_>) -> Result<Coverage, String> {
    let needed = "needs `cargo install cargo-llvm-cov` and `rustup component add llvm-tools`";
    output(llvm_cov(runner.root).arg("--version"))
        .map_err(|error| format!("coverage: {needed}: {error}"))?;
    run(llvm_cov(runner.root).args(["clean", "--workspace"]))?;
    link_readers(&target(runner.root))?;
    let fast = run_tests(runner.root, &tiers::fast())?;
    let second = tiers::expression(tiers::GROUPS).unwrap_or_default();
    let both = run_tests(runner.root, &second)?;
    Ok(Coverage { fast, both })
}

/// Runs the selected tests, and returns what they and earlier ones covered.
fn run_tests(root: &Path, expression: &str) -> Result<Crates, String> {
    let mut tests = llvm_cov(root);
    tests.args(["nextest", "--no-report", "--no-fail-fast", "--workspace"]);
    tests.args(["--exclude", tiers::SQL, "-E", expression]);
    if let Err(error) = run(&mut tests) {
        // Without counters, the report fails.
        println!("== {error}");
    }
    // Programs that tests kill leave incomplete counters.
    let report = ["report", "--json", "--summary-only", "--failure-mode", "all"];
    let report = output(llvm_cov(root).args(report))?;
    crates(&report, root)
}

/// Makes the readers that setup installed available in the target directory of cargo-llvm-cov.
fn link_readers(target: &Path) -> Result<(), String> {
    let place = target.join("llvm-cov-target");
    let (from, to) = (target.join("readers"), place.join("readers"));
    if to.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(&place)
        .and_then(|()| std::os::unix::fs::symlink(&from, &to))
        .map_err(|error| format!("coverage: {}: {error}", to.display()))
}

fn llvm_cov(root: &Path) -> Command {
    let mut command = Command::new(cargo_program());
    command.arg(LLVM_COV).current_dir(root);
    command
}

/// Adds the lines of the files in a report by crate.
fn crates(report: &str, root: &Path) -> Result<Crates, String> {
    let report: Value =
        serde_json::from_str(report).map_err(|error| format!("coverage: the report: {error}"))?;
    let files = report["data"][0]["files"].as_array();
    let files = files.ok_or("coverage: the report: expected `data[0].files`")?;
    let mut crates = Crates::new();
    for file in files {
        let path = Path::new(file["filename"].as_str().unwrap_or_default());
        let Some(name) = path.strip_prefix(root).ok().and_then(directory) else {
            continue;
        };
        let lines = &file["summary"]["lines"];
        let sum = crates.entry(name).or_default();
        sum.all += lines["count"].as_u64().unwrap_or(0);
        sum.covered += lines["covered"].as_u64().unwrap_or(0);
    }
    Ok(crates)
}

/// Returns the name of the crate with a file: `crates/NAME/src/…`, or `NAME/src/…`.
fn directory(file: &Path) -> Option<String> {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    let first = parts.next()?;
    if first == "crates" { parts.next() } else { Some(first) }.map(|name| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_by_crate() {
        let report = r#"{"data": [{"files": [
            {"filename": "/r/crates/a/src/x.rs", "summary": {"lines": {"count": 5, "covered": 2}}},
            {"filename": "/r/crates/a/src/y.rs", "summary": {"lines": {"count": 3, "covered": 3}}},
            {"filename": "/r/xtask/src/m.rs", "summary": {"lines": {"count": 4, "covered": 1}}},
            {"filename": "/elsewhere/z.rs", "summary": {"lines": {"count": 9, "covered": 9}}}]}]}"#;
        let found = crates(report, Path::new("/r")).expect("a report");
        let expected = [("a", 8, 5), ("xtask", 4, 1)];
        let expected =
            expected.map(|(name, all, covered)| (name.to_owned(), Lines { all, covered }));
        assert_eq!(found, Crates::from(expected));
        assert!(crates("{}", Path::new("/r")).is_err());
    }
}
