//! The file that marks a directory as a dataset: it contains the version of the schema, and writers
//! lock it.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use heaptide_command::error::Error;
use heaptide_command::message::message;

/// The name of the file.
const NAME: &str = "heaptide-dataset";
/// The prefix of its line.
const SCHEMA: &str = "schema ";
/// The version of the tables that this program writes. Adding or removing a column needs no new
/// version, because it is NULL in files without it. Changing the meaning or type of a column does.
const VERSION: u32 = 1;
/// An upper bound of the file's size.
const BYTES_MAX: u64 = 64;

/// The purpose of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Adding files.
    Export,
    /// Replacing all files.
    Compact,
}

/// Returns whether a directory is a dataset.
#[cfg(feature = "cluster")]
pub fn is_one(directory: &Path) -> bool {
    directory.join(NAME).symlink_metadata().is_ok_and(|found| found.is_file())
}

/// Checks that this program supports the tables of a dataset.
///
/// Errors: they have a later version.
pub fn check(dataset: &Path) -> Result<(), Error> {
    match File::open(dataset.join(NAME)) {
        Ok(file) => check_file(dataset, &file).map(drop),
        Err(_) => Ok(()), // copied files; Parquet contains their columns
    }
}

/// Locks a dataset during the lifetime of the result. Several exports may run at a time, but a
/// compaction excludes everything else. Turns the directory into a dataset if it is none.
///
/// Errors: its tables have a later version, another compaction is running, or a compaction needs a
/// lock but the file system does not support locks.
pub fn lock(dataset: &Path, purpose: Purpose) -> Result<File, Error> {
    let path = dataset.join(NAME);
    let failed = |error| Error::file(&path, "write it", error);
    let options = File::options().read(true).append(true).create(true).open(&path);
    let mut file = options.map_err(failed)?;
    let locked = match purpose {
        Purpose::Export => file.try_lock_shared(),
        Purpose::Compact => file.try_lock(),
    };
    match (locked, purpose) {
        (Ok(()), _) => {}
        (Err(TryLockError::WouldBlock), Purpose::Export) => {
            message(format_args!("waiting for a compaction of {}", dataset.display()));
            file.lock_shared().map_err(failed)?;
        }
        // Without locks a single export is safe; its files are not listed yet.
        (Err(TryLockError::Error(_)), Purpose::Export) => {}
        (Err(TryLockError::WouldBlock), Purpose::Compact) => {
            let path = dataset.display();
            let what = "another command is writing to it; try again when it has ended";
            return Err(Error::new(format!("{path}: {what}")));
        }
        (Err(TryLockError::Error(error)), Purpose::Compact) => {
            return Err(Error::file(&path, "lock it", error));
        }
    }
    if !check_file(dataset, &file)? {
        file.write_all(format!("{SCHEMA}{VERSION}\n").as_bytes()).map_err(failed)?;
    }
    Ok(file)
}

/// Locks a dataset if no other command writes to it and the file system supports locks.
///
/// Errors: its tables have a later version, or its file cannot be written.
pub fn try_lock_alone(dataset: &Path) -> Result<Option<File>, Error> {
    check(dataset)?;
    let path = dataset.join(NAME);
    let file = File::options().append(true).create(true).open(&path);
    let file = file.map_err(|error| Error::file(&path, "write it", error))?;
    Ok(file.try_lock().is_ok().then_some(file))
}

/// Returns whether the file has a version.
fn check_file(dataset: &Path, file: &File) -> Result<bool, Error> {
    let mut text = String::new();
    let read = file.take(BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Error::file(&dataset.join(NAME), "read it", error))?;
    let Some(line) = text.lines().next() else {
        return Ok(false);
    };
    let version: Option<u32> = line.strip_prefix(SCHEMA).and_then(|text| text.parse().ok());
    match version {
        Some(version) if version <= VERSION => Ok(true),
        Some(version) => Err(Error::new(format!(
            "{}: unsupported schema version {version} (this build reads {VERSION}); update \
             heaptide",
            dataset.display()
        ))),
        None => Err(Error::new(format!(
            "{}: expected `{SCHEMA}{VERSION}` in {NAME}, found `{line}`",
            dataset.display()
        ))),
    }
}
