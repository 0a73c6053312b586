//! The text files of this repository, for checks.

use std::path::Path;
use std::process::Command;

use crate::commands::output;

/// A file: its path relative to the root, and its contents.
pub struct Text {
    /// With `/` as separator.
    pub path: String,
    /// The whole text.
    pub content: String,
}

impl Text {
    /// Returns whether the path ends with one of these suffixes.
    pub fn ends_with(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.path.ends_with(ending))
    }

    /// Returns lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.content.lines().enumerate().map(|(i, line)| (i + 1, line))
    }
}

/// Reads every text file that git tracks or would track.
pub fn all(root: &Path) -> Result<Vec<Text>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let mut texts = Vec::new();
    for path in output(&mut git)?.lines() {
        // A removed file may still be tracked; images are not text.
        if let Ok(bytes) = std::fs::read(root.join(path)) {
            let content = String::from_utf8(bytes).unwrap_or_default();
            texts.push(Text { path: path.to_string(), content });
        }
    }
    Ok(texts)
}
