//! What the commands that read recordings have in common: the words that say what of which
//! recording is meant, opening it, and pages, files, errors and progress.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // a failed write would end the command

pub mod chosen;
pub mod damage;
pub mod entry;
pub mod error;
pub mod message;
pub mod output;
pub mod progress;
pub mod selection;
pub mod source;
pub mod sql;
pub mod values;

/// The status of a command whose answer is no.
pub const NO: u8 = 1;
/// The status of a command that could not do its work; also what clap exits with.
pub const FAILED: u8 = 2;
