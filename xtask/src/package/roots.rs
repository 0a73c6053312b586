//! Clean roots: minimal installations of Debian, and one that contains only musl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::{fresh, places};
use crate::commands::run;
use crate::needs::may_be_missing;

/// A system to test packages in.
pub struct Root {
    /// Its name: a release of Debian, or `musl`.
    pub name: &'static str,
    /// The libc of programs there, in zig's notation.
    pub libc: &'static str,
}

/// glibc 2.31, 2.36 and 2.41, and musl.
pub const ROOTS: [Root; 4] = [
    Root { name: "bullseye", libc: "gnu.2.17" },
    Root { name: "bookworm", libc: "gnu.2.17" },
    Root { name: "trixie", libc: "gnu.2.17" },
    Root { name: "musl", libc: "musl" },
];

/// Packages to install on Debian in addition to essential ones.
const PACKAGES: &str = "--include=python3,python3-venv";
/// The loader of musl, from the host's Debian package, and its path in programs.
const MUSL: (&str, &str) = ("/usr/lib/x86_64-linux-musl/libc.so", "lib/ld-musl-x86_64.so.1");
/// Directories of the musl root.
const DIRECTORIES: [&str; 6] = ["dev", "lib", "opt", "proc", "root", "tmp"];

impl Root {
    /// Returns whether it has a distribution's tools, such as dpkg and python3.
    pub fn is_debian(&self) -> bool {
        self.name != "musl"
    }

    /// Returns a new copy of it for one package. Creates the root at the first call.
    ///
    /// # Errors
    ///
    /// It cannot be created or copied.
    pub fn copy(&self, root: &Path) -> Result<PathBuf, String> {
        let roots = places(root).join("roots");
        let place = roots.join(self.name);
        if !place.exists() {
            let draft = fresh(&roots.join(format!("{}.new", self.name)))?;
            if self.is_debian() {
                debootstrap(self.name, &draft)?
            } else {
                only_musl(&draft)?
            }
            fs::rename(&draft, &place).map_err(|e| format!("{}: {e}", place.display()))?;
        }
        let trial = roots.join("trial");
        run(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&trial))?;
        run(Command::new("cp").arg("-a").arg(&place).arg(&trial))?;
        Ok(trial)
    }

    /// Returns the missing requirement to create it: a name for `HEAPTIDE_ALLOW_SKIP`.
    pub fn missing(&self) -> Option<&'static str> {
        let lacks = |program: &str| Command::new(program).arg("--version").output().is_err();
        if !crate::needs::is_root() {
            Some("root")
        } else if self.is_debian() && lacks("debootstrap") {
            Some("debootstrap")
        } else if !self.is_debian() && !Path::new(MUSL.0).exists() {
            Some("musl-gcc")
        } else {
            None
        }
    }

    /// Returns whether it can be created here. If not, `HEAPTIDE_ALLOW_SKIP` has to name the
    /// requirement.
    ///
    /// # Errors
    ///
    /// It cannot be created, and must not be skipped.
    pub fn is_possible(&self) -> Result<bool, String> {
        let Some(need) = self.missing() else { return Ok(true) };
        if may_be_missing(need) {
            println!("skipped: packages in {} need {need}", self.name);
            return Ok(false);
        }
        Err(format!(
            "packages in {} need {need}, not found here; HEAPTIDE_ALLOW_SKIP={need} skips them",
            self.name
        ))
    }
}

fn debootstrap(release: &str, place: &Path) -> Result<(), String> {
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", PACKAGES, release]).arg(place);
    if let Some(mirror) = std::env::var_os("DEBIAN_MIRROR") {
        debootstrap.arg(mirror);
    }
    run(&mut debootstrap)
}

fn only_musl(place: &Path) -> Result<(), String> {
    let failed = |e| format!("{}: {e}", place.display());
    for directory in DIRECTORIES {
        fs::create_dir_all(place.join(directory)).map_err(failed)?;
    }
    fs::copy(MUSL.0, place.join(MUSL.1)).map_err(failed)?;
    run(Command::new("cp").args(["-a", "/dev/null", "/dev/urandom"]).arg(place.join("dev")))
}
