//! Builds the package for Fedora, RHEL, openSUSE and others with rpm.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::{EPOCH, Tree, VERSION, files, finished, fresh, places, write};
use crate::commands::run;

/// Macros that disable automatic additions and changes of rpmbuild.
const MACROS: [&str; 9] = [
    "_buildhost localhost",
    "_build_id_links none",
    "_binary_payload w6.xzdio", // readable by the rpm of CentOS 7, too
    "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    "__os_install_post %{nil}",
    "debug_package %{nil}",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "source_date_epoch_from_changelog 0",
];

/// Builds the package. It requires nothing, because the programs are static, and the recorder needs
/// no library.
///
/// # Errors
///
/// A file cannot be written, or rpmbuild fails.
pub fn build(root: &Path, tree: &Tree) -> Result<PathBuf, String> {
    let place = tree.below_usr(root, "rpm", &[])?;
    let work = fresh(&places(root).join("rpmbuild"))?;
    let spec = work.join("heaptide.spec");
    write(&spec, specification(&place, &files(&place)?).as_bytes())?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--quiet", "--target", "x86_64-linux"]);
    let directories = [("_topdir", work.as_path()), ("_rpmdir", &work)];
    for (name, directory) in directories {
        rpmbuild.arg("--define").arg(format!("{name} {}", directory.display()));
    }
    for definition in MACROS {
        rpmbuild.args(["--define", definition]);
    }
    run(rpmbuild.arg(&spec).env(EPOCH, tree.epoch.to_string()))?;
    let name = format!("heaptide-{VERSION}-1.x86_64.rpm");
    let file = finished(root, &name)?;
    std::fs::rename(work.join(&name), &file).map_err(|e| format!("{name}: {e}"))?;
    Ok(file)
}

/// Returns the specification: all files of the tree, and the directories that only this package
/// has.
fn specification(place: &Path, files: &[PathBuf]) -> String {
    let mut text = format!(
        "Name: heaptide\n\
         Version: {VERSION}\n\
         Release: 1\n\
         Summary: Heap profiler for native programs\n\
         License: MIT OR Apache-2.0\n\
         AutoReqProv: no\n\
         \n\
         %description\n\
         Heaptide records every allocation of a program with its exact call stack, and\n\
         reports which code holds memory at peak usage, what leaks, and what is freed\n\
         at once. The program is not rebuilt.\n\
         \n\
         %install\n\
         mkdir -p %{{buildroot}}\n\
         cp -a {}/. %{{buildroot}}/\n\
         \n\
         %files\n\
         %defattr(-,root,root,-)\n",
        place.display()
    );
    let mut own: Vec<&Path> = files
        .iter()
        .flat_map(|path| path.ancestors().skip(1))
        .filter(|directory| directory.components().any(is_own))
        .collect();
    own.sort();
    own.dedup();
    own.iter().for_each(|directory| text += &format!("%dir \"/{}\"\n", directory.display()));
    files.iter().for_each(|file| text += &format!("\"/{}\"\n", file.display()));
    text
}

/// Returns whether a component of a path is a directory of this package.
fn is_own(part: std::path::Component<'_>) -> bool {
    part.as_os_str().to_string_lossy().starts_with("heaptide")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_other_packages_are_not_owned() {
        let files = ["usr/bin/heaptide", "usr/share/heaptide/a/b"].map(PathBuf::from);
        let text = specification(Path::new("/tree"), &files);
        assert!(text.contains("%dir \"/usr/share/heaptide\"\n%dir \"/usr/share/heaptide/a\"\n"));
        assert!(!text.contains("%dir \"/usr/share\"\n") && !text.contains("%dir \"/usr/bin\"\n"));
    }
}
