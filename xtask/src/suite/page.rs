//! The page `benches/suite.md`: sections that are written, and one that is kept.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::compile::Build;
use super::coverage::{Coverage, Lines};
use crate::tiers;

/// The headings of the sections that the command writes.
pub const TESTS: &str = "## Tests";
pub const COMPILE: &str = "## Compile time";
pub const COVERAGE: &str = "## Coverage";

/// The beginning of a page that does not exist.
const START: &str = "# Time of the test suite\n";
/// Tests in the table of single tests.
const TESTS_MAX: usize = 40;
/// Modules in the table of modules: those with the longest times.
const MODULES_MAX: usize = 60;

/// What was measured, and where.
pub struct Measurement<'a> {
    pub commit: &'a str,
    pub machine: &'a str,
}

/// A run of all tests.
pub struct Run {
    pub seconds: f64,
    pub cpu: f64,
    /// How many tests ran at the same time.
    pub threads: String,
    /// How many tests were skipped, and why.
    pub skipped: String,
}

/// The times of a test.
pub struct Test {
    pub binary: String,
    pub name: String,
    pub seconds: f64,
    pub cpu: f64,
    pub has_failed: bool,
}

/// Sums over tests.
#[derive(Default)]
struct Sum {
    tests: usize,
    seconds: f64,
    cpu: f64,
}

impl Sum {
    fn add(&mut self, test: &Test) {
        self.tests += 1;
        self.seconds += test.seconds;
        self.cpu += test.cpu;
    }
}

/// Returns a page in which the section with this heading is replaced, or added at the end.
pub fn replaced(page: &str, heading: &str, section: &str) -> String {
    let page = if page.is_empty() { START } else { page };
    let Some(start) = start_of(page, heading) else {
        return format!("{}\n\n{}\n", page.trim_end(), section.trim_end());
    };
    let rest = &page[start + heading.len()..];
    let end = rest.find("\n## ").map_or("", |at| &rest[at..]);
    format!("{}{}\n{end}", &page[..start], section.trim_end())
}

/// Returns where the line of this heading starts.
fn start_of(page: &str, heading: &str) -> Option<usize> {
    let line = format!("\n{heading}\n");
    page.find(&line).map(|at| at + 1)
}

/// Returns the section on tests.
pub fn tests(measurement: &Measurement<'_>, run: &Run, tests: &[Test]) -> String {
    let failed = tests.iter().filter(|test| test.has_failed).count();
    let mut text = format!(
        "{TESTS}\n\n\
         Measured at {} on {}: {} tests, {failed} failed, {}; {:.0} s with {} tests at a time, \
         {:.0} s of CPU time.\n\n\
         `cargo xtask suite --tests-only` writes this section: it compiles the tests of both tiers \
         with the SQL engine, and runs them with nextest's profile `suite`. Wall times are those of \
         nextest's JUnit results; they depend on what runs at the same time. CPU times, in steps of \
         0.01 s, include all processes that a test has waited for, but not those that outlive \
         it. Documentation tests, loom models, fuzz targets and counts are not included: `cargo \
         xtask test --all` prints their times.\n",
        measurement.commit,
        measurement.machine,
        tests.len(),
        run.skipped,
        run.seconds,
        run.threads,
        run.cpu
    );
    text += &sums("tier or group", usize::MAX, tests, |test| tier(test).to_owned());
    text += &sums("test binary", usize::MAX, tests, |test| format!("`{}`", test.binary));
    text +=
        &sums("module", MODULES_MAX, tests, |test| format!("`{} {}`", test.binary, module(test)));
    text += &longest(tests);
    text
}

fn tier(test: &Test) -> &'static str {
    tiers::group_of(&test.binary, &test.name).map_or("fast tier", |group| group.name)
}

/// Returns the first part of the name of a test.
fn module(test: &Test) -> &str {
    test.name.split_once("::").map_or("", |(module, _)| module)
}

/// Returns a table of sums by a property of tests, the longest CPU time first.
fn sums(heading: &str, most: usize, tests: &[Test], of: impl Fn(&Test) -> String) -> String {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for test in tests {
        sums.entry(of(test)).or_default().add(test);
    }
    let mut sums: Vec<(String, Sum)> = sums.into_iter().collect();
    sums.sort_by(|(_, one), (_, other)| other.cpu.total_cmp(&one.cpu));
    let others = sums.len().saturating_sub(most);
    let mut table = format!("\n| {heading} | tests | wall s | CPU s |\n|---|--:|--:|--:|\n");
    for (name, Sum { tests, seconds, cpu }) in sums.iter().take(most) {
        let _ = writeln!(table, "| {name} | {tests} | {seconds:.1} | {cpu:.1} |");
    }
    if others > 0 {
        let mut sum = Sum::default();
        for (_, other) in &sums[most..] {
            sum.tests += other.tests;
            sum.seconds += other.seconds;
            sum.cpu += other.cpu;
        }
        let Sum { tests, seconds, cpu } = sum;
        let _ = writeln!(table, "| {others} others | {tests} | {seconds:.1} | {cpu:.1} |");
    }
    table
}

/// Returns the table of the tests with the longest wall times.
fn longest(tests: &[Test]) -> String {
    let mut tests: Vec<&Test> = tests.iter().collect();
    tests.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let mut table =
        "\n| longest tests | tier or group | wall s | CPU s |\n|---|---|--:|--:|\n".to_owned();
    for test in tests.into_iter().take(TESTS_MAX) {
        let Test { binary, name, seconds, cpu, .. } = test;
        let tier = tier(test);
        let _ = writeln!(table, "| `{binary} {name}` | {tier} | {seconds:.1} | {cpu:.1} |");
    }
    table
}

/// Returns the section on compile time.
pub fn compile(measurement: &Measurement<'_>, builds: &[Build]) -> String {
    let totals = builds.iter().map(|build| format!("{}: {:.0} s", build.name, build.seconds));
    let mut text = format!(
        "{COMPILE}\n\n\
         Measured at {} on {}. {}.\n\n\
         `cargo xtask suite --compile-only` writes this section: it compiles all tests as `cargo \
         xtask test` does, with lints, in an empty target directory, and adds the durations in \
         the reports of `cargo build --timings`. A crate's sum contains its library, programs, \
         tests and build script. Crates are compiled at the same time, so the sums are larger \
         than the totals.\n",
        measurement.commit,
        measurement.machine,
        totals.collect::<Vec<_>>().join("; ")
    );
    let names: Vec<&str> = builds.iter().map(|build| build.name).collect();
    let columns = "--:|".repeat(names.len());
    let _ = write!(text, "\n| crate | {} |\n|---|{columns}\n", names.join(" | "));
    for name in crates(builds) {
        let seconds = builds.iter().map(|build| build.crates.get(name).copied());
        let seconds = seconds.map(|seconds| seconds.map_or(String::new(), |s| format!("{s:.1}")));
        let _ = writeln!(text, "| `{name}` | {} |", seconds.collect::<Vec<_>>().join(" | "));
    }
    let dependencies = builds.iter().map(|build| {
        let (seconds, count) = build.dependencies;
        format!("{seconds:.1} ({count} crates)")
    });
    let _ = writeln!(text, "| dependencies | {} |", dependencies.collect::<Vec<_>>().join(" | "));
    text
}

/// Returns the names of all crates of the workspace, the longest sum first.
fn crates(builds: &[Build]) -> Vec<&str> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, seconds) in builds.iter().flat_map(|build| &build.crates) {
        *sums.entry(name).or_default() += seconds;
    }
    let mut sums: Vec<(&str, f64)> = sums.into_iter().collect();
    sums.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    sums.into_iter().map(|(name, _)| name).collect()
}

/// Returns the section on coverage.
pub fn coverage(measurement: &Measurement<'_>, coverage: &Coverage) -> String {
    let Measurement { commit, machine } = measurement;
    let share = |lines: Lines| match lines.all {
        0 => String::new(),
        all => format!("{:.1}", 100.0 * lines.covered as f64 / all as f64),
    };
    let mut text = format!(
        "{COVERAGE}\n\nMeasured at {commit} on {machine}, in percent of lines.\n\n\
         `cargo xtask suite --coverage-only` writes this section: it compiles the tests with \
         counters, and runs the fast tier, then the second tier without the SQL engine. The \
         recorder within recorded programs is compiled without counters, so of its crates only \
         their own tests count. Processes that a signal ends write no counters: shares of \
         servers are lower bounds.\n\n\
         | crate | lines | fast tier | both tiers |\n|---|--:|--:|--:|\n"
    );
    let mut sums = [Lines::default(); 2];
    for (name, both) in &coverage.both {
        let fast = coverage.fast.get(name).copied().unwrap_or_default();
        for (sum, lines) in sums.iter_mut().zip([fast, *both]) {
            sum.all += lines.all;
            sum.covered += lines.covered;
        }
        let _ = writeln!(text, "| `{name}` | {} | {} | {} |", both.all, share(fast), share(*both));
    }
    let [fast, both] = sums;
    let _ = writeln!(text, "| all | {} | {} | {} |", both.all, share(fast), share(both));
    text
}

#[cfg(test)]
mod tests {
    use super::super::compile::Crates;
    use super::*;

    const MEASUREMENT: Measurement<'_> = Measurement { commit: "de9e", machine: "2 cores, x" };

    fn test(name: &str, seconds: f64, cpu: f64) -> Test {
        let binary = "heaptide-cli::record".to_owned();
        Test { binary, name: name.to_owned(), seconds, cpu, has_failed: false }
    }

    #[test]
    fn a_section_is_replaced_and_others_are_kept() {
        let page = "# A\n\n## Before\n\nx\n\n## Tests\n\nold\n\n## Compile time\n\ny\n";
        let new = replaced(page, TESTS, "## Tests\n\nnew\n");
        assert_eq!(new, page.replace("old", "new"));
        let last = replaced(page, COMPILE, "## Compile time\n\nz\n");
        assert_eq!(last, page.replace('y', "z"));
        let added = replaced("# A\n", TESTS, "## Tests\n\nnew\n");
        assert_eq!(added, "# A\n\n## Tests\n\nnew\n");
        assert!(replaced("", TESTS, "## Tests\n").starts_with("# "));
    }

    #[test]
    fn times_are_added_by_group_binary_and_module() {
        let list =
            [test("kill::x", 2.0, 1.5), test("trace::y", 1.0, 0.5), test("kill::z", 1.0, 1.0)];
        let skipped = "0 skipped".to_owned();
        let run = Run { seconds: 3.0, cpu: 4.0, threads: "3".to_owned(), skipped };
        let text = tests(&MEASUREMENT, &run, &list);
        for line in [
            "Measured at de9e on 2 cores, x: 3 tests, 0 failed, 0 skipped; 3 s with 3 tests at a \
             time, 4 s of CPU time.",
            "| kill | 2 | 3.0 | 2.5 |",
            "| fast tier | 1 | 1.0 | 0.5 |",
            "| `heaptide-cli::record` | 3 | 4.0 | 3.0 |",
            "| `heaptide-cli::record kill` | 2 | 3.0 | 2.5 |",
            "| `heaptide-cli::record kill::x` | kill | 2.0 | 1.5 |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn rows_beyond_the_limit_are_added_up() {
        let list = [test("a::x", 2.0, 3.0), test("b::y", 1.0, 2.0), test("c::z", 1.0, 1.0)];
        let table = sums("module", 1, &list, |test| module(test).to_owned());
        assert!(
            table.ends_with("| a | 1 | 2.0 | 3.0 |\n| 2 others | 2 | 2.0 | 3.0 |\n"),
            "{table}"
        );
    }

    #[test]
    fn crates_have_a_column_for_each_build() {
        let build = |name, crates: &[(&str, f64)]| {
            let crates = crates.iter().map(|(name, s)| ((*name).to_owned(), *s));
            let crates: Crates = crates.collect();
            Build { name, seconds: 7.0, crates, dependencies: (4.25, 2) }
        };
        let builds = [build("one", &[("a", 1.0), ("b", 2.0)]), build("two", &[("c", 1.5)])];
        let text = compile(&MEASUREMENT, &builds);
        let table = "| crate | one | two |\n|---|--:|--:|\n| `b` | 2.0 |  |\n| `c` |  | 1.5 |\n\
                     | `a` | 1.0 |  |\n| dependencies | 4.2 (2 crates) | 4.2 (2 crates) |\n";
        assert!(text.ends_with(table), "{text}");
        assert!(text.contains("one: 7 s; two: 7 s."), "{text}");
    }

    #[test]
    fn coverage_has_a_row_for_each_crate_and_the_sum() {
        let lines = |all, covered| Lines { all, covered };
        let of = |a, b| [("a".to_owned(), a), ("b".to_owned(), b)].into();
        let fast = of(lines(8, 4), lines(2, 1));
        let both = of(lines(8, 6), lines(2, 1));
        let text = coverage(&MEASUREMENT, &Coverage { fast, both });
        let table = "| `a` | 8 | 50.0 | 75.0 |\n| `b` | 2 | 50.0 | 50.0 |\n\
                     | all | 10 | 50.0 | 70.0 |\n";
        assert!(text.ends_with(table), "{text}");
    }
}
