//! `cargo xtask suite`: measures the time of tests and of compilers, and the coverage by tests, and
//! writes `benches/suite.md`.

mod compile;
mod coverage;
mod page;
mod processor_time;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::commands::{output, run, target};
use crate::runner::{Engine, Runner, TEST_THREADS, cores};
use crate::{junit, needs};
use page::{Measurement, Test};

pub use processor_time::{COMMAND, run_measured};

/// The page with the tables.
const PAGE: &str = "benches/suite.md";

/// Measures what the options select, and replaces that section of the page.
///
/// # Errors
///
/// An option is unknown, a requirement is missing, or something does not compile. Tests that fail
/// are counted on the page.
pub fn suite(root: &Path, options: &[String]) -> Result<(), String> {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let [has_tests, has_compile, has_coverage] = match options[..] {
        [] => [true, true, false],
        ["--tests-only"] => [true, false, false],
        ["--compile-only"] => [false, true, false],
        ["--coverage-only"] => [false, false, true],
        _ => {
            return Err(format!(
                "suite: `{}`: expected nothing, `--tests-only`, `--compile-only` or \
                 `--coverage-only`",
                options.join(" ")
            ));
        }
    };
    let runner = Runner::new(root);
    if has_tests || has_coverage {
        runner.require_selection("suite")?;
        needs::all_here(root)?;
    }
    let (commit, machine) = (commit(root)?, machine());
    let measurement = Measurement { commit: &commit, machine: &machine };
    let path = root.join(PAGE);
    let failed = |error| format!("{}: {error}", path.display());
    let mut page = std::fs::read_to_string(&path).unwrap_or_default();
    if has_compile {
        let section = page::compile(&measurement, &compile::measure(&runner)?);
        page = page::replaced(&page, page::COMPILE, &section);
        std::fs::write(&path, &page).map_err(failed)?;
    }
    if has_tests {
        let section = measure_tests(&runner, &measurement)?;
        page = page::replaced(&page, page::TESTS, &section);
        std::fs::write(&path, &page).map_err(failed)?;
    }
    if has_coverage {
        let section = page::coverage(&measurement, &coverage::measure(&runner)?);
        page = page::replaced(&page, page::COVERAGE, &section);
        std::fs::write(&path, &page).map_err(failed)?;
    }
    println!("\nwrote {PAGE}");
    Ok(())
}

/// Runs the tests of both tiers, and returns the section on them.
fn measure_tests(runner: &Runner<'_>, measurement: &Measurement<'_>) -> Result<String, String> {
    let target = target(runner.root);
    runner.compile(Engine::Included)?;
    runner.start_list_of_skipped()?;
    let log = target.join("suite-processor-time");
    std::fs::write(&log, "").map_err(|error| format!("{}: {error}", log.display()))?;
    junit::remove(&target);
    let own = std::env::current_exe().map_err(|error| format!("own program: {error}"))?;
    let wrapper = [own.as_os_str(), COMMAND.as_ref(), log.as_os_str()];
    let mut command = runner.start(Engine::Included, &junit::PROFILE);
    command.args(["--config", &format!("target.\"cfg(all())\".runner={wrapper:?}")]);
    let start = Instant::now();
    let cpu_before = processor_time::of_children()?;
    if let Err(error) = run(&mut command) {
        // Without results, reading them fails.
        println!("== {error}");
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = processor_time::of_children()? - cpu_before;
    let log =
        std::fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let mut times = processor_time::parse(&log)?;
    let tests = junit::read(&target)?.into_iter().map(|case| {
        let key = (case.binary, case.test);
        let cpu = times.remove(&key).unwrap_or_default();
        let (binary, name) = key;
        Test { binary, name, seconds: case.seconds, cpu, has_failed: case.has_failed }
    });
    let run = page::Run { seconds, cpu, threads: threads(), skipped: runner.skipped()? };
    Ok(page::tests(measurement, &run, &tests.collect::<Vec<_>>()))
}

/// Returns how many tests run at the same time.
fn threads() -> String {
    std::env::var(TEST_THREADS).unwrap_or_else(|_| (cores() + 1).to_string())
}

/// Returns the abbreviated hash of the commit, marked if files differ from it.
fn commit(root: &Path) -> Result<String, String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--abbrev=10", "--dirty", "--exclude=*"]);
    let commit = output(git.current_dir(root))?;
    Ok(commit.trim().replace("-dirty", ", with changes"))
}

/// Describes the processor.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, model)| model);
    format!("{} cores, {model}", cores())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn an_unknown_option_is_rejected() {
        let said = suite(&root(), &["--tests".to_owned()]).unwrap_err();
        assert!(said.contains("--tests-only"), "{said}");
    }

    #[test]
    fn the_machine_has_cores() {
        assert!(machine().contains(" cores, "), "{}", machine());
    }
}
