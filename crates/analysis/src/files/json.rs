//! JSON files of a recording: reads them up to a limit, checks their version, replaces them.

use std::io::Write;
use std::path::Path;

use serde::Deserialize;

use super::draft::{self, Draft};
use super::input;
use crate::error::Error;

/// Returns the contents of a file of at most `limit` bytes; `None` if there is no such file.
pub(crate) fn read_if_there(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    match input::read(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { path: path.to_owned(), doing: "read", source }),
    }
}

/// Rejects a JSON file of a later version before its other fields are read.
pub(crate) fn check_version(path: &Path, bytes: &[u8], known: u32) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let path = path.to_owned();
    match serde_json::from_slice::<Versioned>(bytes) {
        Ok(Versioned { version }) if version > known => Err(Error::Newer { path, version, known }),
        Ok(_) => Ok(()),
        Err(source) => Err(Error::Json { path, source }),
    }
}

/// Replaces a file atomically: a reader sees either the old or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let write = || {
        let draft = Draft::of(path, draft::OPEN)?;
        draft.file().write_all(bytes)?;
        draft.replace()
    };
    write().map_err(|source| Error::Io { path: path.to_owned(), doing: "write", source })
}
