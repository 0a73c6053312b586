//! The command, the recorder and their tests for aarch64, emulated: the programs alone, by qemu's
//! emulation of Linux, or with a kernel of their own.
//!
//! What these need is found by variables: a compiler of C, beside which the other tools of its
//! prefix are, the root of its C library, and an emulator that is linked statically and gives
//! forked children empty memory where they ask for it: qemu 8.0 and later. `RUSTC` is one that has
//! the standard library for the target.

mod machine;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{cargo_program, output, run, target};
use machine::{Machine, write_script};
use serde_json::Value;

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The tools that tests call, of the compiler's prefix.
const TOOLS: [&str; 8] = ["cc", "c++", "gcc", "g++", "nm", "objcopy", "readelf", "strip"];
/// Parts of the names of tests that do not run where programs are emulated: they trace, limit or
/// confine the emulator, record programs of this machine, or build with its tools.
const NOT_EMULATED: [&str; 0] = [];

/// A variable, and what it is without.
fn value(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// What builds and runs programs of aarch64.
struct Tools {
    compiler: String,
    sysroot: PathBuf,
    qemu: String,
    /// The target directory.
    place: PathBuf,
}

impl Tools {
    /// Finds them, and writes scripts by which tests find them.
    fn new(root: &Path) -> Result<Tools, String> {
        let tools = Tools {
            compiler: value("HEAPTIDE_AARCH64_CC", "aarch64-linux-gnu-gcc"),
            sysroot: value("HEAPTIDE_AARCH64_SYSROOT", "/usr/aarch64-linux-gnu").into(),
            qemu: value("HEAPTIDE_AARCH64_QEMU", "qemu-aarch64"),
            place: target(root).join("aarch64"),
        };
        tools.write_scripts().map_err(|e| format!("{}: {e}", tools.place.display()))?;
        Ok(tools)
    }

    /// The compiler of C++.
    fn cpp(&self) -> String {
        self.compiler.replace("gcc", "g++")
    }

    /// The script that runs a program, and all that it starts.
    fn start(&self) -> PathBuf {
        self.place.join("run")
    }

    fn write_scripts(&self) -> std::io::Result<()> {
        let directory = self.place.join("tools");
        fs::create_dir_all(&directory)?;
        let prefix = self.compiler.trim_end_matches("gcc");
        for name in TOOLS {
            let tool = match name {
                "cc" | "gcc" => self.compiler.clone(),
                "c++" | "g++" => self.cpp(),
                other => format!("{prefix}{other}"),
            };
            write_script(&directory.join(name), &format!("#!/bin/sh\nexec {tool} \"$@\"\n"))?;
        }
        let rustc = value("RUSTC", "rustc");
        let rustc = format!("{rustc} --target {TARGET} -C linker={}", self.compiler);
        write_script(&directory.join("rustc"), &format!("#!/bin/sh\nexec {rustc} \"$@\"\n"))?;
        let start = START.replace("SYSROOT", &self.sysroot.display().to_string());
        let start = start.replace("QEMU", &self.qemu);
        write_script(&self.start(), &start.replace("TOOLS", &directory.display().to_string()))
    }

    /// Cargo for aarch64. Tests start by the script.
    fn cargo(&self, root: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_program());
        command.args(arguments).args(["--target", TARGET]).current_dir(root);
        command.env("CARGO_TARGET_DIR", &self.place);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", &self.compiler);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", self.start());
        command.env("CC_aarch64_unknown_linux_gnu", &self.compiler);
        command
    }
}

/// Runs its words where the kernel starts programs of aarch64 by the emulator, with their C library
/// among the others, in namespaces of their own.
const START: &str = r#"#!/bin/sh
qemu=$(command -v QEMU) || { echo "QEMU: not found" >&2; exit 2; }
export qemu
exec unshare --user --map-root-user --mount sh -c '
ff="\\xff\\xff\\xff\\xff"
head="\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00"
mask="$ff\\xff\\xff\\xff\\x00$ff$ff\\xfe\\xff\\xff\\xff"
misc=/proc/sys/fs/binfmt_misc
lib=$(readlink -f /lib)
mount -t binfmt_misc binfmt_misc $misc &&
    mount -t overlay overlay -o "lowerdir=SYSROOT/lib:$lib" "$lib" &&
    printf "%s" ":aarch64:M::$head:$mask:$qemu:PF" > $misc/register &&
    PATH="TOOLS:$PATH" exec "$@"' sh "$@"
"#;

/// Where tests have their programs and directories.
fn temporary(tools: &Tools) -> PathBuf {
    tools.place.join(TARGET).join("tmp")
}

/// Builds all for aarch64 and runs the tests there: those whose names contain one of the words. With
/// `--kernel DIR` before the words in a machine that boots this kernel, and only the test programs.
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
        return Machine::new(&tools, Path::new(kernel)).run(root, &guests(&tools, root)?, words);
    }
    if words.is_empty() {
        run(&mut tools.cargo(root, &["test", "--package", "heaptide-unwind", "--lib"]))?;
        read_here(root, &tools)?;
    }
    let mut command = tools.cargo(root, &["test", "--package", "heaptide-cli", "--test", "guests"]);
    command.arg("--").args(words).env("HEAPTIDE_ALLOW_SKIP", "all");
    run(command.args(NOT_EMULATED.iter().flat_map(|name| ["--skip", name])))
}

/// Records there, and reads here.
fn read_here(root: &Path, tools: &Tools) -> Result<(), String> {
    let build = ["build", "--package", "heaptide-preload", "--profile", "capture"];
    run(&mut tools.cargo(root, &build))?;
    let library = tools.place.join(TARGET).join("capture/libheaptide_preload.so");
    let mut command = Command::new(cargo_program());
    command.args(["test", "--package", "heaptide-cli", "--test", "guests", "aarch64::"]);
    command.args(["--", "--ignored"]).current_dir(root).env_remove("RUSTC");
    command.env("TEST_AARCH64_QEMU", &tools.qemu).env("TEST_AARCH64_SYSROOT", &tools.sysroot);
    command.env("TEST_AARCH64_CC", &tools.compiler).env("TEST_AARCH64_LIBRARY", &library);
    run(command.env("TEST_AARCH64_CXX", tools.cpp()))
}

/// The tests of programs, built for aarch64.
fn guests(tools: &Tools, root: &Path) -> Result<PathBuf, String> {
    let build = ["test", "--no-run", "--package", "heaptide-cli", "--test", "guests"];
    run(&mut tools.cargo(root, &build))?;
    let build = [&build[..], &["--message-format", "json", "--quiet"]].concat();
    let built = output(&mut tools.cargo(root, &build))?;
    let messages = built.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let paths = messages.filter(|message| message["target"]["name"] == "guests");
    let path = paths.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).last();
    path.ok_or_else(|| "cargo does not name the tests that it has built".to_owned())
}
