//! Tools that build and run aarch64 programs, configured by variables: a C compiler, with the other
//! tools of its prefix in the same directory, the root of its C library, and a statically linked
//! emulator that supports MADV_WIPEONFORK for forked children: qemu 8.0 or later. `RUSTC` has to
//! have the standard library for the target.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{cargo_program, target};

pub const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The tools that tests call, with the compiler's prefix.
pub const TOOLS: [&str; 8] = ["cc", "c++", "gcc", "g++", "nm", "objcopy", "readelf", "strip"];
/// Returns the value of a variable, or a default.
pub fn value(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// The tools that build and run aarch64 programs.
pub struct Tools {
    pub compiler: String,
    pub sysroot: PathBuf,
    pub qemu: String,
    /// The target directory.
    pub place: PathBuf,
}

impl Tools {
    /// Finds the tools, and writes wrapper scripts for tests.
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

    /// Returns the C++ compiler.
    pub fn cpp(&self) -> String {
        self.compiler.replace("gcc", "g++")
    }

    /// Returns the script that runs a program with its child processes.
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

    /// Returns the temporary directory of tests.
    pub fn temporary(&self) -> PathBuf {
        self.place.join(TARGET).join("tmp")
    }

    /// Returns cargo for aarch64, with the script as runner.
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

/// Runs its arguments in new namespaces where the kernel starts aarch64 programs through the
/// emulator, with their C library among the others.
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

/// Writes an executable script.
pub fn write_script(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o755))
}
