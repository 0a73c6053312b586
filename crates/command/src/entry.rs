//! Where a command starts and ends: its options are parsed, its error is reported, its exit status
//! is chosen.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Parser;
use heaptide_analysis::text::{self, printable};

use crate::error::Error;
use crate::message::report;
use crate::{FAILED, source};

/// Parses the command line (`arguments`, the command's name first), performs what it asks for, and
/// returns the exit status. Help and the version go to standard output, errors to standard error.
pub fn command<Options: Parser>(
    arguments: &[OsString],
    perform: impl FnOnce(Options) -> Result<ExitCode, Error>,
) -> ExitCode {
    let done = match Options::try_parse_from(arguments) {
        Ok(options) => perform(options),
        Err(answer) if answer.use_stderr() => Ok(refuse::<Options>(arguments, &answer)),
        Err(answer) => print(&answer).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(status) => status,
        // The reader of the output has enough of it.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(error.status())
        }
    }
}

/// Prints help or the version.
fn print(answer: &clap::Error) -> Result<(), Error> {
    answer.print().and_then(|()| io::stdout().flush()).map_err(Error::output)
}

/// Prints what is wrong with the command line, as far as standard error can be written.
fn refuse<Options: Parser>(arguments: &[OsString], answer: &clap::Error) -> ExitCode {
    // It quotes arguments: parsed once more, they are printable.
    let shown =
        |argument: &OsString| printable(&text::from_bytes(argument.as_bytes())).into_owned();
    let _ = match Options::try_parse_from(arguments.iter().map(shown)) {
        Err(answer) if answer.use_stderr() => answer.print(),
        _ => {
            let plain = answer.render().to_string();
            source::page(&mut io::stderr().lock(), |out| out.write_all(plain.as_bytes()))
        }
    };
    ExitCode::from(FAILED)
}
