//! Builds `libheaptide.so` with its own profile and copies it to where `library.rs` includes it
//! from; lists the files that `sdk.rs` includes. A published package has both in its own directory.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // The current directory of the sources, read at run time: the compiled script can stem from a
    // clone that has moved since.
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    // In the repository, files that an interrupted `cargo xtask publish` left are ignored.
    if here.ends_with("crates/cli") {
        let root = here.join("../..");
        list_sdk(&root, &out);
        if is_check() { postpone_library(&out) } else { build_library(&root, &out) }
    } else {
        let carried = here.join(CARRIED);
        list_sdk(&carried, &out);
        take_library(&carried, &out);
    }
}

/// The directory of a published package with the files that the repository has elsewhere. `cargo
/// xtask publish` fills it.
const CARRIED: &str = "carried";
/// The suffix of manifests there: a directory with a `Cargo.toml` would be excluded as another
/// package.
const CARRIED_END: &str = ".carried";

/// Copies the library that a published package contains.
fn take_library(carried: &Path, out: &Path) {
    let processor = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let library = carried.join(format!("libheaptide-{processor}.so"));
    println!("cargo:rerun-if-changed={}", library.display());
    assert!(
        library.is_file(),
        "this package has no recorder for {processor}; build heaptide from its repository"
    );
    fs::copy(library, out.join("libheaptide.so")).expect("the library can be copied");
}

/// Returns whether `cargo check` or `cargo clippy` runs this script; only the command line of cargo
/// shows it. False if in doubt.
fn is_check() -> bool {
    let parent = std::os::unix::process::parent_id();
    let line = fs::read_to_string(format!("/proc/{parent}/cmdline")).unwrap_or_default();
    let mut words = line.split('\0').skip(1);
    while let Some(word) = words.next() {
        match word {
            "-C" | "-Z" | "--color" | "--config" => _ = words.next(),
            _ if word.starts_with(['-', '+']) => {}
            _ => return word == "check" || word == "c",
        }
    }
    false
}

/// Leaves the library to the next build, since a check only needs a file: compiling the recorder
/// takes longer than the check of any crate. Cargo runs a script again that names a missing file.
fn postpone_library(out: &Path) {
    let library = out.join("libheaptide.so");
    if !library.exists() {
        fs::write(&library, "").expect("an empty file can be written");
    }
    println!("cargo:rerun-if-changed={}", out.join("built-by-a-check").display());
}

fn build_library(root: &Path, out: &Path) {
    for part in ["preload", "relocate", "recorder", "unwind", "trace", "format"] {
        println!("cargo:rerun-if-changed={}", root.join("crates").join(part).display());
    }
    println!("cargo:rerun-if-changed={}", root.join("Cargo.toml").display());
    // A separate target directory, because the outer cargo holds the lock of the default one.
    let target = out.join("capture");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--package", "heaptide-preload", "--profile", "capture"])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    // Flags and wrappers of the outer build (clippy, sanitizers, coverage) must not affect the
    // library, which is loaded into guests.
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
    ] {
        cargo.env_remove(name);
    }
    // One library serves every libc of a processor.
    let mut built = target.clone();
    let [host, processor] =
        ["HOST", "CARGO_CFG_TARGET_ARCH"].map(|name| env::var(name).expect("cargo sets it"));
    if !host.starts_with(&processor) {
        let other = format!("{processor}-unknown-linux-gnu");
        cargo.args(["--target", &other]);
        built.push(other);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags_for_paths());
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "building libheaptide.so failed: {status}");
    built.push("capture/libheaptide_preload.so");
    fs::copy(&built, out.join("libheaptide.so")).expect("the built library can be copied");
}

/// Returns the flags of the outer build that replace paths of this machine in the binary.
fn flags_for_paths() -> String {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let for_paths = flags.split('\x1f').filter(|flag| flag.starts_with("--remap-path-prefix="));
    for_paths.collect::<Vec<_>>().join("\x1f")
}

/// Directories of the SDK: per line a source directory and where it is installed.
const SDK: &str = include_str!("sdk.txt");
/// The head of the manifest of the installed workspace, which contains the crate and the monitors
/// in Rust.
const WORKSPACE: &str = "\
# The crate for programs that Heaptide records, and monitors: `cargo build --release` builds all.

[workspace]
resolver = \"3\"
members = [\"crates/heaptide\", \"monitors/rust/*\"]
";
/// Directories that tools create among the sources.
const LEFT_BEHIND: [&str; 4] = ["__pycache__", "build", "dist", "target"];

/// Writes `sdk_files.rs`, a list of the SDK's files with their contents.
fn list_sdk(root: &Path, out: &Path) {
    let mut text = String::from("[\n");
    for (from, to) in SDK.lines().filter_map(|line| line.split_once(' ')) {
        let from = root.join(from);
        if from.exists() {
            println!("cargo:rerun-if-changed={}", from.display());
            list_files(&from, to, &mut text);
        }
    }
    let workspace = out.join("sdk_workspace.toml");
    fs::write(&workspace, sdk_workspace(root)).expect("the workspace can be written");
    let to = "share/heaptide/Cargo.toml";
    writeln!(text, "    ({to:?}, include_bytes!({workspace:?}) as &[u8]),").expect("a string");
    text += "]\n";
    fs::write(out.join("sdk_files.rs"), text).expect("the list can be written");
}

/// Returns the manifest of that workspace: the sections that members inherit are copied from the
/// manifest of the repository.
fn sdk_workspace(root: &Path) -> String {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))
        .or_else(|_| fs::read_to_string(root.join(format!("Cargo.toml{CARRIED_END}"))))
        .expect("the workspace's manifest");
    let mut text = WORKSPACE.to_owned();
    let mut inherited = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inherited = line.starts_with("[workspace.");
            text += if inherited { "\n" } else { "" };
        }
        if inherited && !line.trim().is_empty() {
            text += line;
            text.push('\n');
        }
    }
    text
}

fn list_files(from: &Path, to: &str, text: &mut String) {
    let entries = fs::read_dir(from).expect("a directory of sources can be read");
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let left = LEFT_BEHIND.contains(&name.as_str()) || name.ends_with(".egg-info");
        if left || name.starts_with('.') {
            continue;
        }
        let to = format!("{to}/{}", name.strip_suffix(CARRIED_END).unwrap_or(&name));
        if path.is_dir() {
            list_files(&path, &to, text);
        } else {
            let path = path.canonicalize().expect("a source has a path");
            writeln!(text, "    ({to:?}, include_bytes!({path:?}) as &[u8]),").expect("a string");
        }
    }
}
