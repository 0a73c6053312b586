//! Answers of statements, written as the options say.

use std::io;

use heaptide_command::error::Error;
use heaptide_command::output;
use heaptide_command::sql::SqlFormat;

use crate::session::Session;
use crate::shown::{self, Failed};
use crate::statements::Statement;

/// Answers a statement on standard output.
///
/// Errors: those of the statement, with their place in it, and of standard output.
pub fn print(session: &Session, statement: &Statement, format: SqlFormat) -> Result<(), Error> {
    let output = |write: Write<'_>| match format {
        SqlFormat::Table => output::print_text(|out| write(out)),
        _ => output::print(write),
    };
    written(output, session, statement, format)
}

/// What writes an answer.
pub(crate) type Write<'a> = &'a mut dyn FnMut(&mut dyn io::Write) -> io::Result<()>;

/// Answers a statement into what `output` opens.
pub(crate) fn written(
    output: impl FnOnce(Write<'_>) -> Result<(), Error>,
    session: &Session,
    statement: &Statement,
    format: SqlFormat,
) -> Result<(), Error> {
    // What is wrong with the statement itself is said before a file is there.
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
