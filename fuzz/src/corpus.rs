//! The stored inputs: `fuzz/corpus/TARGET`.

use std::fs;
use std::path::{Path, PathBuf};

/// An input and its file.
pub type Input = (PathBuf, Vec<u8>);

/// Returns a directory of `fuzz`: `corpus`, or `artifacts` for failing inputs.
pub fn directory(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target)
}

/// Returns the corpus of a target, sorted by name.
pub fn corpus(target: &str) -> Vec<Input> {
    let directory = directory("corpus", target);
    let entries = fs::read_dir(&directory).unwrap_or_else(|e| panic!("{directory:?}: {e}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).expect("an input"))).collect()
}
