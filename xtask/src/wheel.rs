//! The wheel for Python: the command with the recorder in it, and the modules.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{output, run, target};
use crate::library;

/// What it is built with.
const PINS: &str = "xtask/wheel-requirements.txt";
/// The oldest glibc that it runs with, as wheels name it.
const PLATFORM: &str = "manylinux_2_17";
/// The same as versions of symbols.
const GLIBC: (u32, u32) = (2, 17);
/// Where cargo builds for a named target.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Builds it into `wheels` of the target directory, and checks what its programs need.
///
/// # Errors
///
/// A tool cannot be fetched, the build fails, or the programs need more than the platform has.
pub fn build(root: &Path) -> Result<(), String> {
    let tools = tools(root)?;
    let wheels = target(root).join("wheels");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(tools.clone()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).map_err(|error| format!("PATH: {error}"))?;
    let mut maturin = Command::new(tools.join("maturin"));
    maturin.args(["build", "--release", "--zig", "--compatibility", PLATFORM, "--out"]);
    maturin.arg(&wheels).env("PATH", path).env("RUSTFLAGS", short_paths(root));
    run(maturin.current_dir(root))?;
    check(root, &target(root).join(TRIPLE).join("release/heaptide"))?;
    println!("the wheel is in {}", wheels.display());
    Ok(())
}

/// The directory of the programs that build it, installed as pinned.
fn tools(root: &Path) -> Result<PathBuf, String> {
    let place = target(root).join("wheel-tools");
    let pins = std::fs::read_to_string(root.join(PINS)).map_err(|e| format!("{PINS}: {e}"))?;
    let mark = place.join("installed-pins");
    if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == pins) {
        return Ok(place.join("bin"));
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    let mut pip = Command::new(place.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(pip.args(["--require-hashes", "--requirement"]).arg(root.join(PINS)))?;
    std::fs::write(&mark, pins).map_err(|error| format!("{}: {error}", mark.display()))?;
    Ok(place.join("bin"))
}

/// Flags that keep the paths of this machine out of messages in the program.
fn short_paths(root: &Path) -> String {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home).unwrap_or_default();
    let remap = |path: &Path, name| format!("--remap-path-prefix={}={name}", path.display());
    format!("{} {}", remap(&cargo, "cargo"), remap(root, "heaptide"))
}

/// The command needs no symbol of a later glibc, the recorder none at all.
fn check(root: &Path, command: &Path) -> Result<(), String> {
    let versions = output(Command::new("readelf").arg("-VW").arg(command))?;
    if let Some(late) = glibc_versions(&versions).find(|version| *version > GLIBC) {
        return Err(format!(
            "{} needs GLIBC_{}.{}, expected {}.{} at most; find what calls the new function",
            command.display(),
            late.0,
            late.1,
            GLIBC.0,
            GLIBC.1
        ));
    }
    let recorder = output(Command::new(command).arg("library").env_remove("HEAPTIDE_LIBRARY"))?;
    match library::check(root, Path::new(recorder.trim()))?.first() {
        None => Ok(()),
        Some(problem) => Err(problem.to_string()),
    }
}

/// The versions `GLIBC_X.Y` in a listing of readelf.
fn glibc_versions(listing: &str) -> impl Iterator<Item = (u32, u32)> {
    let names = listing.split("GLIBC_").skip(1);
    names.filter_map(|rest| {
        let version = rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
        let mut parts = version.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let listing = "Name: GLIBC_2.2.5  Flags: none\n Name: GLIBC_2.17  x\n Name: GLIBC_PRIVATE";
        let versions: Vec<_> = glibc_versions(listing).collect();
        assert_eq!(versions, [(2, 2), (2, 17)]);
        assert!(versions.iter().all(|version| *version <= GLIBC));
        assert!(glibc_versions("GLIBC_2.18)").any(|version| version > GLIBC));
    }
}
