//! `cargo xtask test`: the checks of sources, and the tiers of tests.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use crate::commands::{cargo, cargo_program, command, output, run, shown, target};
use crate::runner::{Engine, Runner};
use crate::tiers::{self, GROUPS, Group, QUARTERS, Slice, Step};
use crate::{benches, chores, needs, stress};

const USAGE: &str = "expected nothing, `--all`, `--slice [QUARTER]`, `--stress N [FILTER…]` or \
                     `--list-groups`";

/// The preloaded library: it has no tests, so it is linted separately.
const PRELOAD: &str = "heaptide-preload";

/// Runs a tier, or the part of it that the options select. Returns exit status 1 if stress made a
/// test fail.
///
/// # Errors
///
/// An option is unknown, a requirement is missing, or a check fails.
pub fn test(root: &Path, options: &[String]) -> Result<ExitCode, String> {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let done = match options[..] {
        ["--stress", runs, ref filter @ ..] => {
            return stress::run(root, number_of_runs(runs)?, filter);
        }
        [] => fast(root),
        ["--all"] => all(root),
        ["--slice"] => slice(root, quarter_of_commit(root)?),
        ["--slice", quarter] => slice(root, quarter_of_option(quarter)?),
        ["--list-groups"] => {
            print!("{}", tiers::table());
            Ok(())
        }
        _ => Err(format!("test: `{}`: {USAGE}", options.join(" "))),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Runs the fast tier.
fn fast(root: &Path) -> Result<(), String> {
    let runner = Runner::new(root);
    check_sources(&runner, Engine::Excluded)?;
    runner.start_list_of_skipped()?;
    if runner.can_select() {
        runner.run(Engine::Excluded, &["-E", &tiers::fast()])?;
        println!("\nthe fast tier passed, {}", runner.skipped()?);
        println!("second tier: `cargo xtask test --slice` or `--all`");
    } else {
        println!("== without cargo-nextest, the second tier runs, too");
        runner.run(Engine::Excluded, &[])?;
        println!("\nall tests but those of {} passed, {}", tiers::SQL, runner.skipped()?);
    }
    Ok(())
}

/// Runs both tiers. The test runner starts once, so that no core waits at the end of a group.
fn all(root: &Path) -> Result<(), String> {
    let runner = Runner::new(root);
    check_sources(&runner, Engine::Included)?;
    runner.start_list_of_skipped()?;
    runner.run(Engine::Included, &[])?;
    run_steps(&runner, Engine::Included, GROUPS.iter().filter_map(Group::step))?;
    println!("\nall tests passed, {}", runner.skipped()?);
    Ok(())
}

/// Runs a slice of the second tier.
fn slice(root: &Path, quarter: usize) -> Result<(), String> {
    let runner = Runner::new(root);
    runner.require_selection("test --slice")?;
    needs::all_here(root)?;
    let changed = changed_files(root)?;
    let slice = Slice::new(&changed.lines().collect::<Vec<_>>(), quarter);
    let parts = format!(
        "quarter {} of 0 to {}: {}; affected by the last {} commits: {}",
        slice.quarter,
        QUARTERS - 1,
        tiers::names(slice.chosen.iter().copied()),
        tiers::COMMITS,
        tiers::names(slice.affected.iter().copied())
    );
    println!("== slice of the second tier, {parts}");
    runner.compile(Engine::Excluded)?;
    check_groups(&runner, Engine::Excluded)?;
    runner.start_list_of_skipped()?;
    if let Some(tests) = tiers::expression(slice.groups()) {
        runner.run(Engine::Excluded, &["-E", &tests])?;
    }
    if slice.groups().any(Group::is_engine) {
        runner.run(Engine::Alone, &[])?;
    }
    run_steps(&runner, Engine::Excluded, slice.groups().filter_map(Group::step))?;
    println!("\nthe slice passed, {}; {parts}", runner.skipped()?);
    Ok(())
}

/// Checks requirements, format, lints and style, and compiles the tests.
fn check_sources(runner: &Runner<'_>, engine: Engine) -> Result<(), String> {
    let root = runner.root;
    needs::all_here(root)?;
    cargo(root, &["fmt", "--all", "--check"])?;
    cargo(root, &["clippy", "--package", PRELOAD, "--", "-D", "warnings"])?;
    runner.compile(engine)?;
    chores::tidy_with(root, &command(root))?;
    if runner.can_select() { check_groups(runner, engine) } else { Ok(()) }
}

/// Checks that every name in the table of groups selects a test.
fn check_groups(runner: &Runner<'_>, engine: Engine) -> Result<(), String> {
    let listing = runner.listing(engine, &[])?;
    if engine == Engine::Included && !listing.lines().any(|line| line.starts_with(tiers::SQL)) {
        return Err(format!("{}: no test found, expected those of the SQL engine", tiers::SQL));
    }
    let unmatched = tiers::unmatched(&listing);
    if unmatched.is_empty() {
        return Ok(());
    }
    Err(format!(
        "xtask/src/tiers.rs: no test for `{}`: expected the name of a test of {}, or a module with \
         tests; correct the table",
        unmatched.join("`, `"),
        tiers::GUESTS
    ))
}

/// Runs steps of the second tier. The fuzz targets run beside the others, on one core.
fn run_steps(
    runner: &Runner<'_>,
    engine: Engine,
    steps: impl Iterator<Item = Step>,
) -> Result<(), String> {
    let steps: Vec<Step> = steps.collect();
    let fuzz = if steps.contains(&Step::Fuzz) { Some(start_fuzz(runner.root)?) } else { None };
    let run_step = |step: &Step| match step {
        Step::Documentation => runner.run_documentation(engine),
        Step::Models => models(runner.root),
        // They do not depend on load.
        Step::Counts => {
            let skips = runner.list_of_skipped();
            benches::check_counts(runner.root, &command(runner.root), &skips)
        }
        Step::Fuzz => Ok(()),
    };
    // All run, also after a failure, so that nothing is left running.
    let results: Vec<_> = steps.iter().map(run_step).collect();
    if let Some(mut fuzz) = fuzz {
        let status = fuzz.wait().map_err(|error| format!("fuzz: {error}"))?;
        println!("== heaptide-fuzz: {status}");
        if !status.success() {
            return Err(format!("fuzz: {status}"));
        }
    }
    results.into_iter().collect()
}

/// Starts the fuzz targets, which use one core for a few minutes, with the same inputs each time.
fn start_fuzz(root: &Path) -> Result<Child, String> {
    let mut fuzz = Command::new(fuzz_program(root));
    fuzz.args(["--seed", "1"]).current_dir(root);
    println!("== {}", shown(&fuzz));
    fuzz.spawn().map_err(|error| format!("{}: {error}", shown(&fuzz)))
}

fn fuzz_program(root: &Path) -> PathBuf {
    target(root).join("debug/heaptide-fuzz")
}

/// Runs the loom models of the insert-only tables, in a separate build.
fn models(root: &Path) -> Result<(), String> {
    let mut command = Command::new(cargo_program());
    command.args(["test", "--release", "--package", "heaptide-unwind", "--lib"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target(root).join("loom"));
    run(command.current_dir(root))
}

/// Returns the files that the last commits changed, a line each.
fn changed_files(root: &Path) -> Result<String, String> {
    let mut git = Command::new("git");
    let count = format!("--max-count={}", tiers::COMMITS);
    output(git.args(["log", &count, "--format=", "--name-only"]).current_dir(root))
}

/// Returns the quarter that the hash of the current commit selects.
fn quarter_of_commit(root: &Path) -> Result<usize, String> {
    let commit = output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root))?;
    let commit = commit.trim();
    println!("== commit {commit}");
    tiers::quarter_of(commit).ok_or_else(|| format!("`{commit}`: expected the hash of a commit"))
}

fn quarter_of_option(option: &str) -> Result<usize, String> {
    let quarter = option.parse().ok().filter(|quarter| *quarter < QUARTERS);
    quarter.ok_or_else(|| {
        format!("test --slice: `{option}`: expected a number from 0 to {}", QUARTERS - 1)
    })
}

fn number_of_runs(option: &str) -> Result<usize, String> {
    let runs = option.parse().ok().filter(|runs| *runs > 0);
    runs.ok_or_else(|| format!("test --stress: `{option}`: expected the number of runs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn an_unknown_option_is_rejected() {
        for bad in [&["--al"][..], &["--all", "--slice"], &["--slice", "4"], &["--stress", "0"]] {
            let options: Vec<String> = bad.iter().map(ToString::to_string).collect();
            let said = test(&root(), &options).unwrap_err();
            assert!(said.contains("expected"), "{said}");
        }
    }
}
