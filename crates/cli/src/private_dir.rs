//! A directory that only this user can write to, for files that programs load.
//!
//! Its path is resolved once. Every directory on it is then opened relative to the one before,
//! without following links, and looked at while it is open: no other user can have put a part of
//! the path there, or can replace one later.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, unlinkat};

/// Characters that end a name in `LD_PRELOAD`, for glibc or musl, or that begin a variable there.
const SEPARATORS: &[u8] = b" :$\t\n\r\x0b\x0c";
/// Rights of the group and of others to write.
const OTHERS_WRITE: u32 = 0o022;
/// Rights of the files: other users may run programs that load them.
const FILE_MODE: u32 = 0o755;

/// An open directory that belongs to this user alone.
#[derive(Debug)]
pub struct PrivateDir {
    directory: OwnedFd,
    path: PathBuf,
    owner: Uid,
}

/// Users that may own a directory above: they could change everything, or nothing but their own.
struct Trusted {
    user: Uid,
    group: Gid,
    /// The owner of `/`: root, or, in a user namespace without it, the user that stands for root.
    system: u32,
}

impl PrivateDir {
    /// Opens the directory at an absolute path, of which the last `made` parts are made if they are
    /// missing. One of this user that others can write to is made private.
    ///
    /// Errors: it is a link, belongs to somebody else, is below a directory in which others can
    /// replace it, or cannot be made; its path cannot stand in `LD_PRELOAD`.
    pub fn open(path: &Path, made: usize) -> io::Result<PrivateDir> {
        let (parent, name) =
            path.parent().zip(path.file_name()).ok_or_else(|| refused("not a directory"))?;
        let there = parent.ancestors().take(made).find(|above| above.is_dir());
        let there = there.ok_or_else(|| refused("no parent directory exists"))?;
        let (above, parent) = open_parent(there, parent)?;
        make(&above, Path::new(name))?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = openat(&above, name, flags, Mode::empty()).map_err(|e| match e {
            Errno::ENOTDIR | Errno::ELOOP => refused("a symbolic link, or not a directory"),
            other => other.into(),
        })?;
        let (is, owner) = (fstat(&directory)?, Uid::effective());
        if is.st_uid != owner.as_raw() {
            return Err(refused(format!("belongs to user {}, expected {owner}", is.st_uid)));
        }
        if is.st_mode & OTHERS_WRITE != 0 {
            fchmod(&directory, Mode::S_IRWXU)?;
        }
        let path = parent.join(name);
        if path.as_os_str().as_bytes().iter().any(|byte| SEPARATORS.contains(byte)) {
            Err(refused("path contains a space, colon or dollar, which LD_PRELOAD cannot hold"))
        } else {
            Ok(PrivateDir { directory, path, owner })
        }
    }

    /// Puts a file there, unless one of this user with exactly this content is there already, and
    /// returns its path.
    ///
    /// Errors: it cannot be written. Nothing of it is left.
    pub fn provide(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        if !self.holds(name, content) {
            self.store(name, content)?;
        }
        Ok(self.path.join(name))
    }

    /// Whether a regular file of this user, which nobody else can write to, has this content.
    fn holds(&self, name: &str, content: &[u8]) -> bool {
        let flags = OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        let Ok(file) = openat(&self.directory, name, flags, Mode::empty()) else {
            return false;
        };
        let is_ours = fstat(&file).is_ok_and(|is| {
            kind(&is) == SFlag::S_IFREG
                && is.st_uid == self.owner.as_raw()
                && is.st_mode & OTHERS_WRITE == 0
                && u64::try_from(is.st_size) == Ok(content.len() as u64)
        });
        let mut found = Vec::with_capacity(content.len() + 1);
        let length = content.len() as u64 + 1;
        is_ours && File::from(file).take(length).read_to_end(&mut found).is_ok() && found == content
    }

    /// Writes the file beside its place and renames it there: what is loaded from there meanwhile
    /// stays whole.
    fn store(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let draft = format!(".{name}-{}.new", std::process::id());
        // One that is there is of an earlier process with this number, which was killed.
        let _ = unlinkat(&self.directory, &*draft, UnlinkatFlags::NoRemoveDir);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let file = openat(&self.directory, &*draft, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let mut file = File::from(file);
        let written = file.write_all(content).and_then(|()| {
            fchmod(&file, Mode::from_bits_truncate(FILE_MODE))?;
            Ok(renameat(&self.directory, &*draft, &self.directory, name)?)
        });
        written.inspect_err(|_| {
            let _ = unlinkat(&self.directory, &*draft, UnlinkatFlags::NoRemoveDir);
        })
    }
}

/// Opens the directory above, and returns its path without links. What is missing of it below one
/// that is there is made.
fn open_parent(there: &Path, path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let missing = path.strip_prefix(there).unwrap_or(Path::new(""));
    let mut real = PathBuf::from("/");
    let mut open = File::open(&real).map(OwnedFd::from)?;
    let trusted = Trusted::now(&open)?;
    trusted.check(&open, &real)?;
    for component in fs::canonicalize(there)?.join(missing).components() {
        let name = match component {
            Component::RootDir => continue,
            Component::Normal(name) => Path::new(name),
            _ => return Err(refused("path contains `..`")),
        };
        real.push(name);
        open = step(&open, name, &real)?;
        trusted.check(&open, &real)?;
    }
    Ok((open, real))
}

/// Opens a directory in another, and makes it if it is missing.
fn step(above: &OwnedFd, name: &Path, shown: &Path) -> io::Result<OwnedFd> {
    make(above, name)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let open = openat(above, name, flags, Mode::empty());
    open.map_err(|e| refused(format!("{}: {}", shown.display(), e.desc())))
}

/// Makes a directory of this user in another, if there is nothing of this name.
fn make(above: &OwnedFd, name: &Path) -> io::Result<()> {
    match nix::sys::stat::fstatat(above, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => match mkdirat(above, name, Mode::S_IRWXU) {
            Err(Errno::EEXIST) | Ok(()) => Ok(()),
            Err(other) => Err(other.into()),
        },
        _ => Ok(()),
    }
}

impl Trusted {
    fn now(root: &impl AsFd) -> io::Result<Trusted> {
        let system = fstat(root)?.st_uid;
        Ok(Trusted { user: Uid::effective(), group: Gid::effective(), system })
    }

    /// An error if another user could replace what is in the directory.
    fn check(&self, directory: &OwnedFd, shown: &Path) -> io::Result<()> {
        let is = fstat(directory)?;
        let shown = shown.display();
        if ![0, self.system, self.user.as_raw()].contains(&is.st_uid) {
            let owner = is.st_uid;
            return Err(refused(format!("{shown} belongs to user {owner} and could be replaced")));
        }
        let sticky = is.st_mode & Mode::S_ISVTX.bits() != 0;
        let others = is.st_mode & Mode::S_IWOTH.bits() != 0;
        let group = is.st_mode & Mode::S_IWGRP.bits() != 0 && is.st_gid != self.group.as_raw();
        if !sticky && (others || group) {
            Err(refused(format!("other users can write to {shown} and could replace it")))
        } else {
            Ok(())
        }
    }
}

fn kind(is: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(is.st_mode & SFlag::S_IFMT.bits())
}

fn refused(why: impl Into<String>) -> io::Error {
    io::Error::other(why.into())
}
