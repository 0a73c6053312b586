//! The test runner: cargo-nextest, or `cargo test` where that is not installed.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{cargo_program, output, run, target};
use crate::tiers::SQL;

/// The feature of the SQL engine for queries on several machines. Its tests use the feature, so
/// that the engine is compiled only once.
const CLUSTER: &str = "heaptide-sql/cluster";
/// The variable with the number of tests that nextest runs at the same time.
pub const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";
/// The variable with the path of the list of skipped tests.
const SKIPPED: &str = "HEAPTIDE_SKIPPED";

/// The packages of a run: the SQL engine takes minutes to compile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// All other packages.
    Excluded,
    /// All packages.
    Included,
    /// No other package.
    Alone,
}

/// Runs tests of this workspace.
pub struct Runner<'a> {
    pub root: &'a Path,
    has_nextest: bool,
}

impl Runner<'_> {
    pub fn new(root: &Path) -> Runner<'_> {
        let mut nextest = Command::new(cargo_program());
        nextest.args(["nextest", "--version"]).current_dir(root);
        Runner { root, has_nextest: output(&mut nextest).is_ok() }
    }

    /// Returns whether the runner can select tests by expressions.
    pub fn can_select(&self) -> bool {
        self.has_nextest
    }

    /// Returns an error for a command that cannot work without expressions.
    pub fn require_selection(&self, command: &str) -> Result<(), String> {
        if self.has_nextest {
            return Ok(());
        }
        Err(format!(
            "{command}: needs cargo-nextest (`cargo install --locked cargo-nextest`); without it, \
             `cargo xtask test --all` runs all tests"
        ))
    }

    /// Compiles the tests, with lints.
    pub fn compile(&self, engine: Engine) -> Result<(), String> {
        run(self.cargo(engine, self.command()).arg("--no-run").current_dir(self.root))
    }

    /// Compiles and runs the tests that options of the runner select. It continues after failures.
    pub fn run(&self, engine: Engine, options: &[&str]) -> Result<(), String> {
        run(&mut self.start(engine, options))
    }

    /// Returns the command of [`run`](Runner::run).
    pub fn start(&self, engine: Engine, options: &[&str]) -> Command {
        let mut command = self.cargo(engine, self.command());
        command.arg("--no-fail-fast").args(options);
        if !self.has_nextest {
            command.arg("--all-targets");
        }
        command
    }

    /// Returns a command that compiles the tests into a target directory of its own, and writes a
    /// report with the time per crate there.
    pub fn start_timed_build(&self, engine: Engine, place: &Path) -> Command {
        let mut command = self.cargo(engine, &["test", "--no-run", "--all-targets", "--timings"]);
        command.env("CARGO_TARGET_DIR", place).env("CARGO_INCREMENTAL", "0");
        command
    }

    /// Runs the examples in the documentation of the crates.
    pub fn run_documentation(&self, engine: Engine) -> Result<(), String> {
        run(&mut self.cargo(engine, &["test", "--doc"]))
    }

    /// Returns the names of the tests that options select, each in a line after its binary.
    pub fn listing(&self, engine: Engine, options: &[&str]) -> Result<String, String> {
        let mut list = self.cargo(engine, &["nextest", "list"]);
        output(list.args(["--message-format", "oneline", "--cargo-quiet"]).args(options))
    }

    fn command(&self) -> &'static [&'static str] {
        if self.has_nextest { &["nextest", "run"] } else { &["test"] }
    }

    /// Returns a command of cargo for these packages.
    fn cargo(&self, engine: Engine, words: &[&str]) -> Command {
        let mut command = Command::new(cargo_program());
        command.args(words).args(packages(engine)).current_dir(self.root);
        command.env(SKIPPED, self.list_of_skipped());
        if std::env::var_os(TEST_THREADS).is_none() {
            command.env(TEST_THREADS, (cores() + 1).to_string());
        }
        lint_while_compiling(&mut command);
        command
    }

    /// Returns the path of the list of skipped tests.
    pub fn list_of_skipped(&self) -> PathBuf {
        target(self.root).join("skipped-tests")
    }

    /// Empties the list of skipped tests.
    pub fn start_list_of_skipped(&self) -> Result<(), String> {
        let path = self.list_of_skipped();
        std::fs::write(&path, "").map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Describes how many tests were skipped, and their missing requirements.
    pub fn skipped(&self) -> Result<String, String> {
        let path = self.list_of_skipped();
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let mut tests: Vec<&str> = text.lines().collect();
        tests.sort_unstable();
        Ok(match tests.len() {
            0 => "0 skipped".to_owned(),
            count => format!("{count} skipped: {}", tests.join("; ")),
        })
    }
}

/// Returns how many cores this process may use. One test more than that runs at the same time,
/// because many wait for other programs.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns cargo's options for packages and features.
fn packages(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Excluded => &["--workspace", "--exclude", SQL],
        Engine::Included => &["--workspace", "--features", CLUSTER],
        Engine::Alone => &["--package", SQL, "--features", CLUSTER],
    }
}

/// Makes cargo compile the crates of this workspace with clippy's driver, the compiler with
/// additional lints, so that each crate is compiled only once for lints and tests. Passes options
/// to the driver like `cargo clippy`.
fn lint_while_compiling(command: &mut Command) {
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    command.env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
}
