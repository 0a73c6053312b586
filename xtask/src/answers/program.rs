//! A program of `docs/first-answers.md`.

use std::path::{Path, PathBuf};

/// A program, how it runs, and the answer that a reader should get.
pub struct Program {
    pub name: &'static str,
    /// Names in `PATH` that have to exist.
    pub needs: &'static [&'static str],
    /// Packages of Debian, or of PyPI after `pip:`, that contain them.
    pub packages: &'static str,
    /// A script that writes the files of the program; runs unrecorded.
    pub prepare: &'static str,
    /// The words after `heaptide run --`.
    pub command: &'static str,
    /// Load for a service; None for a program that ends by itself.
    pub load: Option<Load>,
    /// The answer that an engineer who knows the program expects, in one sentence.
    pub right: &'static str,
}

impl Program {
    /// Returns the directory of its files below `place`.
    pub fn directory(&self, place: &Path) -> PathBuf {
        let plain = |c: char| if c.is_alphanumeric() || c == '+' { c } else { '-' };
        place.join(self.name.chars().map(plain).collect::<String>())
    }
}

/// Requests to a service. Afterwards, the service gets SIGTERM.
pub struct Load {
    /// The load starts when this port of the local host accepts connections.
    pub port: u16,
    pub script: &'static str,
    /// The user that runs the command and the program, for services that root must not start.
    pub user: Option<&'static str>,
}
