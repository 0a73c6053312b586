//! Lines on standard error. All lines of the command go through here: one that cannot be written
//! is dropped, and none can control the terminal.

use std::fmt::Display;
use std::io::{self, Write};

use heaptide_render::names::printable;

use crate::error::Error;

/// Writes `heaptide: LINE`. Control characters of the line, which may come from a program, are
/// escaped.
pub fn message(line: impl Display) {
    let line = line.to_string();
    // Without a standard error nobody can be told that there is none.
    let _ = writeln!(io::stderr().lock(), "heaptide: {}", printable(&line));
}

/// Writes the line of an error, and below it the place of the error in a query.
pub fn report(error: &Error) {
    message(error);
    for line in error.excerpt().lines() {
        let _ = writeln!(io::stderr().lock(), "{}", printable(line)); // as above
    }
}
