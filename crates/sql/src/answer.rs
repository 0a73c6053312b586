//! Writes results of statements in the requested format.

use std::io;

use heaptide_command::error::Error;
use heaptide_command::output;
use heaptide_command::sql::SqlFormat;

use crate::session::Session;
use crate::shown::{self, Failed};
use crate::statements::Statement;

/// Writes the result of a statement to standard output.
///
/// Errors: those of the statement, with their location in it, and of standard output.
pub fn print(session: &Session, statement: &Statement, format: SqlFormat) -> Result<(), Error> {
    let output = |write: Write<'_>| match format {
        SqlFormat::Table => output::print_text(|out| write(out)),
        _ => output::print(write),
    };
    written(output, session, statement, format)
}

/// The function that writes a result.
pub(crate) type Write<'a> = &'a mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>;

/// Writes the result of a statement to the file that `output` opens.
pub(crate) fn written(
    output: impl FnOnce(Write<'_>) -> Result<(), Error>,
    session: &Session,
    statement: &Statement,
    format: SqlFormat,
) -> Result<(), Error> {
    // Report errors of the statement before the file is created.
    let mut answer = session.ask(&statement.text)?;
    let mut wrong = None;
    let mut write = |out: &mut dyn io::Write| {
        shown::write(out, format, &mut answer).map_err(|failed| match failed {
            Failed::Write(error) => error,
            Failed::Answer(error) => {
                wrong = Some(error);
                io::Error::other("there is no answer")
            }
        })
    };
    let done = output(&mut write);
    wrong.map_or(done, Err)
}
