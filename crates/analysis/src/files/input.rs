//! Opens input files. A path can lead to anything: a named pipe or a device would block the reader
//! or never end, and a large sparse file would fill its memory. All of these are rejected, based on
//! the type of the open file.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a regular file for reading.
///
/// Errors: the file cannot be opened, or is not a regular file.
///
/// ```
/// let error = heaptide_analysis::files::input::open("/dev/zero".as_ref()).unwrap_err();
/// let expected = "is a device, expected a regular file";
/// assert_eq!(error.to_string(), expected);
/// ```
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// Opens a regular file for reading and writing.
///
/// Errors: the same as those of [`open`].
///
/// ```
/// assert!(heaptide_analysis::files::input::open_to_change("/dev/null".as_ref()).is_err());
/// ```
pub fn open_to_change(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true).write(true))
}

/// Reads a regular file of at most `limit` bytes.
///
/// Errors: the file cannot be read, is not a regular file, or is larger.
///
/// ```
/// use heaptide_analysis::files::input::read;
/// let text = read("Cargo.toml".as_ref(), 1 << 20).unwrap();
/// assert!(text.starts_with(b"[package]"));
/// assert!(read("Cargo.toml".as_ref(), 8).is_err());
/// ```
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_up_to(path, limit)?;
    let mut bytes = Vec::new();
    // The file can grow meanwhile, and files in /proc have no size.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    check_size(bytes.len() as u64, limit)?;
    Ok(bytes)
}

/// Opens a regular file of at most `limit` bytes.
///
/// Errors: the file cannot be opened, is not a regular file, or is larger.
///
/// ```
/// use heaptide_analysis::files::input::open_up_to;
/// let error = open_up_to("Cargo.toml".as_ref(), 8).unwrap_err().to_string();
/// assert!(error.ends_with("the limit is 8"), "{error}");
/// ```
pub fn open_up_to(path: &Path, limit: u64) -> io::Result<File> {
    let file = open(path)?;
    check_size(file.metadata()?.len(), limit)?;
    Ok(file)
}

fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Do not wait for the other end of a pipe, and do not make a terminal the controlling one.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = match options.custom_flags(flags.bits()).open(path) {
        // Opening a socket fails, and so does opening a directory or a pipe for writing.
        Err(error) => match path.metadata() {
            Ok(found) if !found.is_file() => return Err(other(found.file_type())),
            _ => return Err(error),
        },
        Ok(file) => file,
    };
    match file.metadata()?.file_type() {
        found if found.is_file() => Ok(file),
        found => Err(other(found)),
    }
}

fn other(found: FileType) -> io::Error {
    let is = match found {
        found if found.is_dir() => "a directory",
        found if found.is_fifo() => "a named pipe",
        found if found.is_socket() => "a socket",
        _ => "a device",
    };
    io::Error::other(format!("is {is}, expected a regular file"))
}

fn check_size(size: u64, limit: u64) -> io::Result<()> {
    if size > limit {
        Err(io::Error::other(format!("has {size} bytes, the limit is {limit}")))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_fixtures::Scratch;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_opened() {
        let place = Scratch::new("input");
        let (pipe, socket) = (place.join("pipe"), place.join("socket"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let device = place.join("device");
        std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
        for (path, is) in [
            (&*place, "a directory"),
            (&pipe, "a named pipe"),
            (&socket, "a socket"),
            (&device, "a device"),
        ] {
            let says = format!("is {is}, expected a regular file");
            for opened in [open(path), open_to_change(path), open_up_to(path, 0)] {
                assert_eq!(opened.unwrap_err().to_string(), says);
            }
            assert_eq!(read(path, 9).unwrap_err().to_string(), says);
        }
        let missing = open(&place.join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn no_more_is_read_than_the_limit() {
        let scratch = Scratch::new("limit");
        let file = scratch.write("file", b"twelve bytes");
        assert_eq!(read(&file, 12).unwrap(), b"twelve bytes");
        let error = read(&file, 11).unwrap_err().to_string();
        let says = "has 12 bytes, the limit is 11";
        assert_eq!(error, says);
        File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&file, 1 << 20).unwrap_err().to_string().starts_with("has 1099511627776"));
    }
}
