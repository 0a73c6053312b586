//! The installed tree, from which every package is built, and its layout in `/usr`.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use super::licences;
use super::programs::Programs;
use crate::commands::{output, target};

/// The version of the packages.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The variable with the time of all files, in seconds since 1970.
pub const EPOCH: &str = "SOURCE_DATE_EPOCH";
/// The list of files that `heaptide sdk` installed; here the files belong to the package.
const SDK_LIST: &str = "share/heaptide/files";
/// Completion scripts and their destinations.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/heaptide"),
    ("zsh", "share/zsh/site-functions/_heaptide"),
    ("fish", "share/fish/vendor_completions.d/heaptide.fish"),
];
/// The directory of documents.
pub const DOCUMENTS: &str = "share/doc/heaptide";

/// The installed tree, with the time of its files.
pub struct Tree {
    /// Its directory.
    pub place: PathBuf,
    /// The time of every file, in seconds since 1970.
    pub epoch: u64,
}

impl Tree {
    /// Creates it in `package/tree` of the target directory.
    ///
    /// # Errors
    ///
    /// The command fails, or a file cannot be written.
    pub fn new(root: &Path, programs: &Programs) -> Result<Tree, String> {
        let tree = Tree { place: fresh(&places(root).join("tree"))?, epoch: epoch(root)? };
        let heaptide = |words: &[&str]| output(Command::new(&programs.heaptide).args(words));
        let place = |path: &str| tree.place.join(path);
        let shown = |path: &str| place(path).display().to_string();
        heaptide(&["sdk", &shown("")])?;
        fs::remove_file(place(SDK_LIST)).map_err(|e| format!("{SDK_LIST}: {e}"))?;
        heaptide(&["man", &shown("share/man/man1")])?;
        for (shell, path) in COMPLETIONS {
            write(&place(path), heaptide(&["completions", shell])?.as_bytes())?;
        }
        copy(&programs.heaptide, &place("bin/heaptide"))?;
        copy(&programs.sql, &place("bin/heaptide-sql"))?;
        for document in ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
            copy(&root.join(document), &place(DOCUMENTS).join(document))?;
        }
        write(&place(DOCUMENTS).join("third-party.txt"), licences::text(root)?.as_bytes())?;
        settle(&tree.place, tree.epoch)?;
        Ok(tree)
    }

    /// Returns a copy in `package/NAME/usr` of the target directory, for a package of a
    /// distribution, with `renamed` directories and compressed manual pages. Returns
    /// `package/NAME`.
    ///
    /// # Errors
    ///
    /// A file cannot be read or written.
    pub fn below_usr(
        &self,
        root: &Path,
        name: &str,
        renamed: &[(&str, &str)],
    ) -> Result<PathBuf, String> {
        let place = fresh(&places(root).join(name))?;
        for path in files(&self.place)? {
            let to = place.join("usr").join(below_usr(&path, renamed));
            copy(&self.place.join(&path), &to)?;
            if path.starts_with("share/man") {
                output(Command::new("gzip").args(["-9n"]).arg(&to))?;
            }
        }
        let compat = place.join("usr/share/pkgconfig/heaptide-compat.pc");
        let text = fs::read_to_string(&compat).map_err(|e| format!("{}: {e}", compat.display()))?;
        write(&compat, text.replace("}/compat", "}/heaptide-compat").as_bytes())?;
        settle(&place, self.epoch)?;
        Ok(place)
    }
}

/// Returns the directory of packages and their inputs.
pub fn places(root: &Path) -> PathBuf {
    target(root).join("package")
}

/// Returns the path of a finished package.
pub fn finished(root: &Path, name: &str) -> Result<PathBuf, String> {
    let place = places(root).join("finished");
    fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    Ok(place.join(name))
}

/// Directories whose names are too general for `/usr`, or that some distributions do not search.
const BELOW_USR: [(&str, &str); 3] = [
    ("include/compat", "include/heaptide-compat"),
    ("lib/compat", "lib/heaptide-compat"),
    ("lib/pkgconfig", "share/pkgconfig"),
];

/// Returns the path in `/usr` of a file of the tree.
fn below_usr(path: &Path, renamed: &[(&str, &str)]) -> PathBuf {
    let rule = |(from, to): &(&str, &str)| Some(Path::new(to).join(path.strip_prefix(from).ok()?));
    renamed.iter().chain(&BELOW_USR).find_map(rule).unwrap_or_else(|| path.to_path_buf())
}

/// Returns the relative paths of all files in a directory, sorted, without links: those of the SDK
/// to its library are only useful beside the library, where `heaptide sdk` creates them.
pub fn files(place: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut directories = vec![place.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let failed = |e| format!("{}: {e}", directory.display());
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                directories.push(path);
            } else if !path.is_symlink() {
                found.push(path.strip_prefix(place).unwrap_or(&path).to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the time of every file: from the variable, or else that of the last commit.
fn epoch(root: &Path) -> Result<u64, String> {
    let text = match std::env::var(EPOCH) {
        Ok(text) => text,
        Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))
            .map_err(|e| format!("{e}; set {EPOCH} where there is no git repository"))?,
    };
    let text = text.trim();
    text.parse().map_err(|_| format!("{EPOCH}: `{text}`, expected seconds since 1970"))
}

/// Sets the same permissions and time for all files of a tree, independent of umask and clock.
pub fn settle(place: &Path, epoch: u64) -> Result<(), String> {
    let time = UNIX_EPOCH + Duration::from_secs(epoch);
    let mut paths = vec![(place.to_path_buf(), 0o755)];
    for path in files(place)? {
        let is_program = path.parent().is_some_and(|parent| parent.ends_with("bin"));
        paths.push((place.join(&path), if is_program { 0o755 } else { 0o644 }));
        let directories = path.ancestors().skip(1);
        paths.extend(directories.map(|directory| (place.join(directory), 0o755)));
    }
    for (path, mode) in paths {
        let settled = fs::set_permissions(&path, Permissions::from_mode(mode))
            .and_then(|()| File::open(&path)?.set_modified(time));
        settled.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// Creates an empty directory.
pub fn fresh(place: &Path) -> Result<PathBuf, String> {
    let failed = |e| format!("{}: {e}", place.display());
    if place.exists() {
        fs::remove_dir_all(place).map_err(failed)?;
    }
    fs::create_dir_all(place).map_err(failed)?;
    Ok(place.to_path_buf())
}

/// Writes a file, creating its directories.
pub fn write(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let parent = file.parent().map_or(Ok(()), fs::create_dir_all);
    parent.and_then(|()| fs::write(file, bytes)).map_err(|e| format!("{}: {e}", file.display()))
}

/// Copies a file with its permissions, creating the directories of the copy.
pub fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let parent = to.parent().map_or(Ok(()), fs::create_dir_all);
    let copied = parent.and_then(|()| fs::copy(from, to));
    copied.map(|_| ()).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_get_names_that_systems_search() {
        let to = |path: &str| below_usr(Path::new(path), &[("share/zsh/a", "share/zsh/b")]);
        assert_eq!(to("include/compat/a/b.h"), Path::new("include/heaptide-compat/a/b.h"));
        assert_eq!(to("lib/pkgconfig/heaptide.pc"), Path::new("share/pkgconfig/heaptide.pc"));
        assert_eq!(to("share/zsh/a/_x"), Path::new("share/zsh/b/_x"));
        assert_eq!(to("bin/heaptide"), Path::new("bin/heaptide"));
    }
}
