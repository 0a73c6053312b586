//! File access with the permissions of another user, for a command of root.
//!
//! The recording of another user's process belongs to that user, who can replace its files, and
//! the directory itself, by links at any moment. Root must not create, change or remove what such
//! a link leads to, so it works on the recording with the permissions of its owner.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, setfsgid, setfsuid, setgroups};

/// The user whose permissions apply to files of a recording.
#[derive(Clone, Debug)]
pub struct FileUser(Option<Other>);

/// A user other than that of this command.
#[derive(Clone, Debug)]
struct Other {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

/// A user whose permissions this thread has, and the threads and processes that it starts
/// meanwhile. When this is dropped, the thread has its previous permissions.
#[derive(Debug)]
#[must_use = "dropping it ends the permissions"]
pub struct Entered {
    before: Option<(Uid, Gid)>,
    of_thread: PhantomData<*const ()>,
}

/// The user who has created a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    /// The user of the recording, or this command if there is no other one.
    User,
    /// Root, since the user has no permission. The user cannot replace the directory.
    Root,
}

impl FileUser {
    /// Returns the user of this command.
    pub fn own() -> FileUser {
        FileUser(None)
    }

    /// Returns the user of a process, if this command runs as root; otherwise its own user.
    ///
    /// Errors: the permissions of that user cannot be taken.
    ///
    /// ```
    /// let own = heaptide_control::FileUser::of_process(std::process::id() as i32).unwrap();
    /// assert!(own.is_own());
    /// ```
    pub fn of_process(pid: i32) -> io::Result<FileUser> {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
            return Ok(FileUser::own()); // it has ended, which later steps report
        };
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()).collect()
        };
        // Real, effective and saved id, and that for files.
        let (users, groups) = (numbers("Uid:"), numbers("Gid:"));
        let (Some(&user), Some(&group)) = (users.get(3), groups.get(3)) else {
            return Ok(FileUser::own());
        };
        FileUser::new(user, group, &numbers("Groups:"))
    }

    /// Returns the owner of an open directory, if this command runs as root; otherwise its own
    /// user.
    ///
    /// Errors: as for [`FileUser::of_process`].
    pub fn of_owner(directory: &File) -> io::Result<FileUser> {
        let is = directory.metadata()?;
        FileUser::new(is.uid(), is.gid(), &[])
    }

    fn new(user: u32, group: u32, groups: &[u32]) -> io::Result<FileUser> {
        if !Uid::effective().is_root() || user == 0 {
            return Ok(FileUser::own());
        }
        let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
        let other = Other { user: Uid::from_raw(user), group: Gid::from_raw(group), groups };
        // For the rest of this command: root needs no groups, and they are those of all threads.
        setgroups(&other.groups).map_err(|_| refused(&other))?;
        let user = FileUser(Some(other));
        user.enter().map(drop)?;
        Ok(user)
    }

    /// Returns whether it is the user of this command.
    pub fn is_own(&self) -> bool {
        self.0.is_none()
    }

    /// Takes the permissions of the user for files. Other permissions stay, such as that to trace
    /// processes.
    ///
    /// Errors: this command may not do that.
    pub fn enter(&self) -> io::Result<Entered> {
        let of_thread = PhantomData;
        let Some(other) = &self.0 else { return Ok(Entered { before: None, of_thread }) };
        let before = (setfsuid(other.user), setfsgid(other.group));
        let entered = Entered { before: Some(before), of_thread };
        if ids_of_files() == (other.user, other.group) { Ok(entered) } else { Err(refused(other)) }
    }

    /// Creates a directory as the user, who can use it whatever the umask is. If the user may not,
    /// creates it as root, unless the user could replace a directory above it.
    ///
    /// Errors: it exists, or cannot be created.
    pub fn make_directory(&self, path: &Path) -> io::Result<Maker> {
        let made = self.enter().and_then(|_entered| create_directory(path));
        match (made, &self.0) {
            (Err(error), Some(other)) if error.kind() == ErrorKind::PermissionDenied => {
                other.check_cannot_replace(path.parent().unwrap_or(path))?;
                create_directory(path).map(|()| Maker::Root)
            }
            (made, _) => made.map(|()| Maker::User),
        }
    }

    /// Makes the user the owner of a directory that root has created.
    ///
    /// Errors: this command may not do that.
    pub fn give(&self, directory: &File) -> io::Result<()> {
        let Some(other) = &self.0 else { return Ok(()) };
        fchown(directory, Some(other.user.as_raw()), Some(other.group.as_raw()))
    }
}

impl Other {
    /// Checks that this user can replace no directory on an absolute path.
    fn check_cannot_replace(&self, path: &Path) -> io::Result<()> {
        const STICKY: u32 = 0o1000;
        let real = fs::canonicalize(path)?;
        for directory in path.ancestors().chain(real.ancestors()) {
            let is = directory.symlink_metadata()?;
            let is_of = |group: &Gid| group.as_raw() == is.gid();
            let in_group = is_of(&self.group) || self.groups.iter().any(is_of);
            let may_write = is.mode() & 0o002 != 0 || in_group && is.mode() & 0o020 != 0;
            let is_link = is.is_symlink(); // has all permissions, and belongs to its directory
            let may_replace = !is_link && may_write && is.mode() & STICKY == 0;
            if is.uid() == self.user.as_raw() || may_replace {
                return Err(io::Error::other(format!(
                    "the process's user, {}, could replace {}; choose a directory that this user \
                     can write to, or one below directories of root",
                    self.user,
                    directory.display()
                )));
            }
        }
        Ok(())
    }
}

/// Returns a path that leads to an open directory with the permissions that this thread has now:
/// its own, or one through the descriptor.
pub fn path_of(directory: &File, path: &Path) -> PathBuf {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let there = fs::metadata(path).map(identity).ok();
    if there.is_some() && directory.metadata().map(identity).ok() == there {
        return path.to_owned();
    }
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Does `work` with the path of a file, with the permissions of the owner of its directory.
///
/// Errors: the directory cannot be opened, or the permissions cannot be taken.
pub(crate) fn as_owner<T>(file: &Path, work: impl FnOnce(&Path) -> T) -> io::Result<T> {
    let above = file.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    let directory = File::open(above)?;
    let user = FileUser::of_owner(&directory)?;
    if user.is_own() {
        return Ok(work(file));
    }
    let _entered = user.enter()?;
    Ok(work(&path_of(&directory, above).join(file.file_name().unwrap_or_default())))
}

fn create_directory(path: &Path) -> io::Result<()> {
    const OWNER: u32 = 0o700;
    fs::create_dir(path)?;
    let mut permissions = path.symlink_metadata()?.permissions();
    if permissions.mode() & OWNER != OWNER {
        permissions.set_mode(permissions.mode() | OWNER);
        fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

/// Returns the ids with which this thread accesses files.
fn ids_of_files() -> (Uid, Gid) {
    /// Not an id, which changes nothing.
    const NONE: u32 = u32::MAX;
    (setfsuid(Uid::from_raw(NONE)), setfsgid(Gid::from_raw(NONE)))
}

fn refused(other: &Other) -> io::Error {
    io::Error::other(format!(
        "cannot access files as user {}; root needs the capabilities CAP_SETUID and CAP_SETGID",
        other.user
    ))
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some((user, group)) = self.before {
            setfsuid(user);
            setfsgid(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use heaptide_fixtures::Scratch;

    use super::*;

    #[test]
    fn a_place_is_out_of_reach_if_no_directory_above_can_be_replaced() {
        let place = Scratch::new("out-of-reach");
        let (above, below) = (place.join("above"), place.join("above/below"));
        fs::create_dir_all(&below).expect("directories");
        let own = above.metadata().expect("it is there");
        let other = |user: u32, group: u32| Other {
            user: Uid::from_raw(user),
            group: Gid::from_raw(group),
            groups: Vec::new(),
        };
        let stranger = other(own.uid() + 1, own.gid() + 1);
        let in_group = other(own.uid() + 1, own.gid());
        for (mode, of_stranger, of_group) in [
            (0o755, true, true),
            (0o775, true, false),
            (0o757, false, false), // another process of the user may not be in the group
            (0o777, false, false),
            (0o1777, true, true),
        ] {
            fs::set_permissions(&above, fs::Permissions::from_mode(mode)).expect("its mode");
            let out_of_reach = |user: &Other| user.check_cannot_replace(&below).is_ok();
            let found = (out_of_reach(&stranger), out_of_reach(&in_group));
            assert_eq!(found, (of_stranger, of_group), "{mode:o}");
        }
        let error = other(own.uid(), own.gid()).check_cannot_replace(&below).expect_err("its own");
        assert!(error.to_string().contains("could replace"), "{error}");
        // Where a link leads counts, too.
        fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).expect("its mode");
        symlink(&below, place.join("link")).expect("a link");
        assert!(stranger.check_cannot_replace(&place.join("link")).is_err());
    }
}
