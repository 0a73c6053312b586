//! Builds the portable archive: the tree in one directory, which can be unpacked anywhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::TRIPLE;
use super::tree::{EPOCH, Tree, VERSION, finished};
use crate::commands::run;

/// Builds the archive. `crates/cli/Cargo.toml` refers to it for `cargo binstall`.
///
/// # Errors
///
/// tar or gzip fails.
pub fn build(root: &Path, tree: &Tree) -> Result<PathBuf, String> {
    let name = directory();
    let file = finished(root, &format!("{name}.tar.gz"))?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--owner=0", "--group=0"]);
    tar.args(["--numeric-owner", "--use-compress-program=gzip -9n"]);
    tar.arg(format!("--mtime=@{}", tree.epoch)).arg(format!("--transform=s,^[.],{name},"));
    tar.arg("--file").arg(&file).arg("--directory").arg(&tree.place).arg(".");
    run(tar.env(EPOCH, tree.epoch.to_string()))?;
    Ok(file)
}

/// Returns the name of its directory.
pub fn directory() -> String {
    format!("heaptide-{VERSION}-{TRIPLE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo binstall` extracts the programs from this archive.
    #[test]
    fn the_manifests_name_the_archive() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (package, program) in [("cli", "heaptide"), ("sql", "heaptide-sql")] {
            let manifest = here.join("../crates").join(package).join("Cargo.toml");
            let text = std::fs::read_to_string(manifest).expect("a manifest");
            let field = |name: &str| {
                let start = format!("{name} = \"");
                let line = text.lines().find_map(|line| line.strip_prefix(&start));
                let value = line.and_then(|line| line.strip_suffix('"')).expect("a field");
                let value = value.replace("{ version }", VERSION).replace("{ target }", TRIPLE);
                value.replace("{ bin }", program).replace("{ binary-ext }", "")
            };
            assert!(field("pkg-url").ends_with(&format!("/{}.tar.gz", directory())));
            assert_eq!(field("bin-dir"), format!("{}/bin/{program}", directory()));
            assert_eq!(field("pkg-fmt"), "tgz");
        }
    }
}
