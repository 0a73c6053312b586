//! The recorder for aarch64 and its test programs, under an emulator.
//!
//! What these need is found by variables: a compiler of C, whose C++ compiler has the same name
//! with `g++`, the root of its C library, and the emulator, which has to give forked children empty
//! memory where they ask for it: qemu 8.0 and later. `RUSTC` is one that has core for the target.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{cargo_program, run, target};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// A variable, and what it is without.
fn value(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// Builds the library for aarch64; runs the tests of the unwinder and the test programs there.
///
/// # Errors
///
/// Something is missing, or a test fails.
pub fn test(root: &Path) -> Result<(), String> {
    let compiler = value("HEAPTIDE_AARCH64_CC", "aarch64-linux-gnu-gcc");
    let sysroot = value("HEAPTIDE_AARCH64_SYSROOT", "/usr/aarch64-linux-gnu");
    let qemu = value("HEAPTIDE_AARCH64_QEMU", "qemu-aarch64");
    let place = target(root).join("aarch64");
    let cross = |arguments: &[&str]| {
        let mut command = Command::new(cargo_program());
        command.args(arguments).args(["--target", TARGET]).current_dir(root);
        command.env("CARGO_TARGET_DIR", &place);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", &compiler);
        let runner = format!("{qemu} -L {sysroot}");
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
        command
    };
    run(&mut cross(&["build", "--package", "heaptide-preload", "--profile", "capture"]))?;
    run(&mut cross(&["test", "--package", "heaptide-unwind", "--lib"]))?;
    let library: PathBuf = place.join(TARGET).join("capture/libheaptide_preload.so");
    let mut guests = Command::new(cargo_program());
    guests.args(["test", "--package", "heaptide-cli", "--test", "guests", "aarch64::"]);
    guests.args(["--", "--ignored"]).current_dir(root).env_remove("RUSTC");
    guests.env("TEST_AARCH64_QEMU", &qemu).env("TEST_AARCH64_SYSROOT", &sysroot);
    guests.env("TEST_AARCH64_CC", &compiler).env("TEST_AARCH64_LIBRARY", &library);
    guests.env("TEST_AARCH64_CXX", compiler.replace("gcc", "g++"));
    run(&mut guests)
}
