//! `removed.json`: totals of the data removed from a recording to keep it within its limits.
//!
//! Files are counted, and listed as pending, before they are removed. If a command is killed in
//! between, the next one finds them pending and does not count them again.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::files::file_names::REMOVED_FILE;
use crate::files::json;
use crate::model::Removed;

/// The version of its layout; later versions are rejected.
pub const VERSION: u32 = 1;
/// Maximum size in bytes: a hundred thousand pending names.
const LIMIT: u64 = 4 << 20;
/// How long to wait for another command, and the polling interval.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);

/// The content of `removed.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Content {
    /// [`VERSION`] of the writer.
    version: u32,
    #[serde(flatten)]
    removed: Removed,
    /// Files that were counted and may still exist.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pending: BTreeSet<String>,
}

/// A file to be removed, by its name in the recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Doomed {
    pub(crate) name: String,
    /// Size on disk in bytes.
    pub(crate) bytes: u64,
}

/// A process image to be removed: the name of its profile, and its totals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Retired {
    pub(crate) name: String,
    pub(crate) totals: Removed,
}

impl Content {
    fn read(directory: &Path) -> Result<Content, Error> {
        let path = directory.join(REMOVED_FILE);
        let bytes = json::read_if_there(&path, LIMIT)?.filter(|bytes| !bytes.is_empty());
        let Some(bytes) = bytes else {
            return Ok(Content::default());
        };
        json::check_version(&path, &bytes, VERSION)?;
        serde_json::from_slice(&bytes).map_err(|source| Error::Json { path, source })
    }

    fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = directory.join(REMOVED_FILE);
        let text = serde_json::to_vec(&Content { version: VERSION, ..self.clone() })
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        json::replace(&path, &text)
    }
}

/// Returns the totals of the data removed from the recording in a directory; 0 if there is no file.
///
/// Errors: the file cannot be read, or has a later version.
pub(crate) fn read(directory: &Path) -> Result<Removed, Error> {
    Content::read(directory).map(|content| content.removed)
}

/// Writes totals of other recordings to a recording.
///
/// Errors: the file cannot be written.
pub(crate) fn write(directory: &Path, removed: Removed) -> Result<(), Error> {
    Content { removed, ..Content::default() }.write(directory)
}

/// Counts snapshots as removed, and removes them.
///
/// Errors: they cannot be counted, and then none is removed; or a file cannot be removed.
pub(crate) fn remove_snapshots(directory: &Path, doomed: &[Doomed]) -> Result<(), Error> {
    if doomed.is_empty() {
        return Ok(());
    }
    let counts = doomed.iter().map(|Doomed { name, bytes }| {
        (name.clone(), Removed { snapshots: 1, snapshot_bytes: *bytes, ..Removed::default() })
    });
    count(directory, counts)?;
    let remove = |Doomed { name, .. }: &Doomed| remove(&directory.join(name));
    doomed.iter().map(remove).fold(Ok(()), Result::and)
}

/// Counts a process image as removed.
///
/// Errors: the totals cannot be written.
pub(crate) fn count_image(directory: &Path, retired: &Retired) -> Result<(), Error> {
    count(directory, [(retired.name.clone(), retired.totals)].into_iter())
}

/// Removes a file if it exists.
///
/// Errors: the file cannot be removed.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io { path: path.to_owned(), doing: "remove", source })
        }
        _ => Ok(()),
    }
}

/// Counts files that will be removed, each once, while other commands are locked out.
fn count(directory: &Path, files: impl Iterator<Item = (String, Removed)>) -> Result<(), Error> {
    let _held = lock(directory)?;
    let mut content = Content::read(directory)?;
    content.pending.retain(|name| directory.join(name).symlink_metadata().is_ok());
    for (name, removed) in files {
        if content.pending.insert(name) {
            content.removed.add(&removed);
        }
    }
    content.write(directory)
}

/// Locks the current file for a writer, which replaces it. If the file system does not support
/// locks, returns `None`.
///
/// Errors: the file cannot be created or opened, or another command holds the lock too long.
fn lock(directory: &Path) -> Result<Option<File>, Error> {
    let path = directory.join(REMOVED_FILE);
    let start = Instant::now();
    let io = |source| Error::Io { path: path.clone(), doing: "write", source };
    loop {
        let mut options = OpenOptions::new();
        // The owner of the recording may have put a link there.
        options.custom_flags(OFlag::O_NOFOLLOW.bits());
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(io)?;
        match file.try_lock() {
            Ok(()) => {
                let now = fs::metadata(&path).map_err(io)?;
                let held = file.metadata().map_err(io)?;
                if (now.dev(), now.ino()) == (held.dev(), held.ino()) {
                    return Ok(Some(file));
                }
            }
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
        }
        if start.elapsed() > PATIENCE {
            return Err(io(io::Error::other("locked by another heaptide process; try again")));
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;

    fn doomed(place: &Path, name: &str, bytes: u64) -> Doomed {
        fs::write(place.join(name), "x").expect("a file");
        Doomed { name: name.to_owned(), bytes }
    }

    #[test]
    fn what_is_removed_is_counted_once_also_after_a_kill() {
        let place = Scratch::new("removed");
        let first = [doomed(&place, "1-0.1.snapshot", 10), doomed(&place, "1-0.2.snapshot", 5)];
        remove_snapshots(&place, &first).expect("removed");
        let counted =
            |snapshots, snapshot_bytes| Removed { snapshots, snapshot_bytes, ..Removed::default() };
        assert_eq!(read(&place).expect("the file"), counted(2, 15));
        assert!(first.iter().all(|file| !place.join(&file.name).exists()));
        // A command was killed after counting and before removing.
        let third = doomed(&place, "1-0.3.snapshot", 7);
        let mut killed = Content::read(&place).expect("the file");
        killed.pending.insert(third.name.clone());
        killed.removed = counted(3, 22);
        killed.write(&place).expect("written");
        remove_snapshots(&place, &[third, doomed(&place, "1-0.4.snapshot", 1)]).expect("removed");
        let content = Content::read(&place).expect("the file");
        assert_eq!(content.removed, counted(4, 23));
        assert!(!place.join("1-0.3.snapshot").exists());
        let pending: Vec<_> = content.pending.into_iter().collect();
        assert_eq!(pending, ["1-0.3.snapshot", "1-0.4.snapshot"], "of the last time alone");
    }

    #[test]
    fn nothing_is_removed_that_cannot_be_counted() {
        let place = Scratch::new("removed-later");
        fs::write(place.join(REMOVED_FILE), r#"{"version":9}"#).expect("a file");
        let file = doomed(&place, "1-0.1.snapshot", 10);
        let error = remove_snapshots(&place, &[file]).expect_err("a later version").to_string();
        assert!(error.contains("version 9 (this build reads up to 1)"), "{error}");
        assert!(place.join("1-0.1.snapshot").exists());
    }

    #[test]
    fn commands_take_turns() {
        let place = Scratch::new("removed-turns");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let place = &place;
                scope.spawn(move || {
                    for number in 0..20 {
                        let name = format!("{thread}-0.{number}.snapshot");
                        remove_snapshots(place, &[doomed(place, &name, 1)]).expect("removed");
                    }
                });
            }
        });
        let expected = Removed { snapshots: 80, snapshot_bytes: 80, ..Removed::default() };
        assert_eq!(read(&place).expect("the file"), expected);
    }
}
