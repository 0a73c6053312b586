//! Builds the wheel for Python: both programs, the recorder, and the modules.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::{PROFILE, TRIPLE, tools, with_flags};
use super::tree::{EPOCH, Tree, VERSION, finished, fresh, places};
use crate::commands::run;

/// maturin's name for the platform of a program linked with musl.
const MUSL: &str = "musllinux_1_1";
/// The platform tags of all systems that the wheel runs on: the programs need no libc.
const PLATFORMS: &str = "manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64";

/// Builds the wheel: maturin packs the modules and the command, and the programs are added.
///
/// # Errors
///
/// A tool cannot be fetched, or fails.
pub fn build(root: &Path, tree: &Tree) -> Result<PathBuf, String> {
    let tools = tools(root)?;
    let work = fresh(&places(root).join("wheel"))?;
    let epoch = tree.epoch.to_string();
    let mut maturin = Command::new(tools.join("maturin"));
    maturin.args(["build", "--locked", "--zig", "--profile", PROFILE, "--target", TRIPLE]);
    maturin.args(["--compatibility", MUSL, "--out"]).arg(&work).env(EPOCH, &epoch);
    run(with_flags(&mut maturin, root, &tools)?)?;
    let wheel = |words: &[&str]| {
        let mut command = Command::new(tools.join("wheel"));
        run(command.args(words).env(EPOCH, &epoch).current_dir(&work))
    };
    wheel(&["unpack", &format!("heaptide-{VERSION}-py3-none-{MUSL}_x86_64.whl")])?;
    let unpacked = format!("heaptide-{VERSION}");
    let scripts = work.join(&unpacked).join(format!("heaptide-{VERSION}.data/scripts"));
    // All packages have the same programs; that of maturin still has its unwind tables.
    for program in ["heaptide", "heaptide-sql"] {
        let copied = std::fs::copy(tree.place.join("bin").join(program), scripts.join(program));
        copied.map_err(|e| format!("{}: {e}", scripts.display()))?;
    }
    wheel(&["pack", &unpacked])?;
    let name = format!("heaptide-{VERSION}-py3-none-{MUSL}_x86_64.whl");
    wheel(&["tags", "--remove", "--platform-tag", PLATFORMS, &name])?;
    let name = format!("heaptide-{VERSION}-py3-none-{PLATFORMS}.whl");
    let file = finished(root, &name)?;
    std::fs::rename(work.join(&name), &file).map_err(|e| format!("{name}: {e}"))?;
    Ok(file)
}
