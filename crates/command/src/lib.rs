//! The library of the two binaries, `heaptide` and `heaptide-sql`: it opens the selected part of a
//! recording, writes output and messages, shows progress, and determines the exit status.

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

/// Exit status: check failed or nothing found. `docs/recording.md` lists the cases, and the other
/// statuses.
pub const NEGATIVE: u8 = 1;
/// Exit status: error. clap exits with it, too.
pub const FAILED: u8 = 2;
