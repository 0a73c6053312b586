//! Where a command starts and ends: its options are parsed, its error is reported, its exit status
//! is chosen.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;
use crate::message::report;
use crate::{FAILED, source};

/// Parses the command line, performs what it asks for, and returns the exit status. Help and the
/// version go to standard output, errors to standard error.
pub fn command<Options: Parser>(
    perform: impl FnOnce(Options) -> Result<ExitCode, Error>,
) -> ExitCode {
    let done = match Options::try_parse() {
        Ok(options) => perform(options),
        Err(answer) if answer.use_stderr() => Ok(refuse(&answer)),
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
fn refuse(answer: &clap::Error) -> ExitCode {
    let _ = match std::env::args_os().any(has_control) {
        false => answer.print(),
        // The answer quotes the argument. It is shown without colors, so that every control
        // character in it is the argument's.
        true => {
            let plain = answer.render().to_string();
            source::page(&mut io::stderr().lock(), |out| out.write_all(plain.as_bytes()))
        }
    };
    ExitCode::from(FAILED)
}

fn has_control(argument: OsString) -> bool {
    argument.to_string_lossy().chars().any(char::is_control)
}
