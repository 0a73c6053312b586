//! Files that are written under a temporary name, or none, and take their final name when they are
//! complete.
//!
//! A draft has no name until then, so a killed process leaves none behind, unless it is killed
//! between the two calls of `replace`. On file systems without unnamed files it has a name from the
//! start. `sweep` removes such a draft when its writer is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use super::file_names::DRAFT_SUFFIX;

/// Where the kernel provides names for open files; without it, an unnamed file cannot be given a
/// name.
const OPEN_FILES: &str = "/proc/self/fd";
/// Mode of a new file, before the umask.
pub const OPEN: u32 = 0o666;
/// Mode of a file whose owner is not set yet.
pub(crate) const PRIVATE: u32 = 0o600;

/// A file that is being written.
///
/// ```
/// use heaptide_analysis::files::draft::{Draft, OPEN};
/// let target = std::env::temp_dir().join(format!("draft-{}", std::process::id()));
/// drop(Draft::of(&target, OPEN).unwrap());
/// assert!(!target.exists());
/// ```
pub struct Draft {
    file: File,
    target: PathBuf,
    /// A name in the directory of the target; the file has this name if `is_named`.
    name: PathBuf,
    is_named: bool,
}

impl Draft {
    /// Creates an empty file with mode [`OPEN`] or [`PRIVATE`] that will replace `target`.
    ///
    /// Errors: the file cannot be created.
    pub fn of(target: &Path, rights: u32) -> io::Result<Draft> {
        let directory = target.parent().filter(|p| !p.as_os_str().is_empty());
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(rights).custom_flags(OFlags::TMPFILE.bits() as i32);
        let name = name_beside(target);
        let unnamed = if Path::new(OPEN_FILES).is_dir() {
            options.open(directory.unwrap_or(Path::new(".")))
        } else {
            Err(ErrorKind::Unsupported.into())
        };
        let (file, is_named) = match unnamed {
            Ok(file) => (file, false),
            Err(e) if is_unknown(&e) => (create(&name, rights)?, true),
            Err(e) => return Err(e),
        };
        give_owner_access(&file)?;
        let _ = file.try_lock(); // without locks no draft is swept
        Ok(Draft { file, target: target.to_owned(), name, is_named })
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Renames the file to its target, which it replaces.
    ///
    /// Errors: the file cannot be linked or renamed; the target is unchanged.
    pub fn replace(mut self) -> io::Result<()> {
        if !self.is_named {
            match self.link(&self.name) {
                // Left by a process that had the same process id.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    fs::remove_file(&self.name)?;
                    self.link(&self.name)?;
                }
                done => done?,
            }
            self.is_named = true;
        }
        fs::rename(&self.name, &self.target)?;
        self.is_named = false;
        Ok(())
    }

    /// Renames the file to `target` unless that exists; returns whether it was renamed.
    ///
    /// Errors: the file cannot be linked or renamed.
    pub fn take(mut self, target: &Path) -> io::Result<bool> {
        let taken = if self.is_named { rename_new(&self.name, target) } else { self.link(target) };
        match taken {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(false),
            done => done?,
        }
        self.is_named = false;
        Ok(true)
    }

    fn link(&self, to: &Path) -> io::Result<()> {
        let file = format!("{OPEN_FILES}/{}", self.file.as_raw_fd());
        Ok(linkat(CWD, file, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_named {
            let _ = fs::remove_file(&self.name);
        }
    }
}

/// Lets the owner of a new file read and write it, whatever the umask is.
fn give_owner_access(file: &File) -> io::Result<()> {
    const OWNER: u32 = 0o600;
    let mut permissions = file.metadata()?.permissions();
    if permissions.mode() & OWNER != OWNER {
        permissions.set_mode(permissions.mode() | OWNER);
        file.set_permissions(permissions)?;
    }
    Ok(())
}

/// Returns `TARGET.PID.new`.
fn name_beside(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".{}{DRAFT_SUFFIX}", std::process::id()));
    name.into()
}

fn create(name: &Path, rights: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(rights).open(name)
}

/// Returns whether an error means that the file system, or an old kernel, does not support unnamed
/// files.
fn is_unknown(error: &io::Error) -> bool {
    [ErrorKind::Unsupported, ErrorKind::IsADirectory, ErrorKind::InvalidInput]
        .contains(&error.kind())
}

/// Renames a file or directory unless the new name exists.
///
/// Errors: the name exists, or the file cannot be renamed.
///
/// ```
/// use heaptide_analysis::files::draft::rename_new;
/// assert!(rename_new("missing".as_ref(), "Cargo.toml".as_ref()).is_err());
/// ```
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(error) if is_not_known(error) && to.symlink_metadata().is_err() => fs::rename(from, to),
        done => Ok(done?),
    }
}

/// Exchanges the names of two files or directories atomically; returns false if the file system
/// does not support it.
///
/// Errors: a path does not exist, or may not be renamed.
///
/// ```
/// use heaptide_analysis::files::draft::exchange;
/// assert!(exchange("missing".as_ref(), "Cargo.toml".as_ref()).is_err());
/// ```
pub fn exchange(a: &Path, b: &Path) -> io::Result<bool> {
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Err(error) if is_not_known(error) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

/// Returns whether an error means that the file system or the kernel does not support this kind of
/// rename.
fn is_not_known(error: Errno) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP].contains(&error)
}

/// Removes drafts of commands that have ended from a recording. Drafts of the recorder, which have
/// no number in their name, are kept.
pub(crate) fn sweep(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of_command = name.to_str().and_then(|name| {
            let (_, number) = name.strip_suffix(DRAFT_SUFFIX)?.rsplit_once('.')?;
            number.parse::<u32>().ok()
        });
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if of_command.is_none() || !is_file {
            continue;
        }
        // A draft is locked while it is written.
        if File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path()); // on failure the next command removes it
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use heaptide_fixtures::Scratch;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory").flatten();
        let mut names: Vec<_> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns a draft as on a file system without unnamed files.
    fn named(target: &Path) -> Draft {
        let name = name_beside(target);
        let file = create(&name, OPEN).expect("a file");
        file.try_lock().expect("a lock");
        Draft { file, target: target.to_owned(), name, is_named: true }
    }

    #[test]
    fn a_draft_has_no_name_until_it_is_whole() {
        let place = Scratch::new("draft");
        let target = place.join("a");
        for (make, there) in [
            (named as fn(&Path) -> Draft, 1),
            (|target| Draft::of(target, OPEN).expect("a draft"), 0),
        ] {
            let draft = make(&target);
            assert_eq!(names(&place).len(), there);
            draft.file().write_all(b"one").expect("to write");
            drop(draft);
            assert!(names(&place).is_empty());
            for text in ["two", "three"] {
                let draft = make(&target);
                draft.file().write_all(text.as_bytes()).expect("to write");
                draft.replace().expect("to replace");
                assert_eq!(fs::read_to_string(&target).expect("the file"), text);
                assert_eq!(names(&place), ["a"]);
            }
            assert!(!make(&target).take(&target).expect("to look"));
            assert_eq!(fs::read_to_string(&target).expect("the file"), "three");
            assert!(make(&target).take(&place.join("b")).expect("to link"));
            assert_eq!(names(&place), ["a", "b"]);
            names(&place).iter().for_each(|name| fs::remove_file(place.join(name)).expect("it"));
        }
    }

    #[test]
    fn drafts_of_the_dead_are_swept() {
        let place = Scratch::new("sweep");
        let kept = ["1-0.baseline.new", "recording.json", "12.new.txt"];
        kept.iter().for_each(|name| fs::write(place.join(name), "x").expect("a file"));
        fs::write(place.join("symbols.json.7.new"), "x").expect("a file");
        fs::create_dir(place.join("d.7.new")).expect("a directory");
        let alive = named(&place.join("recording.json"));
        sweep(&place);
        let expected = format!("recording.json.{}.new", std::process::id());
        let mut all = [&kept[..], &["d.7.new", &expected]].concat();
        all.sort_unstable();
        assert_eq!(names(&place), all);
        drop(alive);
    }
}
