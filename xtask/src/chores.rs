//! Tasks that run a list of programs, and stop at the first failure.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::commands::{cargo_program, command, heaptide, output, run, shown, target};
use crate::{benches, commits, library, needs, options, results, stack, text, tidy};

/// The preloaded library: it has no tests, so it is linted separately.
const PRELOAD: &str = "heaptide-preload";

/// The crate with the SQL engine, whose dependencies take longer to compile than everything else.
const SQL: &str = "heaptide-sql";

/// Its feature for queries on several machines. Its tests use the feature, so that the engine is
/// compiled only once.
const CLUSTER: &str = "heaptide-sql/cluster";

/// Runs the required checks for everything, or without the SQL engine.
pub fn test(root: &Path, with_sql: bool) -> Result<(), String> {
    needs::all_here(root)?;
    cargo(root, &["fmt", "--all", "--check"])?;
    cargo(root, &["clippy", "--package", PRELOAD, "--", "-D", "warnings"])?;
    let skips = target(root).join("skipped-tests");
    let tests = |arguments: &[&str]| {
        let mut command = Command::new(cargo_program());
        command.args(arguments).arg("--workspace").env(SKIPPED, &skips);
        if std::env::var_os(TEST_THREADS).is_none() {
            command.env(TEST_THREADS, tests_at_a_time());
        }
        if with_sql {
            command.args(["--features", CLUSTER]);
        } else {
            command.args(["--exclude", SQL]);
        }
        lint_while_compiling(&mut command);
        run(command.current_dir(root))
    };
    let (compile, start): (&[&str], &[&str]) = if has_nextest(root) {
        (&["nextest", "run", "--no-run"], &["nextest", "run", "--no-fail-fast"])
    } else {
        (&["test", "--no-run"], &["test", "--no-fail-fast", "--all-targets"])
    };
    tests(compile)?;
    tidy_with(root, &command(root))?;
    std::fs::write(&skips, "").map_err(|error| format!("{}: {error}", skips.display()))?;
    tests(start)?;
    let mut fuzz = start_fuzz(root)?;
    let rest = tests(&["test", "--doc"]).and_then(|()| models(root));
    // Counts do not depend on load, so the fuzz targets may keep one core busy meanwhile.
    let counted = benches::check_counts(root, &command(root), &skips);
    let fuzzed = fuzz.wait().map_err(|error| format!("fuzz: {error}"))?;
    rest.and(counted)?;
    if !fuzzed.success() {
        return Err(format!("fuzz: {fuzzed}"));
    }
    let but = if with_sql { "" } else { " but those of heaptide-sql (`--all` runs them)" };
    println!("\nall tests{but} passed, {}", skipped(&skips)?);
    Ok(())
}

/// The variable with the number of tests that nextest runs at the same time.
const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";

/// Returns how many tests run at the same time if the variable is not set: one more than there are
/// cores, because many wait for other programs.
fn tests_at_a_time() -> String {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    (cores + 1).to_string()
}

/// Starts the fuzz targets, which use one core for a few minutes, with the same inputs each time.
fn start_fuzz(root: &Path) -> Result<Child, String> {
    let mut runner = Command::new(target(root).join("debug/heaptide-fuzz"));
    runner.args(["--seed", "1"]).current_dir(root);
    println!("== {}", shown(&runner));
    runner.spawn().map_err(|error| format!("{}: {error}", shown(&runner)))
}

/// The variable with the path of the list of skipped tests.
const SKIPPED: &str = "HEAPTIDE_SKIPPED";

/// Makes cargo compile the crates of this workspace with clippy's driver, the compiler with
/// additional lints, so that each crate is compiled only once for lints and tests. Passes options
/// to the driver like `cargo clippy`.
fn lint_while_compiling(command: &mut Command) {
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    command.env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
}

/// Describes how many tests were skipped, and their missing requirements.
fn skipped(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut tests: Vec<&str> = text.lines().collect();
    tests.sort_unstable();
    Ok(match tests.len() {
        0 => "0 skipped".to_owned(),
        count => format!("{count} skipped: {}", tests.join("; ")),
    })
}

/// Runs the loom models of the insert-only tables, in a separate build.
fn models(root: &Path) -> Result<(), String> {
    let mut command = Command::new(cargo_program());
    command.args(["test", "--release", "--package", "heaptide-unwind", "--lib"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target(root).join("loom"));
    run(command.current_dir(root))
}

/// Checks sources and library against the style rules, and prints all problems.
pub fn tidy(root: &Path) -> Result<(), String> {
    tidy_with(root, &heaptide(root)?)
}

fn tidy_with(root: &Path, heaptide: &Path) -> Result<(), String> {
    let texts = text::all(root)?;
    let mut problems = tidy::check(&texts);
    problems.extend(results::check(root, &texts));
    let library = built_library(heaptide)?;
    problems.extend(library::check(root, &library)?);
    problems.extend(stack::check(&library)?);
    problems.extend(options::check(root, heaptide)?);
    problems.extend(benches::check_tables(root));
    problems.extend(commits::check(root));
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: all rules kept");
            Ok(())
        }
        n => Err(format!("tidy: {n} problems, listed above")),
    }
}

/// Runs the tests of the reading crates with musl.
pub fn musl(root: &Path) -> Result<(), String> {
    let crates = ["format", "unwind", "trace", "analysis", "query", "render"];
    let names = crates.map(|name| format!("heaptide-{name}"));
    let packages = names.iter().flat_map(|name| ["--package", name]);
    let start = ["test", "--target", needs::MUSL_TARGET];
    cargo(root, &start.into_iter().chain(packages).collect::<Vec<_>>())
}

/// Runs unit tests of the in-process crates under miri: `cargo +nightly xtask miri`.
pub fn miri(root: &Path) -> Result<(), String> {
    let mut command = Command::new(cargo_program());
    command.args(["miri", "test", "--lib"]);
    for package in ["heaptide-format", "heaptide-trace", "heaptide-unwind", "heaptide-recorder"] {
        command.args(["--package", package]);
    }
    // The profile stores addresses as numbers, and the recorder's mappings are never unmapped.
    let flags = "-Zmiri-permissive-provenance -Zmiri-ignore-leaks";
    run(command.env("MIRIFLAGS", flags).current_dir(root))
}

/// Builds the documentation of all crates.
pub fn doc(root: &Path) -> Result<(), String> {
    let mut command = Command::new(cargo_program());
    command.args(["doc", "--no-deps", "--workspace", "--exclude", "heaptide-embedded"]);
    run(command.env("RUSTDOCFLAGS", "-D warnings").current_dir(root))
}

/// Checks dependencies against `deny.toml`.
pub fn deny(root: &Path) -> Result<(), String> {
    cargo(root, &["deny", "check"])
}

/// Returns the library that is embedded in the command.
fn built_library(heaptide: &Path) -> Result<PathBuf, String> {
    let path = output(Command::new(heaptide).arg("library").env_remove("HEAPTIDE_LIBRARY"))?;
    Ok(PathBuf::from(path.trim()))
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    run(Command::new(cargo_program()).args(arguments).current_dir(root))
}

fn has_nextest(root: &Path) -> bool {
    let mut command = Command::new(cargo_program());
    command.args(["nextest", "--version"]).current_dir(root);
    output(&mut command).is_ok()
}
