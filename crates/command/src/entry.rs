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
    let parse = |arguments: &[OsString]| Options::try_parse_from(arguments);
    let line = CommandLine { parse, hint: |_, _| None };
    command_with_hints(arguments, line, perform)
}

/// How a command line is parsed.
pub struct CommandLine<Options> {
    /// Parses the arguments, which start with the command's name.
    pub parse: fn(&[OsString]) -> Result<Options, clap::Error>,
    /// Returns lines that replace the error of a command line, if there are better ones.
    pub hint: fn(&[OsString], &clap::Error) -> Option<String>,
}

/// Like `command`, with other help and errors.
pub fn command_with_hints<Options>(
    arguments: &[OsString],
    line: CommandLine<Options>,
    perform: impl FnOnce(Options) -> Outcome,
) -> u8 {
    if let Some(status) = names::answer(arguments) {
        return status;
    }
    let outcome = match (line.parse)(arguments) {
        Ok(options) => perform(options),
        Err(answer) if answer.use_stderr() => {
            match (line.hint)(arguments, &answer) {
                Some(hint) => message_of_lines(&hint),
                None => refuse(arguments, line.parse, &answer),
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

/// Writes a message; lines after the first have no prefix.
fn message_of_lines(text: &str) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    message::message(first);
    message::plain(rest);
}

/// Prints the error of a command line, if standard error is writable.
fn refuse<Options>(
    arguments: &[OsString],
    parse: fn(&[OsString]) -> Result<Options, clap::Error>,
    answer: &clap::Error,
) {
    // The message quotes arguments, so parse it again with printable ones.
    let shown =
        |argument: &OsString| printable(&text::from_bytes(argument.as_bytes())).into_owned();
    let arguments: Vec<OsString> = arguments.iter().map(shown).map(OsString::from).collect();
    match parse(&arguments) {
        Err(answer) if answer.use_stderr() => message::usage(&answer),
        _ => message::plain(&answer.render().to_string()),
    }
}
