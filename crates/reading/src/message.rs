//! Lines on standard error. All lines of the command go through here: one that cannot be written
//! is dropped, and none can control the terminal.

use std::fmt::Display;
use std::io::{self, Write};

use heaptide_render::names::printable;

/// Writes `heaptide: LINE`. Control characters of the line, which may come from a program, are
/// escaped.
pub fn message(line: impl Display) {
    let line = line.to_string();
    // Without a standard error nobody can be told that there is none.
    let _ = writeln!(io::stderr().lock(), "heaptide: {}", printable(&line));
}
