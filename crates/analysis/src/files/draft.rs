//! Files that are written beside their place and take it when they are whole.
//!
//! A draft has no name until then, so a process that is killed leaves none behind. Where the file
//! system has no files without names it has one, which `sweep` removes when its writer is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use super::file_names::DRAFT_SUFFIX;

/// Where the kernel has names for open files; without it a file cannot get its name later.
const OPEN_FILES: &str = "/proc/self/fd";
/// Rights of a new file, of which the umask takes some.
pub(crate) const OPEN: u32 = 0o666;
/// Rights of a file that is yet to get its owner.
pub(crate) const PRIVATE: u32 = 0o600;

/// A file that is being written.
pub(crate) struct Draft {
    file: File,
    target: PathBuf,
    /// A name beside the target; it has it already where `is_named`.
    name: PathBuf,
    is_named: bool,
}

impl Draft {
    /// Makes an empty file with these rights, [`OPEN`] or [`PRIVATE`], that is to have this path.
    ///
    /// Errors: there is no right or room for it.
    pub(crate) fn of(target: &Path, rights: u32) -> io::Result<Draft> {
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
        let _ = file.try_lock(); // without locks no draft is ever swept
        Ok(Draft { file, target: target.to_owned(), name, is_named })
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Puts the file in the place of what has its path.
    ///
    /// Errors: that is not allowed; all is as it was.
    pub(crate) fn replace(mut self) -> io::Result<()> {
        if !self.is_named {
            match self.link(&self.name) {
                // Of a process that had our number.
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

    /// Gives the file another path if nothing has that one; returns whether.
    ///
    /// Errors: it is not allowed.
    pub(crate) fn take(mut self, target: &Path) -> io::Result<bool> {
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

/// `TARGET.PID.new`.
fn name_beside(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".{}{DRAFT_SUFFIX}", std::process::id()));
    name.into()
}

fn create(name: &Path, rights: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(rights).open(name)
}

/// Whether a file system, or an old kernel, has no files without names.
fn is_unknown(error: &io::Error) -> bool {
    [ErrorKind::Unsupported, ErrorKind::IsADirectory, ErrorKind::InvalidInput]
        .contains(&error.kind())
}

/// Gives a file or directory a name that is free.
///
/// Errors: the name is taken, or it may not be given.
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

/// Exchanges the names of two files or directories in one step; false if the file system cannot.
///
/// Errors: one of them is not there, or may not be renamed.
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

/// Whether a file system, or the kernel, has no renaming of this kind.
fn is_not_known(error: Errno) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP].contains(&error)
}

/// Removes drafts of commands that are gone from a recording. The recorder's own, which have no
/// number in their name, are left alone.
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
        // A draft is locked as long as it is written.
        if File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path()); // if not, the next one does
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

    /// A draft as of a file system that has no files without names.
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
