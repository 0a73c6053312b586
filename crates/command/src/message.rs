//! Lines on standard error. The command writes all of them here: lines that cannot be written are
//! dropped, and none can control the terminal.

use std::fmt::Display;
use std::io::{self, StderrLock, Write};

use heaptide_render::shared::names::printable;

use crate::error::Error;

/// Writes `heaptide: LINE`. Escapes control characters in the line, which may come from a program.
pub fn message(line: impl Display) {
    let line = line.to_string();
    // Without standard error, a failure cannot be reported.
    let _ = writeln!(stderr(), "heaptide: {}", printable(&line));
}

/// Writes the line of an error, and below it the location of the error in a query.
pub fn report(error: &Error) {
    message(error);
    plain(error.excerpt());
}

/// Writes lines without a prefix; control characters are escaped.
pub fn plain(lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(stderr(), "{}", printable(line)); // as above
    }
}

/// Writes the error of a command line, coloured on a terminal. Its arguments must be printable.
pub fn usage(answer: &clap::Error) {
    let _ = answer.print(); // as above
}

/// The only place that writes to standard error, except the line of progress, which its library
/// draws.
#[expect(clippy::disallowed_methods, reason = "the one place")]
fn stderr() -> StderrLock<'static> {
    io::stderr().lock()
}
