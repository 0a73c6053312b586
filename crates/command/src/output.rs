//! Output of commands: pages and data on standard output, and files, of which none that exists is
//! replaced without --force and none is left half-written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use heaptide_render::text::screen::{Layout, Screen};
use nix::fcntl::{FcntlArg, fcntl};

use crate::error::Error;
use crate::progress::{Goes, Progress};
use crate::terminal::{self, Pager};

/// Bytes that go to a file at once.
const FILE_BUFFER_BYTES: usize = 1 << 18;
/// Bytes that go to standard output at once.
const STDOUT_BUFFER_BYTES: usize = 1 << 16;
/// Bytes that a pipe on standard output holds: what users may ask for without more rights.
const PIPE_BYTES: i32 = 1 << 20;

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Text for reading, in lines of any width. Names in it come from programs, and none of them
    /// may control the terminal.
    Text,
    /// Data for another program, which gets each byte.
    Data,
}

/// Whether a file to write stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// An error if the file is there and may not be replaced, to say so before the work is done.
pub fn may_write(path: &Path, force: bool) -> Result<(), Error> {
    if !(path.exists() && !force && !is_stdout(path)) {
        Ok(())
    } else {
        let path = path.display();
        let what =
            format!("{path}: exists; replace it with --force, or choose another file with -o");
        Err(Error::new(what))
    }
}

/// Writes the file as `render` goes along; of an error nothing is left.
pub fn write(
    path: &Path,
    force: bool,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    if force {
        options.write(true).create(true).truncate(true)
    } else {
        options.write(true).create_new(true)
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
    buffered(progress.of(&mut file, Goes::Elsewhere), FILE_BUFFER_BYTES, render)
}

/// Writes an answer to a file, or to standard output, which `-` stands for.
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

/// Writes a page to a file, or shows it as [`print_page`] does.
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

/// Shows a page on standard output: on a terminal in its width and colours, and in a pager.
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
    // Gigabytes of stacks go through faster; what is no pipe refuses, and stays as it is.
    let _ = fcntl(&stdout, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    let told = progress.of(&mut stdout, Goes::by_stdout());
    buffered(told, STDOUT_BUFFER_BYTES, write).map_err(Error::Output)
}

/// Writes through a buffer of so many bytes.
///
/// Errors: the first one of `out`, whatever `render` made of it: formats wrap errors in their own,
/// which hide that a pipe is broken.
fn buffered(
    out: impl Write,
    size: usize,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut checked = Checked { out, failed: None };
    let mut buffer = BufWriter::with_capacity(size, &mut checked);
    let rendered = render(&mut buffer).and_then(|()| buffer.flush());
    drop(buffer.into_parts()); // nothing is written again
    checked.failed.map_or(rendered, Err)
}

/// A writer that keeps its first error.
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
            // After an interruption writers try again.
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
