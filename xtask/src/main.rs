//! The repository's checks and tasks: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr)] // a tool for developers

mod aarch64;
mod answers;
mod benches;
mod book;
mod chores;
mod commands;
mod commits;
mod conformance;
mod english;
mod fuzz;
mod imports;
mod interface;
mod junit;
mod library;
mod links;
mod needs;
mod options;
mod package;
mod problem;
mod publish;
mod readers;
mod results;
mod runner;
mod rust_paths;
mod sanitizers;
mod settings;
mod stack;
mod stress;
mod suite;
mod testing;
mod text;
mod tidy;
mod tiers;
mod wrap;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  setup [--check]  installs what the tests need; --check lists it and what is missing
  test             the fast tier: format, lints, tidy, and all tests but the second tier; changes
                   nothing outside the target directory
  test --all       both tiers, with the SQL engine, which takes minutes to compile
  test --slice [QUARTER]
                   groups of the second tier that the last 40 commits may affect, and a quarter
                   of the others, selected by the hash of the commit
  test --stress N [FILTER…]
                   the fast tier, or tests that nextest's filters select, N times in random order
                   at load 4 per core; lists each test that failed
  test --list-groups
                   lists the groups of the second tier
  tidy             the rules for sources, texts, commits and libheaptide.so
  suite [--tests-only|--compile-only|--coverage-only]
                   measures time per test and compile time per crate; writes benches/suite.md
  sanitizers       runs the test programs with UndefinedBehaviorSanitizer
  musl             the tests of the readers' crates, built for musl
  aarch64 [TEST…]  builds for aarch64, and runs the tests of programs there, under qemu
  aarch64 --kernel DIR [TEST…]
                   the same in an emulated machine that boots this kernel
  miri             unit tests of the crates that live in the program, under miri
  doc              the crates' documentation, without a warning
  deny             licences, advisories and sources of dependencies, by cargo-deny
  bench [OPTION…]  measures against the goals; --quick, --rounds N, --only NAME, --store, --list
  counts [--write] compares instructions of the recorder with their ceilings; --write stores new ones
  tables           writes the tables of README.md and benches/README.md from benches/results
  fuzz [OPTION…]   runs fuzz targets on changes of their corpora; --seconds N, --seed N, TARGET…
  package KIND…    builds packages: tarball, deb, rpm, wheel, container, or all
  package --check KIND…
                   the same, and tries each out in clean roots of Debian and musl (needs root)
  publish [--dry-run]
                   publishes the crates that users need; or builds each from its package
  conformance TOOL=CHECKOUT…
                   compiles the tests of other tools, from a checkout of each, with the SDK, runs
                   them, and writes docs/conformance.md
  book             builds the book of docs/SUMMARY.md with mdBook, and checks all of its links
  answers [--pictures] [NAME…]
                   records 40 programs and writes docs/first-answers.md; or takes pictures of the
                   pages of recorded ones
  wrap             wraps comments wider than the limit, which the formatter leaves alone
  options          writes docs/options.md from the help of the command, and the table of variables
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = arguments.split_first().map_or(("help", &[][..]), |(c, r)| (c, r));
    perform(command, rest).unwrap_or_else(|reason| {
        eprintln!("xtask: {reason}");
        ExitCode::from(2)
    })
}

fn perform(command: &str, arguments: &[String]) -> Result<ExitCode, String> {
    let root = root();
    let done = match command {
        "setup" => match arguments.first().map(String::as_str) {
            None => needs::install(&root),
            Some("--check") => needs::check(&root),
            Some(other) => Err(format!("setup: `{other}`: expected `--check` or nothing")),
        },
        "test" => return testing::test(&root, arguments),
        "tidy" => chores::tidy(&root),
        "suite" => suite::suite(&root, arguments),
        suite::COMMAND => return suite::run_measured(arguments),
        "sanitizers" => sanitizers::run_programs(&root),
        "musl" => chores::musl(&root),
        "aarch64" => aarch64::test(&root, arguments),
        "miri" => chores::miri(&root),
        "doc" => chores::doc(&root),
        "deny" => chores::deny(&root),
        "bench" => benches::bench(&root, arguments),
        "counts" => benches::counts(&root, arguments),
        "tables" => benches::write_tables(&root),
        "fuzz" => fuzz::run(&root, arguments),
        "package" => package::package(&root, arguments),
        "publish" => publish::publish(&root, arguments),
        "conformance" => conformance::conformance(&root, arguments),
        "answers" => answers::answers(&root, arguments),
        "book" => book::build(&root),
        "wrap" => wrap::all(&root),
        "options" => options::write(&root).and_then(|()| settings::write(&root)),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("no command `{other}`; `cargo xtask help` lists them")),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
