//! A directory that only this user can write to, for files that programs load.
//!
//! Its path is resolved once. Each directory on it is then opened relative to the previous one,
//! without following links, and checked through its descriptor: no other user can have created a
//! part of the path, or can replace one later.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, symlinkat, unlinkat};

/// Characters that end a name in `LD_PRELOAD` in glibc or musl, or begin a variable there.
const SEPARATORS: &[u8] = b" :$\t\n\r\x0b\x0c";
/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;
/// Permissions of the files: other users may run programs that load them.
const FILE_MODE: u32 = 0o755;

/// An open directory that only this user can write to.
#[derive(Debug)]
pub struct PrivateDir {
    directory: OwnedFd,
    path: PathBuf,
    owner: Uid,
}

/// Users that may own a directory above: root, which can change everything anyway, and this user.
struct Trusted {
    user: Uid,
    group: Gid,
    /// The owner of `/`: root, or, in a user namespace without it, the user that stands for root.
    system: u32,
}

impl PrivateDir {
    /// Opens the directory at an absolute path. Its last `made` components are created if they are
    /// missing. If others can write to a directory of this user, that permission is removed.
    ///
    /// Errors: it is a link, belongs to another user, is below a directory in which others can
    /// replace it, or cannot be created; its path contains characters that `LD_PRELOAD` cannot.
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

    /// Writes a file there, unless a file of this user with the same content exists, and returns
    /// its path.
    ///
    /// Errors: the file cannot be written. No part of it is left.
    pub fn provide(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        if !self.holds(name, content) {
            self.store(name, content)?;
        }
        Ok(self.path.join(name))
    }

    /// Creates a symbolic link there, in place of any other file with this name.
    ///
    /// Errors: the link cannot be created.
    pub fn link(&self, name: &str, target: &Path) -> io::Result<()> {
        if readlinkat(&self.directory, name).is_ok_and(|found| Path::new(&found) == target) {
            return Ok(());
        }
        let draft = format!(".{name}-{}.new", std::process::id());
        // A link with this name is from a killed process that had the same pid.
        let _ = unlinkat(&self.directory, &*draft, UnlinkatFlags::NoRemoveDir);
        symlinkat(target, &self.directory, &*draft)?;
        let renamed = renameat(&self.directory, &*draft, &self.directory, name);
        Ok(renamed.inspect_err(|_| {
            let _ = unlinkat(&self.directory, &*draft, UnlinkatFlags::NoRemoveDir);
        })?)
    }

    /// Returns whether the name is a regular file of this user that no other user can write to,
    /// with this content.
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

    /// Writes the file under another name and renames it, so that programs never load an incomplete
    /// one.
    fn store(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let draft = format!(".{name}-{}.new", std::process::id());
        // A file with this name is from a killed process that had the same pid.
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

/// Opens the parent directory, and returns its path without links. Components below `there` are
/// created if they are missing.
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

/// Opens a directory in another, and creates it if it is missing.
fn step(above: &OwnedFd, name: &Path, shown: &Path) -> io::Result<OwnedFd> {
    make(above, name)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let open = openat(above, name, flags, Mode::empty());
    open.map_err(|e| refused(format!("{}: {}", shown.display(), e.desc())))
}

/// Creates a directory of this user in another, unless the name exists.
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

    /// Checks that no other user can replace what is in the directory.
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
