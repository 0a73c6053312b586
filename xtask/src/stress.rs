//! `cargo xtask test --stress N`: runs tests many times in random order on busy cores, and lists
//! those that failed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::commands::{shown, target};
use crate::junit;
use crate::needs;
use crate::runner::{Engine, Runner, cores};
use crate::tiers;

/// The variable with the seed of a run: of its order, and of random numbers in tests.
const SEED: &str = "HEAPTIDE_TEST_SEED";
/// Busy threads per core. With one test per core and one more test, the load is at least 4 per
/// core, at which a test waits three times as long for the processor as it runs.
const BUSY_PER_CORE: usize = 3;
/// The highest and, negated, the lowest priority of a test that nextest knows.
const PRIORITY_MAX: usize = 100;
/// Nextest's exit status if tests failed.
const TESTS_FAILED: i32 = 100;

/// The run and the seed of each failure, by test.
type Failures = BTreeMap<String, Vec<(usize, u64)>>;

/// Runs tests `runs` times: those that options of nextest select, or without options the fast tier.
/// Returns exit status 1 if a test failed at least once.
///
/// # Errors
///
/// Nextest is missing, the tests do not compile, or none is selected.
pub fn run(root: &Path, runs: usize, options: &[&str]) -> Result<ExitCode, String> {
    let runner = Runner::new(root);
    runner.require_selection("test --stress")?;
    needs::all_here(root)?;
    let fast = tiers::fast();
    let options = if options.is_empty() { &["-E", &fast][..] } else { options };
    runner.compile(Engine::Excluded)?;
    let listing = runner.listing(Engine::Excluded, options)?;
    let tests: Vec<&str> = listing.lines().collect();
    if tests.is_empty() {
        return Err(format!("test --stress: no test for `{}`", options.join(" ")));
    }
    runner.start_list_of_skipped()?;
    let first = first_seed()?;
    let mut failures = Failures::new();
    for run in 1..=runs {
        let seed = first.wrapping_add(run as u64 - 1);
        println!("\n== run {run} of {runs}: {SEED}={seed}");
        for test in run_once(&runner, &tests, seed, options)? {
            failures.entry(test).or_default().push((run, seed));
        }
    }
    println!("\n{}, {}", summary(&failures, runs, tests.len()), runner.skipped()?);
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs the tests once, and returns those that failed.
fn run_once(
    runner: &Runner<'_>,
    tests: &[&str],
    seed: u64,
    options: &[&str],
) -> Result<Vec<String>, String> {
    let target = target(runner.root);
    let order = target.join("stress-order.toml");
    std::fs::write(&order, priorities(&shuffled(tests, seed)))
        .map_err(|error| format!("{}: {error}", order.display()))?;
    junit::remove(&target);
    let mut command = runner.start(Engine::Excluded, options);
    command.args(junit::PROFILE).env(SEED, seed.to_string());
    command.arg("--tool-config-file").arg(format!("xtask:{}", order.display()));
    let load = Load::start(BUSY_PER_CORE * cores());
    let status = status(&mut command);
    drop(load);
    let status = status?;
    let cases = junit::read(&target)?;
    let failed = cases.into_iter().filter(|case| case.has_failed);
    let failed: Vec<String> = failed.map(|case| format!("{} {}", case.binary, case.test)).collect();
    match (status, failed.is_empty()) {
        (Some(0), true) | (Some(TESTS_FAILED), false) => Ok(failed),
        _ => Err(format!(
            "{}: exit status {status:?} after {} failed tests",
            shown(&command),
            failed.len()
        )),
    }
}

/// Runs a program, and returns its exit status; `None` if a signal ended it.
fn status(command: &mut Command) -> Result<Option<i32>, String> {
    println!("== {}", shown(command));
    let status = command.status().map_err(|error| format!("{}: {error}", shown(command)))?;
    Ok(status.code())
}

/// Returns the seed of the first run: that of the variable, or a random one.
fn first_seed() -> Result<u64, String> {
    let Ok(value) = std::env::var(SEED) else {
        // Short, so that it is easy to type.
        return Ok(RandomState::new().build_hasher().finish() >> 32);
    };
    value.parse().map_err(|_| format!("{SEED}={value}: expected a number"))
}

/// Returns tests in an order that depends only on the seed.
fn shuffled<'a>(tests: &[&'a str], seed: u64) -> Vec<&'a str> {
    let mut tests = tests.to_vec();
    tests.sort_by_cached_key(|test| {
        let mut hasher = DefaultHasher::new();
        (seed, test).hash(&mut hasher);
        hasher.finish()
    });
    tests
}

/// Returns a configuration of nextest that runs tests in this order. Nextest has no random order,
/// but it starts tests with a higher priority first, and those of equal priority by name: each
/// priority gets an equal part of the list. A line of the list is `BINARY TEST`.
fn priorities(tests: &[&str]) -> String {
    let levels = 2 * PRIORITY_MAX + 1;
    let parts = tests.chunks(tests.len().div_ceil(levels).max(1));
    let mut text = String::new();
    for (place, part) in parts.enumerate() {
        let names = part.iter().filter_map(|line| line.split_once(' '));
        let names: Vec<String> =
            names.map(|(binary, test)| format!("(binary_id(={binary}) & test(={test}))")).collect();
        let priority = PRIORITY_MAX as isize - place as isize;
        let _ = write!(
            text,
            "[[profile.default.overrides]]\nfilter = '{}'\npriority = {priority}\n\n",
            names.join(" | ")
        );
    }
    text
}

/// Describes the failures, with the seeds that repeat them.
fn summary(failures: &Failures, runs: usize, tests: usize) -> String {
    let mut text = String::new();
    for (test, found) in failures {
        let found: Vec<String> =
            found.iter().map(|(run, seed)| format!("run {run} ({SEED}={seed})")).collect();
        let _ = writeln!(text, "failed: {test}: {}", found.join(", "));
    }
    let failed = failures.len();
    let _ = write!(text, "failed at least once: {failed} of {tests} tests; number of runs: {runs}");
    text
}

/// Busy threads, which end with this value or with the process.
struct Load {
    is_ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(threads: usize) -> Load {
        let is_ended = Arc::new(AtomicBool::new(false));
        let busy = |_| {
            let is_ended = Arc::clone(&is_ended);
            std::thread::spawn(move || {
                while !is_ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..threads).map(busy).collect();
        Load { is_ended, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_depends_on_the_seed_only() {
        let tests: Vec<String> = (0..100).map(|n| format!("a::b test_{n}")).collect();
        let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
        let reversed: Vec<&str> = tests.iter().rev().copied().collect();
        assert_eq!(shuffled(&tests, 7), shuffled(&reversed, 7));
        assert_ne!(shuffled(&tests, 7), shuffled(&tests, 8));
        let mut sorted = shuffled(&tests, 7);
        assert_ne!(sorted, tests);
        let mut expected = tests.clone();
        sorted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sorted, expected);
    }

    #[test]
    fn priorities_fall_along_the_list() {
        let expected = "[[profile.default.overrides]]\n\
                        filter = '(binary_id(=a::b) & test(=m::x))'\npriority = 100\n\n\
                        [[profile.default.overrides]]\n\
                        filter = '(binary_id(=a) & test(=y))'\npriority = 99\n\n";
        assert_eq!(priorities(&["a::b m::x", "a y"]), expected);
        assert_eq!(priorities(&[]), "");
    }

    #[test]
    fn priorities_of_long_lists_are_valid() {
        let tests = vec!["a y"; 5000];
        let text = priorities(&tests);
        assert_eq!(text.matches("test(=y)").count(), tests.len());
        let numbers = text.lines().filter_map(|line| line.strip_prefix("priority = "));
        let numbers: Vec<i32> = numbers.map(|number| number.parse().unwrap()).collect();
        assert!(numbers.iter().all(|number| (-100..=100).contains(number)), "{numbers:?}");
    }

    #[test]
    fn failures_are_listed_with_runs_and_seeds() {
        let mut failures = Failures::new();
        failures.insert("a::b x".to_owned(), vec![(2, 8), (4, 10)]);
        assert_eq!(
            summary(&failures, 5, 3),
            "failed: a::b x: run 2 (HEAPTIDE_TEST_SEED=8), run 4 (HEAPTIDE_TEST_SEED=10)\n\
             failed at least once: 1 of 3 tests; number of runs: 5"
        );
    }

    #[test]
    fn the_load_ends_with_its_value() {
        let load = Load::start(2);
        let is_ended = Arc::clone(&load.is_ended);
        drop(load);
        assert!(is_ended.load(Ordering::Relaxed));
        assert_eq!(Arc::strong_count(&is_ended), 1);
    }
}
