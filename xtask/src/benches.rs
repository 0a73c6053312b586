//! Runs the benchmarks, which are Python programs: measurements, ceilings of counts, tables.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::commands::{cargo_program, heaptide, output, run, target};
use crate::needs;
use crate::problem::Problem;

/// Upper limits of instructions and cache misses, which `counts --write` stores.
const CEILINGS: &str = "benches/ceilings.json";

/// The name with which [`needs::ALLOW_SKIP`] skips the counts.
const COUNTS: &str = "counts";

/// Measures the release build against the goals.
pub fn bench(root: &Path, options: &[String]) -> Result<(), String> {
    let build =
        ["build", "--release", "--package", "heaptide-cli", "--package", "heaptide-synthetic"];
    run(Command::new(cargo_program()).args(build).current_dir(root))?;
    let heaptide = target(root).join("release/heaptide");
    run(python(root, "benches/run.py").arg("--heaptide").arg(heaptide).args(options))
}

/// Compares counts with their ceilings, or stores new ceilings with `--write`. The library is the
/// same in every build of the command, because `crates/cli/build.rs` builds it with the profile
/// `capture`.
pub fn counts(root: &Path, options: &[String]) -> Result<(), String> {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    match options[..] {
        [] => count(root, &heaptide(root)?, "--check"),
        ["--write"] => count(root, &heaptide(root)?, "--write"),
        _ => Err(format!("counts: `{}`: expected `--write` or nothing", options.join(" "))),
    }
}

/// Compares the counts of a command that was built before, unless [`needs::ALLOW_SKIP`] contains
/// them: then it adds a line to the list of skipped tests, the file at `skips`.
pub fn check_counts(root: &Path, heaptide: &Path, skips: &Path) -> Result<(), String> {
    if !needs::may_be_missing(COUNTS) {
        return count(root, heaptide, "--check");
    }
    let list = OpenOptions::new().append(true).create(true).open(skips);
    list.and_then(|mut list| writeln!(list, "{COUNTS} needs the compilers of {CEILINGS}"))
        .map_err(|error| format!("{}: {error}", skips.display()))
}

fn count(root: &Path, heaptide: &Path, what: &str) -> Result<(), String> {
    let mut counts = python(root, "benches/counts.py");
    counts.arg("--heaptide").arg(heaptide).args([what, CEILINGS]).env_remove("HEAPTIDE_LIBRARY");
    run(&mut counts).map_err(|error| {
        let skip = needs::ALLOW_SKIP;
        format!("{error}; with compilers other than those of {CEILINGS}, {skip}={COUNTS} skips it")
    })
}

/// Writes the tables of the documents from the stored results.
pub fn write_tables(root: &Path) -> Result<(), String> {
    run(&mut python(root, "benches/tables.py"))
}

/// Returns a problem for each document whose tables differ from the stored results.
pub fn check_tables(root: &Path) -> Vec<Problem> {
    let checked = output(python(root, "benches/tables.py").arg("--check"));
    let says = checked.err().into_iter();
    says.map(|error| Problem::new("benches/results", 0, error)).collect()
}

fn python(root: &Path, script: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(script).current_dir(root).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn the_scripts_pass_their_own_tests() {
        let mut tests = python(&root(), "-m");
        tests.args(["unittest", "discover", "-s", "benches"]);
        output(&mut tests).unwrap();
    }

    #[test]
    fn an_unknown_option_is_rejected() {
        let said = counts(&root(), &["--wirte".to_string()]).unwrap_err();
        assert!(said.contains("--wirte"), "{said}");
    }
}
