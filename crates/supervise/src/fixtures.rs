//! Compiles programs for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a program that allocates, with these flags.
pub(crate) fn build(place: &Path, name: &str, flags: &[&str]) -> PathBuf {
    assert!(can_build(place, name, flags), "the compiler refuses {flags:?}");
    place.join(name)
}

/// Like `build`; returns false if the compiler fails.
pub(crate) fn can_build(place: &Path, name: &str, flags: &[&str]) -> bool {
    let source = place.join("program.c");
    let text = "#include <stdlib.h>\nint main(void) { free(malloc(8)); return 0; }\n";
    fs::write(&source, text).expect("a source");
    let mut compiler = Command::new("cc");
    compiler.arg(&source).arg("-o").arg(place.join(name)).args(flags);
    compiler.output().expect("a compiler").status.success()
}
