//! The `heaptide` command: parses the options and runs one function per command, whose result
//! becomes the exit status.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // `print!` panics if the write fails
#![cfg_attr(not(test), no_main)]

mod commands;
mod dataset;
mod debuginfod;
mod ending;
mod finish;
mod guardian;
mod help;
mod helper;
mod inserting;
mod joining;
mod launch;
mod library;
mod manual_page;
mod manual_tables;
mod monitors;
mod options;
mod output_name;
mod place;
mod private_dir;
mod reports;
mod run;
mod search;
mod settings;
mod sql;
mod words;

use heaptide_command::entry::{self, CommandLine};
use heaptide_supervise::exec;

use crate::commands::Options;

#[cfg(not(test))]
heaptide_supervise::entry!(command);

/// Runs the command and returns its exit status.
#[cfg_attr(test, expect(dead_code))]
fn command() -> u8 {
    let arguments = exec::inherited().map(|inherited| &*inherited.arguments).unwrap_or_default();
    let arguments = words::meant(arguments);
    let line = CommandLine { parse: help::parse::<Options>, hint: words::answer };
    entry::command_with_hints(&arguments, line, commands::perform)
}
