//! Progress on a terminal: a line on standard error for operations that take longer than a second,
//! removed when they finish.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use heaptide_render::shared::names::printable;
use heaptide_render::shared::quantity::bytes;

/// Shorter operations show nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// The interval at which the line is redrawn.
const TICK: Duration = Duration::from_millis(100);

/// An operation with progress; dropping it ends the operation.
pub struct Progress {
    bar: ProgressBar,
    /// The drawing thread, and the channel that ends it; `None` without a terminal.
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts an operation: `reading app.heaptide`.
    pub fn start(what: impl Into<String>) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_message(printable(&what.into()).into_owned());
        if let Ok(style) = ProgressStyle::with_template("heaptide: {msg}, {elapsed}") {
            bar.set_style(style);
        }
        #[expect(clippy::disallowed_methods, reason = "nothing is written")]
        let is_terminal = io::stderr().is_terminal();
        let drawing = is_terminal.then(|| {
            let (sender, end) = channel();
            let bar = bar.clone();
            let draw = move || {
                let mut patience = PATIENCE;
                while end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                    if patience == PATIENCE {
                        bar.set_draw_target(ProgressDrawTarget::stderr());
                    }
                    bar.tick();
                    patience = TICK;
                }
                bar.finish_and_clear();
            };
            // If no thread can be created, nothing is drawn.
            Some((sender, Builder::new().spawn(draw).ok()?))
        });
        Progress { bar, drawing: drawing.flatten() }
    }

    /// Shows how much is done: `looking up symbols 1024/4096`.
    pub fn at(&self, what: &str, done: usize, total: usize) {
        self.bar.set_message(format!("{what} {done}/{total}"));
    }

    /// Shows the current activity: `fetching debug information of libc.so.6, 2.1 MiB`.
    pub fn show(&self, what: &str) {
        self.bar.set_message(printable(what).into_owned());
    }

    /// Returns a writer that shows how much was written. For output to a terminal it removes the
    /// line first, which is where the text goes.
    pub fn of<'a>(&'a mut self, out: &'a mut dyn Write, goes: Goes) -> impl Write + 'a {
        Told { progress: self, out, goes, written: 0 }
    }

    fn end(&mut self) {
        if let Some((sender, thread)) = self.drawing.take() {
            drop(sender);
            let _ = thread.join(); // even if it panicked
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// The destination of output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goes {
    /// To a terminal.
    ToTerminal,
    /// To a file or another program.
    Elsewhere,
}

impl Goes {
    /// Returns the destination of standard output.
    pub fn by_stdout() -> Goes {
        if io::stdout().is_terminal() { Goes::ToTerminal } else { Goes::Elsewhere }
    }
}

struct Told<'a> {
    progress: &'a mut Progress,
    out: &'a mut dyn Write,
    goes: Goes,
    written: u64,
}

impl Write for Told<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match self.goes {
            Goes::ToTerminal => self.progress.end(),
            Goes::Elsewhere => {
                let said = self.written >> 20;
                self.written += text.len() as u64;
                if self.written >> 20 > said {
                    self.progress.bar.set_message(format!("writing, {}", bytes(self.written)));
                }
            }
        }
        self.out.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_file_names_are_escaped() {
        let progress = Progress::start("reading red\x1b[31m\n.heaptide");
        assert_eq!(progress.bar.message(), r"reading red\x1b[31m\x0a.heaptide");
    }
}
