//! Builds libheaptide.so with the profile it needs and puts it where `library.rs` includes it from.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for part in ["capture", "unwind", "format"] {
        println!("cargo:rerun-if-changed={}", root.join("crates").join(part).display());
    }
    println!("cargo:rerun-if-changed={}", root.join("Cargo.toml").display());
    // A target directory of its own: the outer cargo holds the lock of the usual one.
    let target = out.join("capture");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--package", "heaptide-capture", "--profile", "capture"])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    // Flags and wrappers of the outer build (clippy, sanitizers, coverage) are not for the guest's
    // library.
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "building libheaptide.so failed: {status}");
    let built = target.join("capture/libheaptide.so");
    fs::copy(&built, out.join("libheaptide.so")).expect("the built library can be copied");
}
