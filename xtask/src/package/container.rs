//! Builds the directory for a container image: the Dockerfile next to the installed tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::{Tree, fresh, places};
use crate::commands::run;

/// The Dockerfile.
const RECIPE: &str = "examples/container/Dockerfile";

/// Creates it in `package/container` of the target directory.
///
/// # Errors
///
/// A file cannot be written.
pub fn build(root: &Path, tree: &Tree) -> Result<PathBuf, String> {
    let place = fresh(&places(root).join("container"))?;
    run(Command::new("cp").arg("-a").arg(&tree.place).arg(place.join("tree")))?;
    fs::copy(root.join(RECIPE), place.join("Dockerfile")).map_err(|e| format!("{RECIPE}: {e}"))?;
    Ok(place)
}
