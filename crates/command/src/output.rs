//! Output of commands: pages and data on standard output, and files. Existing files are replaced
//! only with --force, and no file is left half-written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
    path == Path::new("-")
}

/// Returns an error if a path to read or write is a URL.
pub fn check_path(path: &Path) -> Result<(), Error> {
    match values::url_refusal(path) {
        Some(refusal) => Err(Error::new(format!("{}: {refusal}", path.display()))),
        None => Ok(()),
    }
}

/// Returns an error if the path is a URL, or the file exists and must not be replaced, to report
/// that before the work is done.
pub fn may_write(path: &Path, force: bool) -> Result<(), Error> {
    check_path(path)?;
    if !(path.exists() && !force && !is_stdout(path)) {
        Ok(())
    } else {
        let path = path.display();
        let what =
            format!("{path}: exists; replace it with --force, or choose another file with -o");
        Err(Error::new(what))
    }
}

/// Writes the file while `render` runs; on error, removes it.
pub fn write(
    path: &Path,
    force: bool,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    check_path(path)?;
    let mut options = OpenOptions::new();
    if force {
        options.write(true).create(true).truncate(true)
    } else {
        options.write(true).create_new(true)
    };
    let file = options.open(path).map_err(|e| Error::file(path, "write it", e))?;
    fill(&file, render).map_err(|e| {
        // Other things than files, such as /dev/full, existed before, and stay.
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let _ = fs::remove_file(path);
        }
        Error::file(path, "write it", e)
    })
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
