//! Programs that read exports in tests, and that are not Debian packages: pinned by version and
//! hash in `tests/readers`, and installed into the target directory.

use std::path::Path;
use std::process::Command;

use crate::commands::{run, target};

/// A set of packages, with a directory in `target/readers`.
pub struct Reader {
    /// The directory.
    directory: &'static str,
    /// The name of this requirement.
    pub name: &'static str,
    /// Its use in tests.
    pub purpose: &'static str,
    /// The files of `tests/readers` that pin it.
    pins: &'static [&'static str],
    install: fn(&Path, &Path) -> Result<(), String>,
}

/// All readers.
pub const READERS: [Reader; 2] = [
    Reader {
        directory: "python",
        name: "python-readers",
        purpose: "DuckDB, pandas, polars, pytest and Jupyter, users of tables",
        pins: &["requirements.txt"],
        install: install_python,
    },
    Reader {
        directory: "node",
        name: "node-readers",
        purpose: "the Firefox Profiler, a reader of exports",
        pins: &["package.json", "package-lock.json"],
        install: install_node,
    },
];

/// The file with the pins of a complete installation.
const MARK: &str = "installed-pins";

impl Reader {
    /// Returns whether the pinned versions are installed.
    pub fn is_here(&self, root: &Path) -> bool {
        let mark = target(root).join("readers").join(self.directory).join(MARK);
        std::fs::read_to_string(mark).is_ok_and(|mark| self.text(root) == Ok(mark))
    }

    /// Installs it, replacing other versions.
    ///
    /// # Errors
    ///
    /// A package cannot be fetched, or has another hash.
    pub fn install(&self, root: &Path) -> Result<(), String> {
        let place = target(root).join("readers").join(self.directory);
        let failed = |error| format!("{}: {error}", place.display());
        if place.exists() {
            std::fs::remove_dir_all(&place).map_err(failed)?;
        }
        std::fs::create_dir_all(&place).map_err(failed)?;
        (self.install)(&root.join("tests/readers"), &place)?;
        std::fs::write(place.join(MARK), self.text(root)?).map_err(failed)
    }

    fn text(&self, root: &Path) -> Result<String, String> {
        let read = |name: &&str| {
            let path = root.join("tests/readers").join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        self.pins.iter().map(read).collect()
    }
}

fn install_python(pins: &Path, place: &Path) -> Result<(), String> {
    run(Command::new("python3").args(["-m", "venv"]).arg(place))?;
    let mut pip = Command::new(place.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(pip.args(["--require-hashes", "--requirement"]).arg(pins.join("requirements.txt")))
}

fn install_node(pins: &Path, place: &Path) -> Result<(), String> {
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(pins.join(name), place.join(name))
            .map_err(|error| format!("{}: {error}", place.display()))?;
    }
    let mut npm = Command::new("npm");
    run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(place))
}
