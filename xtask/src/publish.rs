//! Publishing the crates that users need: `cargo xtask publish`, and `--dry-run` to try it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::commands::{cargo_program, output, run, target};

const USAGE: &str = "publish: expected `--dry-run` or nothing";
/// Where the command's package has the library and the files of the SDK; `crates/cli/build.rs`
/// prefers them.
const CARRIED: &str = "crates/cli/carried";
/// The directories of the SDK: a line each, with the place that they get in it.
const SDK: &str = "crates/cli/sdk.txt";
/// The library of the processor that packages are made on. Packages have no other one.
const LIBRARY: &str = "libheaptide-x86_64.so";
/// Takes a quarter of an hour to compile; `cargo build -p heaptide-sql` does the same.
const UNVERIFIED: &str = "heaptide-sql";

/// Packages all crates that are published. With `--dry-run`, each is built from its package, in the
/// place of publishing it.
///
/// # Errors
///
/// A crate cannot be packaged, built from its package, or published.
pub fn publish(root: &Path, arguments: &[String]) -> Result<(), String> {
    let is_dry = match arguments {
        [] => false,
        [word] if word == "--dry-run" => true,
        _ => return Err(USAGE.to_owned()),
    };
    let carried = Carried::new(root)?;
    carried.fill(root)?;
    let crates = published(root)?;
    let cargo = |words: &[&str], without: &str| {
        let mut command = Command::new(cargo_program());
        // What the command's package carries is in no commit.
        command.args(words).arg("--allow-dirty").current_dir(root);
        for name in crates.iter().filter(|name| *name != without) {
            command.args(["--package", name]);
        }
        run(&mut command)
    };
    cargo(&["package", "--no-verify"], "")?;
    if is_dry { cargo(&["package"], UNVERIFIED) } else { cargo(&["publish"], "") }
}

/// The names of the crates whose manifests do not forbid it.
fn published(root: &Path) -> Result<Vec<String>, String> {
    let mut cargo = Command::new(cargo_program());
    cargo.args(["metadata", "--no-deps", "--locked", "--format-version", "1"]).current_dir(root);
    let data: Value = serde_json::from_str(&output(&mut cargo)?).map_err(|e| format!("{e}"))?;
    let packages = data["packages"].as_array().into_iter().flatten();
    let published = packages.filter(|package| package["publish"].is_null());
    Ok(published.filter_map(|package| Some(package["name"].as_str()?.to_owned())).collect())
}

/// The directory, which is removed at the end.
struct Carried(PathBuf);

impl Carried {
    fn new(root: &Path) -> Result<Carried, String> {
        let carried = Carried(root.join(CARRIED));
        if carried.0.exists() {
            fs::remove_dir_all(&carried.0).map_err(|e| format!("{CARRIED}: {e}"))?;
        }
        Ok(carried)
    }

    /// Copies what is in a commit, and builds the library.
    fn fill(&self, root: &Path) -> Result<(), String> {
        let sdk = fs::read_to_string(root.join(SDK)).map_err(|e| format!("{SDK}: {e}"))?;
        let directories = sdk.lines().filter_map(|line| Some(line.split_once(' ')?.0));
        let mut listing = Command::new("git");
        listing.args(["ls-files", "--", "Cargo.toml"]).args(directories).current_dir(root);
        for path in output(&mut listing)?.lines() {
            // A directory with a manifest would be another package.
            let end = if path.ends_with("Cargo.toml") { ".carried" } else { "" };
            copy(&root.join(path), &self.0.join(format!("{path}{end}")))?;
        }
        let mut build = Command::new(cargo_program());
        build.args(["build", "--locked", "--package", "heaptide-preload", "--profile", "capture"]);
        let flags = format!("--remap-path-prefix={}=heaptide", root.display());
        run(build.env("RUSTFLAGS", flags).current_dir(root))?;
        let built = target(root).join("capture/libheaptide_preload.so");
        copy(&built, &self.0.join(LIBRARY))
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let parent = to.parent().map_or(Ok(()), fs::create_dir_all);
    let copied = parent.and_then(|()| fs::copy(from, to));
    copied.map(|_| ()).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}
