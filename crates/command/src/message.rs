//! Lines on standard error. All lines of the command go through here: one that cannot be written
//! is dropped, and none can control the terminal.

use std::fmt::Display;
use std::io::{self, StderrLock, Write};

use heaptide_render::shared::names::printable;

use crate::error::Error;

/// Writes `heaptide: LINE`. Control characters of the line, which may come from a program, are
/// escaped.
pub fn message(line: impl Display) {
    let line = line.to_string();
    // Without a standard error nobody can be told that there is none.
    let _ = writeln!(stderr(), "heaptide: {}", printable(&line));
}

/// Writes the line of an error, and below it the place of the error in a query.
pub fn report(error: &Error) {
    message(error);
    plain(error.excerpt());
}

/// Writes lines as they are, but for control characters.
pub fn plain(lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(stderr(), "{}", printable(line)); // as above
    }
}

/// Writes what is wrong with a command line, in color on a terminal. Its arguments are printable.
pub fn usage(answer: &clap::Error) {
    let _ = answer.print(); // as above
}

/// The one place that writes to standard error; a line of progress is drawn by its library.
#[expect(clippy::disallowed_methods, reason = "the one place")]
fn stderr() -> StderrLock<'static> {
    io::stderr().lock()
}
