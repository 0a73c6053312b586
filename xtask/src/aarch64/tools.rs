//! What builds and runs programs of aarch64, found by variables: a compiler of C, beside which the
//! other tools of its prefix are, the root of its C library, and an emulator that is linked
//! statically and gives forked children empty memory where they ask for it: qemu 8.0 and later.
//! `RUSTC` is one that has the standard library for the target.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{cargo_program, target};

pub const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The tools that tests call, of the compiler's prefix.
pub const TOOLS: [&str; 8] = ["cc", "c++", "gcc", "g++", "nm", "objcopy", "readelf", "strip"];
/// A variable, and what it is without.
pub fn value(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// What builds and runs programs of aarch64.
pub struct Tools {
    pub compiler: String,
    pub sysroot: PathBuf,
    pub qemu: String,
    /// The target directory.
    pub place: PathBuf,
}

impl Tools {
    /// Finds them, and writes scripts by which tests find them.
    pub fn new(root: &Path) -> Result<Tools, String> {
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
    pub fn cpp(&self) -> String {
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

    /// Where tests have their programs and directories.
    pub fn temporary(&self) -> PathBuf {
        self.place.join(TARGET).join("tmp")
    }

    /// Cargo for aarch64. Tests start by the script.
    pub fn cargo(&self, root: &Path, arguments: &[&str]) -> Command {
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

/// Writes a script that can be executed.
pub fn write_script(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o755))
}
