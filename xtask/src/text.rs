//! The sources of this repository, as texts to hold rules to.

use std::path::Path;
use std::process::Command;

use crate::commands::output;

/// One file: its path from the root, and what is in it.
pub struct Text {
    /// With `/` between the parts.
    pub path: String,
    /// The whole text.
    pub content: String,
}

impl Text {
    /// Whether the path ends with one of these.
    pub fn ends_with(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.path.ends_with(ending))
    }

    /// Lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.content.lines().enumerate().map(|(i, line)| (i + 1, line))
    }
}

/// Every text file that git tracks or would track.
pub fn all(root: &Path) -> Result<Vec<Text>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let mut texts = Vec::new();
    for path in output(&mut git)?.lines() {
        // A file may be removed and not yet committed; a picture holds no text.
        if let Ok(bytes) = std::fs::read(root.join(path)) {
            let content = String::from_utf8(bytes).unwrap_or_default();
            texts.push(Text { path: path.to_string(), content });
        }
    }
    Ok(texts)
}
