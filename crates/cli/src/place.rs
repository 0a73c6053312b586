//! The path of a recording to write: what may be replaced there, and how.
//!
//! A recording is created under another name next to its path and moved there in one step. If the
//! command is killed in between, the old or the new recording is there, complete. A lock on the
//! directory marks it as being written, and is released when the command ends.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use heaptide_analysis::files::draft::{exchange, rename_new};
use heaptide_analysis::files::file_names::METADATA_FILE;
use heaptide_analysis::is_file_of_recording;
use heaptide_analysis::recording::metadata::Metadata;
use heaptide_analysis::recording::{members, running};
use heaptide_command::error::Error;
use heaptide_control::{FileUser, Maker, path_of};
use heaptide_format::PROFILE_SUFFIX;
use nix::fcntl::OFlag;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// How much of a recording's name is used in the names next to it, in bytes. With prefix and suffix
/// they must not exceed the limit of file systems (255).
const NAME_BYTES_MAX: usize = 240;

/// The path of a recording, checked.
pub struct Place {
    path: PathBuf,
    /// The recording there, which will be replaced.
    old: Option<Locked>,
}

/// A directory that this command has locked.
struct Locked {
    directory: File,
}

/// Hidden names next to a recording: `draft` for the new recording, and after an exchange the
/// replaced one; `old` for the replaced one if the file system cannot exchange two names.
struct Beside {
    draft: PathBuf,
    old: PathBuf,
}

impl Place {
    /// Checks what is at a path: nothing, or with `force` a recording that no command writes to.
    ///
    /// Errors: something else is there; the error names the file that shows it.
    pub fn new(path: &Path, force: bool) -> Result<Place, Error> {
        let path = resolve(path)?;
        clear_up(&path); // if this fails, creating the draft reports it
        let shown = path.display();
        let old = match path.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::file(&path, "inspect it", e)),
            Ok(_) if !force => {
                return Err(Error::new(format!(
                    "{shown}: exists; choose another path with -o, or replace it with --force"
                )));
            }
            Ok(_) => {
                let refuse =
                    |why| Error::new(format!("{shown}: {why}, so --force does not replace it"));
                check(&path).map_err(refuse)?;
                Some(Locked::new(&path)?)
            }
        };
        if let Some(running) =
            old.iter().flat_map(|_| running::of_recording(&path)).flatten().next()
        {
            return Err(Error::new(format!(
                "{shown}: process {} is recording into it; stop it or choose another path with -o",
                running.pid
            )));
        }
        Ok(Place { path, old })
    }

    /// Returns the path of the recording, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory that will become the recording.
    ///
    /// Errors: it cannot be written, or another command is creating one.
    pub fn draft(self, metadata: &Metadata) -> Result<Draft, Error> {
        self.draft_of(&FileUser::own(), metadata)
    }

    /// Like [`Place::draft`]; the directory belongs to this user.
    ///
    /// Errors: also if the user could replace a directory above it.
    pub fn draft_of(self, user: &FileUser, metadata: &Metadata) -> Result<Draft, Error> {
        let draft = Beside::new(&self.path).draft;
        let maker = user.make_directory(&draft).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => in_use(&self.path),
            _ => Error::new(format!("cannot create {}: {e}", self.path.display())),
        })?;
        match Locked::new_of(user, maker, &draft, metadata) {
            Ok(Locked { directory }) => Ok(Draft {
                place: self,
                draft,
                directory: Some(directory),
                is_in_place: false,
                is_shared: metadata.launch.is_some(),
            }),
            Err(error) => {
                let _ = remove(&draft); // the first error is the one to report
                Err(error)
            }
        }
    }
}

fn in_use(path: &Path) -> Error {
    let shown = path.display();
    Error::new(format!(
        "{shown}: another heaptide process is writing to it; wait for it or choose another path with -o"
    ))
}

/// A directory that becomes the recording. If it is dropped before `keep`, the previous state is
/// restored.
pub struct Draft {
    place: Place,
    draft: PathBuf,
    /// None after `keep`.
    directory: Option<File>,
    /// Whether it has been moved to the path; the previous recording then has the name of the
    /// draft.
    is_in_place: bool,
    /// Whether other commands of the launch may write to it, too, once it is in place.
    is_shared: bool,
}

impl Draft {
    /// Returns where it is now.
    pub fn path(&self) -> &Path {
        if self.is_in_place { &self.place.path } else { &self.draft }
    }

    /// Moves it to its path. The previous recording is kept under the name of the draft.
    ///
    /// Errors: something else is at the path now, or the file system does not allow it.
    pub fn publish(&mut self) -> Result<(), Error> {
        let path = &self.place.path;
        let refused = |e: io::Error| Error::file(path, "move the recording there", e);
        match &self.place.old {
            Some(old) if !old.is_at(path) => return Err(in_use(path)),
            Some(_) => put(&self.draft, path).map_err(refused)?,
            None => rename_new(&self.draft, path).map_err(refused)?,
        }
        self.is_in_place = true;
        match self.directory.as_ref().filter(|_| self.is_shared).map(File::try_lock_shared) {
            Some(Err(TryLockError::WouldBlock)) => Err(in_use(&self.place.path)),
            _ => Ok(()),
        }
    }

    /// Returns whether other commands have joined the recording, so that this one must not remove
    /// it.
    fn has_others(&self) -> bool {
        let shared = self.directory.as_ref().filter(|_| self.is_shared && self.is_in_place);
        shared.is_some_and(|directory| !is_lockable(directory))
    }

    /// Keeps the recording, and removes the previous one.
    pub fn keep(mut self) -> Recorded {
        if self.place.old.is_some() {
            let _ = remove(&self.draft); // else the next command for this path removes the rest
        }
        Recorded { path: self.place.path.clone(), directory: self.directory.take() }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.directory.is_none() {
            return; // it was kept
        }
        if self.has_others() {
            let _ = members::remove(&self.place.path, 0); // else it is as of a killed command
        } else if self.is_in_place {
            let (draft, path) = (&self.draft, &self.place.path);
            let _ = match self.place.old {
                Some(_) => put(draft, path),
                None => rename_new(path, draft),
            };
        }
        let _ = remove(&self.draft); // else the next command for this path removes it
    }
}

/// A recording that this command writes to, possibly with others of its launch.
pub struct Recorded {
    path: PathBuf,
    directory: Option<File>,
}

/// Where a recording is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// At its path.
    InPlace,
    /// It was moved here.
    Moved(PathBuf),
    /// It was removed.
    Removed,
}

impl Recorded {
    /// Joins the recording of the launch at an absolute path; none if a command holds its exclusive
    /// lock, or it is being replaced.
    ///
    /// Errors: it cannot be opened.
    pub fn join(path: &Path) -> Result<Option<Recorded>, Error> {
        let directory = open_directory(path)?;
        match directory.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Ok(None),
            _ if !is_at(&directory, path) => Ok(None),
            _ => Ok(Some(Recorded { path: path.to_owned(), directory: Some(directory) })),
        }
    }

    /// Releases the shared lock and returns whether no other command writes to the recording. If
    /// so, this one holds the lock exclusively until `share`.
    pub fn is_last(&self) -> bool {
        self.directory.as_ref().is_none_or(is_lockable)
    }

    /// Lets other commands of the launch write to it again.
    pub fn share(&self) {
        // If another command has locked it exclusively in the meantime, it may replace it: nothing
        // is left to protect.
        let _ = self.directory.as_ref().map(File::try_lock_shared);
    }

    /// Removes it if it has no profiles.
    pub fn remove_if_empty(&self) {
        if !names(&self.path).any(|name| is_profile(&name)) {
            self.remove();
        }
    }

    /// Removes it with its contents.
    pub fn remove(&self) {
        if self.whereabouts() == Whereabouts::InPlace {
            let _ = remove(&self.path); // may be gone already
        }
    }

    /// Returns where it was created.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory, open.
    ///
    /// Errors: no descriptor is left.
    pub fn directory(&self) -> Result<File, Error> {
        let path = &self.path;
        let Some(directory) = &self.directory else { return open_directory(path) };
        directory.try_clone().map_err(|e| Error::file(path, "open it", e))
    }

    /// Returns where it is now.
    pub fn whereabouts(&self) -> Whereabouts {
        let Some(directory) = &self.directory else { return Whereabouts::InPlace };
        if is_at(directory, &self.path) {
            return Whereabouts::InPlace;
        }
        let link = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        match link.ok().filter(|path| is_at(directory, path)) {
            Some(path) => Whereabouts::Moved(path),
            None => Whereabouts::Removed,
        }
    }
}

impl Locked {
    /// Locks a new directory, gives it to the user for whom root has created it, and marks it as a
    /// recording.
    fn new_of(
        user: &FileUser,
        maker: Maker,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<Locked, Error> {
        let refused = |e| Error::file(path, "give it to the process's user", e);
        let locked = Locked::new(path)?;
        if maker == Maker::Root {
            user.give(&locked.directory).map_err(refused)?;
        }
        let _entered = user.enter().map_err(refused)?;
        metadata.write(&path_of(&locked.directory, path))?;
        Ok(locked)
    }

    /// Locks a directory. On a file system without locks, it is opened without one.
    ///
    /// Errors: another command holds the lock, or has replaced the directory.
    fn new(path: &Path) -> Result<Locked, Error> {
        let directory = open_directory(path)?;
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) => Err(in_use(path)),
            _ if !is_at(&directory, path) => Err(in_use(path)),
            _ => Ok(Locked { directory }),
        }
    }

    fn is_at(&self, path: &Path) -> bool {
        is_at(&self.directory, path)
    }
}

/// Opens a directory, which must not be a symbolic link.
///
/// Errors: it cannot be opened.
pub fn open_directory(path: &Path) -> Result<File, Error> {
    let flags = (OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits();
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(path);
    directory.map_err(|e| Error::file(path, "open it", e))
}

/// Replaces a shared lock of a directory by an exclusive one; false if another command has it
/// locked.
fn is_lockable(directory: &File) -> bool {
    let _ = directory.unlock(); // fails on file systems without locks
    !matches!(directory.try_lock(), Err(TryLockError::WouldBlock))
}

/// Returns whether a path leads to this open directory.
fn is_at(directory: &File, path: &Path) -> bool {
    let identity = |m: fs::Metadata| (m.dev(), m.ino());
    let there = path.symlink_metadata().map(identity).ok();
    there.is_some() && directory.metadata().map(identity).ok() == there
}

/// Returns an absolute path that ends with a name: `.` and trailing slashes are removed, and a
/// symbolic link in the place of the recording is resolved.
pub fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let refuse = |e| Error::file(path, "create a recording there", e);
    let whole: PathBuf = std::path::absolute(path).map_err(refuse)?.components().collect();
    let is_link = whole.symlink_metadata().is_ok_and(|m| m.is_symlink());
    if is_link || whole.file_name().is_none() {
        return fs::canonicalize(&whole).map_err(refuse);
    }
    Ok(whole)
}

/// Returns whether a command is creating a recording for this absolute path.
pub fn is_being_made(path: &Path) -> bool {
    Beside::new(path).draft.symlink_metadata().is_ok()
}

impl Beside {
    fn new(path: &Path) -> Beside {
        let name = path.file_name().unwrap_or(path.as_os_str()).as_bytes();
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let beside = |suffix: &[u8]| {
            let name = [b".", name, suffix].concat();
            path.with_file_name(OsStr::from_bytes(&name))
        };
        Beside { draft: beside(b".new"), old: beside(b".old") }
    }
}

/// Cleans up after a command that was killed while it wrote a recording for this path.
///
/// If nothing was recorded in the new recording, the replaced one is restored. Returns whether
/// nothing is left.
pub fn clear_up(path: &Path) -> bool {
    let Beside { draft, old } = Beside::new(path);
    if let Ok(_lock) = Locked::new(&old) {
        // `exchange_by_renames` was interrupted after one or two of its three renames.
        let to = if path.symlink_metadata().is_ok() { &draft } else { path };
        let _ = rename_new(&old, to);
    }
    if draft.symlink_metadata().is_err() {
        return true;
    }
    let Ok(_lock) = Locked::new(&draft) else { return false };
    let has_profile = |path: &Path| names(path).any(|name| is_profile(&name));
    if check(path).is_ok() && !has_profile(path) && has_profile(&draft) {
        // Other commands of its launch may still write to the new one.
        if let Ok(_lock) = Locked::new(path) {
            let _ = put(&draft, path);
        }
    }
    remove(&draft).is_ok()
}

fn names(directory: &Path) -> impl Iterator<Item = OsString> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

fn is_profile(name: &OsStr) -> bool {
    name.as_bytes().ends_with(PROFILE_SUFFIX.as_bytes())
}

/// Checks that a directory is a recording and contains nothing else.
///
/// Errors: the reason why it is not.
fn check(path: &Path) -> Result<(), String> {
    if !path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
        return Err("not a directory".to_owned());
    }
    let entries = fs::read_dir(path).map_err(|e| format!("cannot be read ({e})"))?;
    let mut has_marker = false;
    for entry in entries {
        let entry = entry.map_err(|e| format!("cannot be read ({e})"))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_file_of_recording(&name) {
            let what = if is_file { "not a recording file" } else { "not a regular file" };
            return Err(format!("not a recording: `{name}` in it is {what}"));
        }
        has_marker |= name == METADATA_FILE;
    }
    match Metadata::read(path) {
        _ if !has_marker => Err(format!("not a recording: it has no {}", METADATA_FILE)),
        Ok(_) => Ok(()),
        Err(e) => Err(format!("not a recording ({e})")),
    }
}

/// Removes a recording, or a directory with only an unfinished marker, and nothing else. The marker
/// file is removed last. Another user may own the recording, and replace the path by a link at any
/// moment, so files are removed from the open directory.
fn remove(path: &Path) -> io::Result<()> {
    let directory = open_directory(path).map_err(io::Error::other)?;
    let mut names: Vec<OsString> = names(path).collect();
    if !names.iter().all(|name| is_unfinished_marker(name)) {
        check(path).map_err(io::Error::other)?;
    }
    names.sort_by_key(|name| name == METADATA_FILE);
    for name in names {
        if !is_file_of_recording(&name.to_string_lossy()) {
            return Err(io::Error::other("not a recording"));
        }
        unlinkat(&directory, &*name, UnlinkatFlags::NoRemoveDir)?;
    }
    fs::remove_dir(path)
}

/// Returns whether a name is that of the marker file while it is being written, which is the first
/// file of a recording.
fn is_unfinished_marker(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name != METADATA_FILE && name.starts_with(METADATA_FILE) && is_file_of_recording(&name)
}

/// Exchanges the draft and the directory at a path, in one step if the file system can. If not,
/// nothing is at the path for an instant, and [`clear_up`] repairs an interruption.
fn put(draft: &Path, path: &Path) -> io::Result<()> {
    if exchange(draft, path)? { Ok(()) } else { exchange_by_renames(draft, path) }
}

fn exchange_by_renames(draft: &Path, path: &Path) -> io::Result<()> {
    let old = Beside::new(path).old;
    rename_new(path, &old)?;
    if let Err(error) = rename_new(draft, path) {
        let _ = rename_new(&old, path); // the first error is the one to report
        return Err(error);
    }
    rename_new(&old, draft)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use heaptide_fixtures::Scratch;

    use heaptide_analysis::recording::metadata;

    use super::*;

    fn metadata(pid: u32) -> Metadata {
        Metadata { version: metadata::VERSION, root_pid: pid, ..Metadata::default() }
    }

    /// Creates a recording with a profile of this pid.
    fn recording(path: &Path, pid: u32) {
        fs::create_dir(path).expect("a directory");
        metadata(pid).write(path).expect("the marker");
        fs::write(path.join(format!("{pid}-0.profile")), "x").expect("a profile");
    }

    fn pid(path: &Path) -> Option<u32> {
        Metadata::read(path).expect("a recording").map(|metadata| metadata.root_pid)
    }

    fn refused(path: &Path, force: bool) -> String {
        Place::new(path, force).err().expect("it is refused").to_string()
    }

    /// Returns the names in a directory.
    fn entries(path: &Path) -> Vec<OsString> {
        let mut entries: Vec<_> = names(path).collect();
        entries.sort();
        entries
    }

    #[test]
    fn what_is_no_recording_is_refused_by_the_name_of_a_file() {
        let place = Scratch::new("refused");
        let of = |name: &str| {
            let path = place.join(name);
            recording(&path, 7);
            path
        };
        let photos = of("photos");
        fs::create_dir(photos.join("1-0.profile")).expect("a directory");
        let error = refused(&photos, true);
        assert!(error.contains("`1-0.profile` in it is not a regular file"), "{error}");
        let (linked, notes) = (of("linked"), of("notes"));
        symlink("/etc/passwd", linked.join("7-0.trace")).expect("a link");
        assert!(refused(&linked, true).contains("`7-0.trace` in it is not a regular file"));
        fs::write(notes.join("notes.trace"), "x").expect("a file");
        assert!(refused(&notes, true).contains("`notes.trace` in it is not a recording file"));
        let (unmarked, odd) = (of("unmarked"), of("odd"));
        fs::remove_file(unmarked.join(METADATA_FILE)).expect("the marker");
        assert!(refused(&unmarked, true).contains("it has no recording.json"));
        fs::write(odd.join(METADATA_FILE), "{}").expect("another file");
        assert!(refused(&odd, true).contains("not a recording"));
        fs::write(place.join("file"), "x").expect("a file");
        assert!(refused(&place.join("file"), true).contains("not a directory"));
        for path in [&photos, &linked, &notes, &unmarked, &odd, &place.join("file")] {
            assert!(refused(path, false).contains("exists"));
            assert!(path.exists());
        }
    }

    #[test]
    fn every_spelling_of_a_path_is_one_place() {
        let place = Scratch::new("spelling");
        recording(&place.join("a"), 1);
        symlink("a", place.join("link")).expect("a link");
        symlink("nowhere", place.join("dangling")).expect("a link");
        for spelling in ["a", "a/", "a//", "./a", "a/.", "link", "link/"] {
            let found = Place::new(&place.join(spelling), true).expect(spelling);
            assert_eq!(found.path().file_name(), Some(OsStr::new("a")), "{spelling}");
        }
        assert_eq!(Place::new(&place.join("new/"), false).expect("new").path(), place.join("new"));
        assert!(Place::new(&place.join("dangling"), true).is_err());
        assert!(Place::new(Path::new("/"), true).is_err());
        assert!(Place::new(Path::new(""), true).is_err());
    }

    #[test]
    fn the_old_recording_stays_until_the_new_one_is_kept() {
        let place = Scratch::new("kept");
        let path = place.join("a");
        recording(&path, 1);
        let mut draft =
            Place::new(&path, true).expect("a place").draft(&metadata(2)).expect("room");
        assert_eq!((pid(&path), pid(draft.path())), (Some(1), Some(2)));
        draft.publish().expect("to publish");
        assert_eq!((pid(&path), draft.path()), (Some(2), &*path));
        drop(draft);
        assert_eq!((pid(&path), entries(&place)), (Some(1), vec!["a".into()]));
        let mut draft =
            Place::new(&path, true).expect("a place").draft(&metadata(3)).expect("room");
        draft.publish().expect("to publish");
        let kept = draft.keep();
        assert_eq!((pid(&path), kept.whereabouts()), (Some(3), Whereabouts::InPlace));
        assert_eq!(entries(&place), ["a"]);
        assert_eq!(entries(&path), [METADATA_FILE]);
    }

    #[test]
    fn a_new_recording_that_is_dropped_leaves_nothing() {
        let place = Scratch::new("dropped");
        let path = place.join("a");
        for publish in [false, true] {
            let mut draft =
                Place::new(&path, false).expect("a place").draft(&metadata(2)).expect("room");
            if publish {
                draft.publish().expect("to publish");
                assert_eq!(pid(&path), Some(2));
            }
            drop(draft);
            assert!(entries(&place).is_empty());
        }
    }

    #[test]
    fn a_place_has_one_writer() {
        let place = Scratch::new("writer");
        let path = place.join("a");
        let mut draft =
            Place::new(&path, false).expect("a place").draft(&metadata(1)).expect("room");
        let second = Place::new(&path, false).expect("a place").draft(&metadata(2));
        assert!(
            second
                .err()
                .expect("in use")
                .to_string()
                .contains("another heaptide process is writing to it")
        );
        draft.publish().expect("to publish");
        assert!(refused(&path, true).contains("another heaptide process is writing to it"));
        let kept = draft.keep();
        assert!(refused(&path, true).contains("another heaptide process is writing to it"));
        drop(kept);
        assert!(Place::new(&path, true).is_ok());
    }

    #[test]
    fn what_came_there_meanwhile_stays() {
        let place = Scratch::new("meanwhile");
        let path = place.join("a");
        let mut draft =
            Place::new(&path, false).expect("a place").draft(&metadata(1)).expect("room");
        fs::create_dir(&path).expect("another directory");
        assert!(draft.publish().is_err());
        drop(draft);
        assert_eq!((entries(&place), entries(&path)), (vec!["a".into()], vec![]));
    }

    #[test]
    fn what_a_killed_command_left_is_cleared_up() {
        let place = Scratch::new("left");
        let (path, draft, old) = (place.join("a"), place.join(".a.new"), place.join(".a.old"));
        let cases = [
            ("before the exchange", vec![(&path, 1), (&draft, 2)], 1),
            ("after it", vec![(&path, 2), (&draft, 1)], 2),
            ("between two renames", vec![(&old, 1), (&draft, 2)], 1),
            ("after two renames", vec![(&path, 2), (&old, 1)], 2),
            ("while the old one was removed", vec![(&path, 2)], 2),
        ];
        for (what, there, expected) in cases {
            there.iter().for_each(|(path, pid)| recording(path, *pid));
            if there.len() == 1 {
                fs::create_dir(&draft).expect("an empty directory");
            }
            clear_up(&path);
            assert_eq!((pid(&path), entries(&place)), (Some(expected), vec!["a".into()]), "{what}");
            fs::remove_dir_all(&path).expect("the recording");
        }
        // The program of the new recording was never started.
        recording(&path, 2);
        fs::remove_file(path.join("2-0.profile")).expect("the profile");
        recording(&draft, 1);
        clear_up(&path);
        assert_eq!((pid(&path), entries(&place)), (Some(1), vec!["a".into()]));
        // The command was killed while it wrote its first file.
        fs::create_dir(&draft).expect("a directory");
        fs::write(draft.join("recording.json.7.new"), "{").expect("a part of the marker");
        assert!(clear_up(&path));
        assert_eq!((pid(&path), entries(&place)), (Some(1), vec!["a".into()]));
        // A directory that is not a recording is not removed.
        fs::create_dir(&draft).expect("a directory");
        fs::write(draft.join("letter"), "x").expect("a file");
        clear_up(&path);
        assert!(draft.join("letter").exists());
    }

    #[test]
    fn two_renames_exchange_as_well() {
        let place = Scratch::new("renames");
        let (path, draft) = (place.join("a"), place.join(".a.new"));
        recording(&path, 1);
        recording(&draft, 2);
        exchange_by_renames(&draft, &path).expect("to exchange");
        assert_eq!((pid(&path), pid(&draft)), (Some(2), Some(1)));
        assert_eq!(entries(&place), [".a.new", "a"]);
    }

    #[test]
    fn a_recording_that_was_moved_is_found() {
        let place = Scratch::new("moved");
        let (path, moved) = (place.join("a"), place.join("b"));
        let mut draft =
            Place::new(&path, false).expect("a place").draft(&metadata(1)).expect("room");
        draft.publish().expect("to publish");
        let kept = draft.keep();
        fs::rename(&path, &moved).expect("to move it");
        assert_eq!(kept.whereabouts(), Whereabouts::Moved(moved.clone()));
        fs::create_dir(&path).expect("another directory");
        assert_eq!(kept.whereabouts(), Whereabouts::Moved(moved.clone()));
        fs::remove_dir_all(&moved).expect("to remove it");
        assert_eq!(kept.whereabouts(), Whereabouts::Removed);
    }
}
