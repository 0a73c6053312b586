//! `cargo xtask fuzz`: runs every fuzz target on random mutations of its corpus.

use std::path::Path;
use std::process::Command;

use crate::commands;

/// Runs the targets with options of the runner, `fuzz/src/main.rs`.
pub fn run(root: &Path, options: &[String]) -> Result<(), String> {
    let mut runner = Command::new(commands::cargo_program());
    runner.args(["run", "--quiet", "--package", "heaptide-fuzz", "--"]).args(options);
    commands::run(runner.current_dir(root))
}
