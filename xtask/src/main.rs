//! The repository's checks and tasks: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr)] // a tool for developers

mod aarch64;
mod benches;
mod book;
mod chores;
mod commands;
mod commits;
mod english;
mod fuzz;
mod imports;
mod interface;
mod library;
mod links;
mod needs;
mod options;
mod package;
mod problem;
mod publish;
mod readers;
mod results;
mod rust_paths;
mod sanitizers;
mod settings;
mod stack;
mod text;
mod tidy;
mod wrap;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  setup [--check]  installs what the tests need; --check lists it and what is missing
  test [--all]     format, lints, tidy and tests; changes nothing outside the target directory;
                   --all: those of the SQL engine too, which takes minutes to compile
  tidy             the rules for sources, texts, commits and libheaptide.so
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
  book             builds the book of docs/SUMMARY.md with mdBook, and checks all of its links
  wrap             wraps comments wider than the limit, which the formatter leaves alone
  options          writes docs/options.md from the help of the command, and the table of variables
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = arguments.first().map_or("help", String::as_str);
    let root = root();
    let done = match command {
        "setup" => match arguments.get(1).map(String::as_str) {
            None => needs::install(&root),
            Some("--check") => needs::check(&root),
            Some(other) => Err(format!("setup: `{other}`: expected `--check` or nothing")),
        },
        "test" => match arguments.get(1).map(String::as_str) {
            None => chores::test(&root, false),
            Some("--all") => chores::test(&root, true),
            Some(other) => Err(format!("test: `{other}`: expected `--all` or nothing")),
        },
        "tidy" => chores::tidy(&root),
        "sanitizers" => sanitizers::run_programs(&root),
        "musl" => chores::musl(&root),
        "aarch64" => aarch64::test(&root, &arguments[1..]),
        "miri" => chores::miri(&root),
        "doc" => chores::doc(&root),
        "deny" => chores::deny(&root),
        "bench" => benches::bench(&root, &arguments[1..]),
        "counts" => benches::counts(&root, &arguments[1..]),
        "tables" => benches::write_tables(&root),
        "fuzz" => fuzz::run(&root, &arguments[1..]),
        "package" => package::package(&root, &arguments[1..]),
        "publish" => publish::publish(&root, &arguments[1..]),
        "book" => book::build(&root),
        "wrap" => wrap::all(&root),
        "options" => options::write(&root).and_then(|()| settings::write(&root)),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("no command `{other}`; `cargo xtask help` lists them")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::from(2)
        }
    }
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
