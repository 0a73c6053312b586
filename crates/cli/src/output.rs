//! Files that commands write: none that is there is replaced unasked.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use crate::error::Error;

/// An error if the file is there and may not be replaced, to say so before the work is done.
pub fn may_write(path: &Path, force: bool) -> Result<(), Error> {
    match path.exists() && !force {
        false => Ok(()),
        true => {
            let path = path.display();
            let what = format!("{path}: exists; --force replaces it, -o names another file");
            Err(Error::new(what))
        }
    }
}

/// Writes the file.
pub fn store(path: &Path, bytes: &[u8], force: bool) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    match force {
        true => options.write(true).create(true).truncate(true),
        false => options.write(true).create_new(true),
    };
    let written = options.open(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|e| Error::file(path, "write it", e))
}
