//! Builds the wheel for Python: both programs, the recorder, and the modules.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::{TRIPLE, tools};
use super::tree::{EPOCH, Tree, VERSION, copy, files, finished, fresh, places, settle};
use crate::commands::run;

/// maturin's name for the platform.
const LINUX: &str = "linux_x86_64";
/// The platform tags of all systems that the wheel runs on: the programs need no libc.
const PLATFORMS: &str = "manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64";
/// The directory of the modules in the tree.
const MODULES: &str = "share/heaptide/python/heaptide";

/// Builds the wheel from the tree's modules and programs, and from the metadata in
/// `pyproject.toml`, which maturin converts.
///
/// # Errors
///
/// A tool cannot be fetched or fails, or a file cannot be copied.
pub fn build(root: &Path, tree: &Tree) -> Result<PathBuf, String> {
    let tools = tools(root)?;
    let work = fresh(&places(root).join("wheel"))?;
    let name = format!("heaptide-{VERSION}");
    let contents = fresh(&work.join(&name))?;
    let mut maturin = Command::new(tools.join("maturin"));
    maturin.args(["pep517", "write-dist-info", "--locked", "--target", TRIPLE]);
    run(maturin.arg("--metadata-directory").arg(&contents).current_dir(root))?;
    let modules = tree.place.join(MODULES);
    for module in files(&modules)? {
        copy(&modules.join(&module), &contents.join("heaptide").join(&module))?;
    }
    settle(&contents, tree.epoch)?;
    let scripts = contents.join(format!("{name}.data/scripts"));
    for program in ["heaptide", "heaptide-sql"] {
        copy(&tree.place.join("bin").join(program), &scripts.join(program))?;
    }
    let wheel = |words: &[&str]| {
        let mut command = Command::new(tools.join("wheel"));
        run(command.args(words).env(EPOCH, tree.epoch.to_string()).current_dir(&work))
    };
    wheel(&["pack", &name])?;
    let packed = format!("{name}-py3-none-{LINUX}.whl");
    wheel(&["tags", "--remove", "--platform-tag", PLATFORMS, &packed])?;
    let tagged = format!("{name}-py3-none-{PLATFORMS}.whl");
    let file = finished(root, &tagged)?;
    std::fs::rename(work.join(&tagged), &file).map_err(|e| format!("{tagged}: {e}"))?;
    Ok(file)
}
