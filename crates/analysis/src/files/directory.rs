//! Lists a directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Returns the files of a directory, sorted.
pub(crate) fn list(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let io = |source| Error::Io { path: directory.to_owned(), doing: "read", source };
    let entries = fs::read_dir(directory).map_err(io)?;
    let mut paths =
        entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(io)?;
    paths.sort();
    Ok(paths)
}
