//! The time of all files in packages.

use std::path::Path;
use std::process::Command;

use crate::commands::output;

/// The variable with the time, in seconds since 1970, that tools for packages read.
pub const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Returns that time: the value of the variable, or else the time of the last commit.
///
/// # Errors
///
/// The value is not a number, or there is no variable and no git repository.
pub fn epoch(root: &Path) -> Result<u64, String> {
    let text = match std::env::var(EPOCH) {
        Ok(text) => text,
        Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))
            .map_err(|e| format!("{e}; set {EPOCH} where there is no git repository"))?,
    };
    let text = text.trim();
    text.parse().map_err(|_| format!("{EPOCH}: `{text}`, expected seconds since 1970"))
}
