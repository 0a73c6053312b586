//! Builds and tests command and recorder for aarch64 under emulation: either single programs in
//! qemu's user mode, or a machine with its own kernel.

mod machine;
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::commands::{cargo_program, output, run};
use machine::Machine;
use tools::{TARGET, Tools};

/// Tests that pass in user mode. Others trace, limit or confine the emulator, depend on its own
/// mappings, or record programs of this machine.
const EMULATED: &str = include_str!("emulated.txt");

/// Builds everything for aarch64 and runs tests of programs there: those whose names contain one of
/// the words, or without words those that are known to pass. With `--kernel DIR` before the words,
/// runs them in a machine that boots this kernel.
///
/// # Errors
///
/// Something is missing, or a test fails.
pub fn test(root: &Path, words: &[String]) -> Result<(), String> {
    let tools = Tools::new(root)?;
    if let Some(("--kernel", rest)) = words.split_first().map(|(word, rest)| (word.as_str(), rest))
    {
        let (kernel, words) =
            rest.split_first().ok_or("aarch64: --kernel: expected a directory")?;
        let programs = test_programs(&tools, root)?;
        return Machine::new(&tools, Path::new(kernel)).run(root, &programs, words);
    }
    let mut command = tools.cargo(root, &["test", "--package", "heaptide-cli", "--test", "*"]);
    command.arg("--").args(words).env("HEAPTIDE_ALLOW_SKIP", "all");
    if words.is_empty() {
        run(&mut tools.cargo(root, &["test", "--package", "heaptide-unwind", "--lib"]))?;
        read_here(root, &tools)?;
        command.arg("--exact").args(EMULATED.lines());
    }
    run(&mut command)
}

/// Records under emulation, and reads the recording here.
fn read_here(root: &Path, tools: &Tools) -> Result<(), String> {
    let build = ["build", "--package", "heaptide-preload", "--profile", "capture"];
    run(&mut tools.cargo(root, &build))?;
    let library = tools.place.join(TARGET).join("capture/libheaptide_preload.so");
    let mut command = Command::new(cargo_program());
    command.args(["test", "--package", "heaptide-cli", "--test", "record", "aarch64::"]);
    command.args(["--", "--ignored"]).current_dir(root).env_remove("RUSTC");
    command.env("TEST_AARCH64_QEMU", &tools.qemu).env("TEST_AARCH64_SYSROOT", &tools.sysroot);
    command.env("TEST_AARCH64_CC", &tools.compiler).env("TEST_AARCH64_LIBRARY", &library);
    run(command.env("TEST_AARCH64_CXX", tools.cpp()))
}

/// Returns the tests of programs, built for aarch64.
fn test_programs(tools: &Tools, root: &Path) -> Result<Vec<PathBuf>, String> {
    let build = ["test", "--no-run", "--package", "heaptide-cli", "--test", "*"];
    run(&mut tools.cargo(root, &build))?;
    let build = [&build[..], &["--message-format", "json", "--quiet"]].concat();
    let built = output(&mut tools.cargo(root, &build))?;
    let messages = built.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tests = messages.filter(|message| message["target"]["kind"][0] == "test");
    let paths: Vec<PathBuf> =
        tests.filter_map(|message| Some(message["executable"].as_str()?.into())).collect();
    if paths.is_empty() {
        return Err("cargo does not name the tests that it has built".to_owned());
    }
    Ok(paths)
}
