//! Collects the licences of third-party crates in the programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::programs::{FEATURES, TRIPLE};
use crate::commands::{cargo_program, output};

/// Prefixes of names of licence files.
const NAMES: [&str; 5] = ["licen", "copying", "copyright", "notice", "unlicense"];
/// Their suffixes.
const ENDINGS: [&str; 4] = ["", "txt", "md", "mit"];
/// The depth to which crates are searched, because bundled C sources have their own licences.
const DEPTH_MAX: usize = 3;
const HEAD: &str = "\
Heaptide is licensed under MIT or Apache-2.0. Its programs contain the following crates, each under
its own licence, and the standard library of Rust (MIT or Apache-2.0) and musl (MIT, copyright Rich
Felker and others). The texts of the licences follow, each after the names of its crates.

";

/// Returns the crates with their licences, followed by each distinct text.
///
/// # Errors
///
/// Cargo fails, or a crate has neither a licence nor a file with one.
pub fn text(root: &Path) -> Result<String, String> {
    let contained = contained(root)?;
    let mut list = String::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages(root)? {
        if !contained.contains(&package.name) {
            continue;
        }
        let files = licence_files(&package.place, DEPTH_MAX);
        if package.licence.is_empty() && files.is_empty() {
            return Err(format!("{}: neither a licence nor a file with one", package.name));
        }
        list += &format!("{}: {}\n", package.name, package.licence);
        for file in files {
            let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let text = String::from_utf8_lossy(&bytes).trim_end().replace('\r', "");
            texts.entry(text).or_default().insert(package.name.clone());
        }
    }
    let mut by_crates: Vec<(String, String)> = texts.into_iter().map(titled).collect();
    by_crates.sort();
    let rule = "=".repeat(80);
    let texts = by_crates.iter().map(|(names, text)| format!("\n{rule}\n{names}\n\n{text}\n"));
    Ok(format!("{HEAD}{list}{}", texts.collect::<String>()))
}

/// Returns a text with the names of its crates.
fn titled((text, names): (String, BTreeSet<String>)) -> (String, String) {
    (names.into_iter().collect::<Vec<_>>().join(", "), text)
}

/// A third-party crate.
struct Package {
    /// Name and version.
    name: String,
    licence: String,
    place: PathBuf,
}

/// Returns all packages in Cargo.lock.
fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let mut cargo = Command::new(cargo_program());
    cargo.args(["metadata", "--locked", "--format-version", "1"]).current_dir(root);
    let data: Value = serde_json::from_str(&output(&mut cargo)?).map_err(|e| format!("{e}"))?;
    let word = |package: &Value, name: &str| package[name].as_str().unwrap_or_default().to_owned();
    let packages = data["packages"].as_array().into_iter().flatten();
    let foreign = packages.filter(|package| !package["source"].is_null());
    Ok(foreign
        .map(|package| Package {
            name: format!("{} {}", word(package, "name"), word(package, "version")),
            licence: word(package, "license"),
            place: PathBuf::from(word(package, "manifest_path")).with_file_name("."),
        })
        .collect())
}

/// Returns names and versions of the crates in the two programs.
fn contained(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut cargo = Command::new(cargo_program());
    cargo.args(["tree", "--locked", "--package", "heaptide-cli", "--package", "heaptide-sql"]);
    cargo.args(FEATURES).args(["--edges", "normal", "--target", TRIPLE, "--prefix", "none"]);
    let listing = output(cargo.args(["--format", "{p}"]).current_dir(root))?;
    Ok(listing.lines().filter_map(name_and_version).collect())
}

/// Extracts `name 1.2.3` from a line `name v1.2.3 (more)`.
fn name_and_version(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    Some(format!("{} {}", words.next()?, words.next()?.strip_prefix('v')?))
}

/// Returns the licence files of a crate, sorted.
fn licence_files(place: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if path.is_dir() && depth > 1 {
            found.extend(licence_files(&path, depth - 1));
        } else if path.is_file() && is_licence(&name) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns whether a file with this lower-case name is a licence.
fn is_licence(name: &str) -> bool {
    let ending = Path::new(name).extension().unwrap_or_default().to_string_lossy();
    let has_ending = ENDINGS.contains(&&*ending) || ending.starts_with("apache");
    has_ending && NAMES.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_cargo_tree_has_name_and_version() {
        let name = |line| name_and_version(line).unwrap_or_default();
        assert_eq!(name("syn v3.0.1 (proc-macro)"), "syn 3.0.1");
        assert_eq!(name("gimli v0.33.2"), "gimli 0.33.2");
        assert_eq!(name(""), "");
    }

    #[test]
    fn licence_files_are_recognised_by_name() {
        assert!(
            ["license-mit", "copying", "unlicense", "licence.md"].iter().all(|n| is_licence(n))
        );
        assert!(!["licenses.rs", "notice.html", "readme.md"].iter().any(|n| is_licence(n)));
    }
}
