//! The start and end of a command: parses options, reports errors, and determines the exit status.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Parser;
use heaptide_analysis::text::{self, printable};

use crate::error::Error;
use crate::message;
use crate::names;
use crate::outcome::{FAILED, NEGATIVE, Outcome, SUCCESS, Stop};

/// Parses the command line (`arguments`, starting with the command's name), runs the command, and
/// returns the exit status. Help and version go to standard output, errors to standard error.
pub fn command<Options: Parser>(
    arguments: &[OsString],
    perform: impl FnOnce(Options) -> Outcome,
) -> u8 {
    command_with_hints(arguments, |_, _| None, perform)
}

/// Like `command`. `hint` may return a line that replaces an error of the command line.
pub fn command_with_hints<Options: Parser>(
    arguments: &[OsString],
    hint: impl FnOnce(&[OsString], &clap::Error) -> Option<String>,
    perform: impl FnOnce(Options) -> Outcome,
) -> u8 {
    if let Some(status) = names::answer(arguments) {
        return status;
    }
    let outcome = match Options::try_parse_from(arguments) {
        Ok(options) => perform(options),
        Err(answer) if answer.use_stderr() => {
            match hint(arguments, &answer) {
                Some(line) => message::message(line),
                None => refuse::<Options>(arguments, &answer),
            }
            Err(Stop::Status(FAILED))
        }
        Err(answer) => print(&answer).map_err(Stop::from),
    };
    match outcome {
        Ok(()) => SUCCESS,
        // The reader of the output closed the pipe.
        Err(Stop::Failed(error)) if error.is_broken_pipe() => SUCCESS,
        Err(Stop::Failed(error)) => {
            message::report(&error);
            FAILED
        }
        Err(Stop::Negative(reason)) => {
            message::message(reason);
            NEGATIVE
        }
        Err(Stop::Status(status)) => status,
    }
}

/// Prints help or the version.
fn print(answer: &clap::Error) -> Result<(), Error> {
    answer.print().and_then(|()| io::stdout().flush()).map_err(Error::Output)
}

/// Prints the error of a command line, if standard error is writable.
fn refuse<Options: Parser>(arguments: &[OsString], answer: &clap::Error) {
    // The message quotes arguments, so parse it again with printable ones.
    let shown =
        |argument: &OsString| printable(&text::from_bytes(argument.as_bytes())).into_owned();
    match Options::try_parse_from(arguments.iter().map(shown)) {
        Err(answer) if answer.use_stderr() => message::usage(&answer),
        _ => message::plain(&answer.render().to_string()),
    }
}
