//! Tasks that run a list of programs, and stop at the first failure.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{cargo, cargo_program, heaptide, output, run};
use crate::{benches, commits, library, needs, options, results, stack, text, tidy};

/// Checks sources and library against the style rules, and prints all problems.
pub fn tidy(root: &Path) -> Result<(), String> {
    tidy_with(root, &heaptide(root)?)
}

/// The same, with a command that has been built.
pub fn tidy_with(root: &Path, heaptide: &Path) -> Result<(), String> {
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
