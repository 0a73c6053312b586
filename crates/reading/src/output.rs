//! Files that commands write: none that is there is replaced unasked, none is left half-written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::Error;
use crate::progress::{Goes, Progress};

/// Bytes that go to a file at once.
const BUFFER: usize = 1 << 18;

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
    write(path, force, |out| out.write_all(bytes))
}

/// Writes the file as `render` goes along; of an error nothing is left.
pub fn write(
    path: &Path,
    force: bool,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    match force {
        true => options.write(true).create(true).truncate(true),
        false => options.write(true).create_new(true),
    };
    let file = options.open(path).map_err(|e| Error::file(path, "write it", e))?;
    fill(&file, render).map_err(|e| {
        // What is no file, as /dev/full, was there before and stays.
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let _ = fs::remove_file(path);
        }
        Error::file(path, "write it", e)
    })
}

fn fill(mut file: &File, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut progress = Progress::start("writing");
    let mut out = BufWriter::with_capacity(BUFFER, progress.of(&mut file, Goes::Elsewhere));
    render(&mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let path = std::env::temp_dir().join(format!("heaptide-output-{}", std::process::id()));
        let halfway = |out: &mut dyn Write| {
            out.write_all(&[0; 2 * BUFFER])?;
            Err(io::Error::other("no more"))
        };
        let error = write(&path, false, halfway).expect_err("the error goes on");
        assert!(error.to_string().ends_with("cannot write it: no more"), "{error}");
        assert!(!path.exists());
        store(&path, b"first", false).expect("a new file");
        assert!(store(&path, b"second", false).is_err());
        assert_eq!(fs::read(&path).expect("the file"), b"first");
        store(&path, b"2", true).expect("replaced");
        assert_eq!(fs::read(&path).expect("the file"), b"2");
        fs::remove_file(&path).expect("removed");
    }
}
