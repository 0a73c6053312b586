//! The rules and chores of this repository, run by a program: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]

mod chores;
mod commits;
mod english;
mod interface;
mod library;
mod needs;
mod options;
mod stack;
mod text;
mod tidy;
mod wrap;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  test             installs or names what the tests need; then format, clippy, tidy, tests
  tidy             the rules for sources, texts, commits and libheaptide.so
  bench [OPTION…]  measures against the goals; --quick, --rounds N, --only NAME, --list
  wrap             wraps comments wider than the limit, which the formatter leaves alone
  options          writes docs/options.md from the help of the command
  needs            what the tests need from the system, and whether it is here
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = arguments.first().map_or("help", String::as_str);
    let root = root();
    let done = match command {
        "test" => chores::test(&root),
        "tidy" => chores::tidy(&root),
        "bench" => chores::bench(&root, &arguments[1..]),
        "wrap" => wrap::all(&root),
        "options" => options::write(&root),
        "needs" => needs::show(),
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

/// The root of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
