//! Output of commands: pages and data on standard output, and files. Existing files are replaced
//! only with --force, and as a whole.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Seek, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use heaptide_analysis::files::draft::{Draft, OPEN};
use heaptide_render::text::screen::{Layout, Screen};
use nix::fcntl::{FcntlArg, fcntl};

use crate::error::Error;
use crate::progress::{Goes, Progress};
use crate::terminal::{self, Pager};
use crate::values;

/// The buffer size for files, in bytes.
const FILE_BUFFER_BYTES: usize = 1 << 18;
/// The buffer size for standard output, in bytes.
const STDOUT_BUFFER_BYTES: usize = 1 << 16;
/// The capacity to request for a pipe on standard output: the maximum for unprivileged users.
const PIPE_BYTES: i32 = 1 << 20;

/// The kind of output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Text for people, in lines of any width. It contains names from programs, which must not
    /// control the terminal.
    Text,
    /// Data for another program, passed through unchanged.
    Data,
}

/// Returns whether an output path means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

/// Returns an error if a path to read or write is a URL.
pub fn check_path(path: &Path) -> Result<(), Error> {
    match values::url_refusal(path) {
        Some(refusal) => Err(Error::new(format!("{}: {refusal}", path.display()))),
        None => Ok(()),
    }
}

/// Returns an error if the path is a URL, or the file exists and must not be replaced, to report
/// that before the work is done. A pipe or device is written to and not replaced.
pub fn may_write(path: &Path, force: bool) -> Result<(), Error> {
    check_path(path)?;
    let is_kept = || fs::metadata(path).is_ok_and(|found| found.is_file() || found.is_dir());
    if is_stdout(path) || force || !is_kept() { Ok(()) } else { Err(exists(path)) }
}

fn exists(path: &Path) -> Error {
    let path = path.display();
    Error::new(format!("{path}: exists; replace it with --force, or choose another file with -o"))
}

/// Writes a file like [`replace`], through a buffer.
pub fn write(
    path: &Path,
    force: bool,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    replace(path, force, |file| {
        fill(file, render).map_err(|error| Error::file(path, "write it", error))
    })
}

/// Writes a file beside `path`, and renames it when it is complete: other processes see the old or
/// the new file, and a killed command leaves the old one. A symbolic link stays, and its target is
/// replaced. A pipe or device is written to.
pub fn replace<E: From<Error>>(
    path: &Path,
    force: bool,
    write: impl FnOnce(&File) -> Result<(), E>,
) -> Result<(), E> {
    check_path(path)?;
    let failed = |error| Error::file(path, "write it", error);
    let (target, before) = match Place::of(path).map_err(failed)? {
        Place::Direct(file) => return write(&file),
        Place::Existing(..) if !force => return Err(exists(path).into()),
        Place::Existing(target, before) => (target, Some(before)),
        Place::New(target) => (target, None),
    };
    let draft = match Draft::of(&target, OPEN) {
        // The file may be changed, but not its directory.
        Err(error) if before.is_some() && error.kind() == PERMISSION => {
            return write(&File::create(&target).map_err(failed)?);
        }
        draft => draft.map_err(failed)?,
    };
    write(draft.file())?;
    match before {
        Some(before) => {
            keep_owner(draft.file(), &before);
            put(draft, &target).map_err(failed)?;
        }
        None if force => draft.replace().map_err(failed)?,
        None if draft.take(&target).map_err(failed)? => {}
        None => return Err(exists(path).into()), // since the command has started
    }
    Ok(())
}

/// Replaces a file by a draft, or its contents if its name cannot be changed: it is a mount point,
/// or another user's in a directory for all.
fn put(draft: Draft, target: &Path) -> io::Result<()> {
    let mut written = draft.file().try_clone()?;
    match draft.replace() {
        Err(error) if [ErrorKind::ResourceBusy, PERMISSION].contains(&error.kind()) => {
            written.rewind()?;
            io::copy(&mut written, &mut File::create(target)?).map(drop)
        }
        done => done,
    }
}

const PERMISSION: ErrorKind = ErrorKind::PermissionDenied;

/// Where output goes.
enum Place {
    /// A pipe or device, or a descriptor of this process.
    Direct(File),
    /// A file to replace: its path without symbolic links, and its owner and permissions.
    Existing(PathBuf, Metadata),
    New(PathBuf),
}

/// Directory of the descriptors of processes, and of nothing that can be replaced.
const PROCESSES: &str = "/proc";
/// The most symbolic links on a path to a new file, as in the kernel.
const LINKS_MAX: usize = 40;

impl Place {
    /// Errors: the file exists and is a directory, or cannot be written.
    fn of(path: &Path) -> io::Result<Place> {
        let Ok(found) = fs::metadata(path) else {
            return Ok(Place::New(without_links(path)));
        };
        // Also finds out whether the file may be written: that its directory may be, is not enough.
        let file = OpenOptions::new().write(true).open(path)?;
        if !found.is_file() {
            return Ok(Place::Direct(file));
        }
        let directory = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
        if directory.is_some_and(|directory| directory.starts_with(PROCESSES)) {
            file.set_len(0)?;
            return Ok(Place::Direct(file));
        }
        Ok(Place::Existing(fs::canonicalize(path)?, found))
    }
}

/// Follows symbolic links to a file that does not exist.
fn without_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Gives a new file the owner and permissions of the one that it replaces.
fn keep_owner(file: &File, before: &Metadata) {
    let is_own =
        file.metadata().is_ok_and(|new| (new.uid(), new.gid()) == (before.uid(), before.gid()));
    // Without the right to change the owner, it stays that of this process: with permissions for
    // another group, the file could be read by more users than before.
    if is_own || fchown(file, Some(before.uid()), Some(before.gid())).is_ok() {
        let _ = file.set_permissions(before.permissions());
    }
}

fn fill(mut file: &File, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut progress = Progress::start("writing");
    buffered(progress.of(&mut file, Goes::Elsewhere), FILE_BUFFER_BYTES, render)
}

/// Writes a result to a file, or to standard output if the path is `-`.
pub fn write_or_print(
    file: Option<&Path>,
    force: bool,
    content: Content,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    match (file.filter(|path| !is_stdout(path)), content) {
        (Some(path), Content::Text) => {
            write(path, force, |out| page(out, Layout::default(), |out| render(out)))
        }
        (Some(path), Content::Data) => write(path, force, render),
        (None, Content::Text) => paged(Layout::default(), |out| render(out)),
        (None, Content::Data) => print(render),
    }
}

/// Writes a page to a file, or shows it like [`print_page`].
pub fn write_or_print_page(
    file: Option<&Path>,
    force: bool,
    render: impl FnOnce(&mut Screen) -> io::Result<()>,
) -> Result<(), Error> {
    match file.filter(|path| !is_stdout(path)) {
        Some(path) => write(path, force, |out| page(out, Layout::default(), render)),
        None => print_page(render),
    }
}

/// Shows a page on standard output: on a terminal with its width and colours, and in a pager.
pub fn print_page(write: impl FnOnce(&mut Screen) -> io::Result<()>) -> Result<(), Error> {
    paged(terminal::layout(), write)
}

/// Writes lines of text to standard output, without a pager.
pub fn print_text(write: impl FnOnce(&mut Screen) -> io::Result<()>) -> Result<(), Error> {
    print(|out| page(out, Layout::default(), write))
}

/// Writes a page to the pager, or to standard output if there is none.
fn paged(layout: Layout, write: impl FnOnce(&mut Screen) -> io::Result<()>) -> Result<(), Error> {
    let Some(mut pager) = Pager::start() else {
        return print(|out| page(out, layout, write));
    };
    buffered(pager.input(), STDOUT_BUFFER_BYTES, |out| page(out, layout, write))
        .map_err(Error::Output)
}

fn page(
    out: &mut dyn Write,
    layout: Layout,
    write: impl FnOnce(&mut Screen) -> io::Result<()>,
) -> io::Result<()> {
    let mut screen = Screen::new(out, layout);
    write(&mut screen)?;
    screen.flush()
}

/// Writes to standard output through a buffer.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let mut progress = Progress::start("writing");
    let mut stdout = io::stdout().lock();
    // A larger pipe speeds up gigabytes of stacks. The call fails if it is no pipe, which is
    // harmless.
    let _ = fcntl(&stdout, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    let told = progress.of(&mut stdout, Goes::by_stdout());
    buffered(told, STDOUT_BUFFER_BYTES, write).map_err(Error::Output)
}

/// Writes through a buffer of this size.
///
/// Errors: the first error of `out`, regardless of the result of `render`, because formats wrap
/// errors in their own, which hide that a pipe was closed.
fn buffered(
    out: impl Write,
    size: usize,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut checked = Checked { out, failed: None };
    let mut buffer = BufWriter::with_capacity(size, &mut checked);
    let rendered = render(&mut buffer).and_then(|()| buffer.flush());
    drop(buffer.into_parts()); // must not write again
    checked.failed.map_or(rendered, Err)
}

/// A writer that stores its first error.
struct Checked<W> {
    out: W,
    failed: Option<io::Error>,
}

impl<W> Checked<W> {
    fn note<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            let copy = match error.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::new(error.kind(), error.to_string()),
            };
            // After an interruption, writers try again.
            if error.kind() != io::ErrorKind::Interrupted {
                self.failed.get_or_insert(error);
            }
            copy
        })
    }
}

impl<W: Write> Write for Checked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.out.write(bytes);
        self.note(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.out.flush();
        self.note(done)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use heaptide_fixtures::Scratch;

    use super::*;

    #[test]
    fn a_file_is_complete_or_absent() {
        let scratch = Scratch::new("output");
        let path = scratch.join("file");
        let halfway = |out: &mut dyn Write| {
            out.write_all(&[0; 2 * FILE_BUFFER_BYTES])?;
            Err(io::Error::other("no more"))
        };
        let error = write(&path, false, halfway).expect_err("the error goes on");
        assert!(error.to_string().ends_with("cannot write it: no more"), "{error}");
        assert!(!path.exists());
        let store = |text: &'static [u8], force| write(&path, force, |out| out.write_all(text));
        store(b"first", false).expect("a new file");
        assert!(store(b"second", false).is_err());
        assert_eq!(fs::read(&path).expect("the file"), b"first");
        store(b"2", true).expect("replaced");
        assert_eq!(fs::read(&path).expect("the file"), b"2");
    }

    #[test]
    fn a_file_is_old_or_new_while_it_is_written() {
        let scratch = Scratch::new("output-whole");
        let path = scratch.write("file", b"old");
        let names = || fs::read_dir(&*scratch).expect("a directory").count();
        write(&path, true, |out| {
            out.write_all(&[1; 2 * FILE_BUFFER_BYTES])?;
            assert_eq!(fs::read(&path)?, b"old");
            // A second command finishes first.
            write(&path, true, |out| out.write_all(b"other")).expect("another writer");
            assert_eq!(fs::read(&path)?, b"other");
            out.write_all(b"end")
        })
        .expect("a writer");
        assert_eq!(fs::metadata(&path).expect("a file").len(), 2 * FILE_BUFFER_BYTES as u64 + 3);
        let halfway = |_: &mut dyn Write| Err(io::Error::other("no more"));
        assert!(write(&path, true, halfway).is_err());
        assert_eq!(fs::metadata(&path).expect("a file").len(), 2 * FILE_BUFFER_BYTES as u64 + 3);
        let new = scratch.join("new");
        let late = write(&new, false, |out| {
            write(&new, false, |out| out.write_all(b"first")).expect("another writer");
            out.write_all(b"late")
        });
        assert!(late.expect_err("it exists").to_string().contains("exists; replace it"));
        assert_eq!((fs::read(&new).expect("a file").as_slice(), names()), (&b"first"[..], 2));
    }

    #[test]
    fn links_and_permissions_stay() {
        let scratch = Scratch::new("output-links");
        let path = scratch.write("file", b"old");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("permissions");
        let store = |path: &Path, force| write(path, force, |out| out.write_all(b"new"));
        let link = scratch.join("link");
        symlink("file", &link).expect("a link");
        assert!(store(&link, false).is_err());
        store(&link, true).expect("to replace");
        let found = fs::metadata(&path).expect("a file");
        assert_eq!(
            (found.mode() & 0o777, fs::read(&path).expect("a file")),
            (0o640, b"new".to_vec())
        );
        assert!(link.is_symlink());
        let dangling = scratch.join("dangling");
        symlink("missing", &dangling).expect("a link");
        store(&dangling, false).expect("a new file");
        assert!(dangling.is_symlink() && scratch.join("missing").is_file());
        for force in [false, true] {
            assert!(may_write(Path::new("/dev/null"), force).is_ok());
            store(Path::new("/dev/null"), force).expect("a device");
            assert!(may_write(&scratch, force).is_ok() == force && store(&scratch, force).is_err());
        }
        let open = File::open(&path).expect("a file");
        let descriptor = format!("/proc/self/fd/{}", open.as_raw_fd());
        store(Path::new(&descriptor), true).expect("a descriptor");
        assert_eq!(open.metadata().expect("a file").ino(), found.ino(), "the same file");
        // As for `-o >(gzip)`.
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let descriptor = format!("/proc/self/fd/{}", writer.as_raw_fd());
        store(Path::new(&descriptor), false).expect("a pipe");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text, "new");
    }

    #[test]
    fn an_error_of_the_writer_is_returned_unchanged() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let kind = |error: io::Result<()>| error.expect_err("it is closed").kind();
        let wrapping = |out: &mut dyn Write| {
            out.write_all(&[0; 99]).map_err(|e| io::Error::other(e.to_string()))
        };
        let forgetting = |out: &mut dyn Write| {
            let _ = out.write_all(&[0; 99]);
            Ok(())
        };
        assert_eq!(kind(buffered(Closed, 8, wrapping)), io::ErrorKind::BrokenPipe);
        assert_eq!(kind(buffered(Closed, 8, forgetting)), io::ErrorKind::BrokenPipe);
        let own = |_: &mut dyn Write| Err(io::Error::other("no stacks"));
        assert_eq!(kind(buffered(Vec::new(), 8, own)), io::ErrorKind::Other);
    }
}
