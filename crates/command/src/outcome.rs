//! The result of a command: its exit status, and the reason for a nonzero one. `docs/recording.md`
//! lists the statuses.

use std::fmt::Display;

use crate::error::Error;

/// Exit status: success.
pub const SUCCESS: u8 = 0;
/// Exit status: check failed or nothing found.
pub const NEGATIVE: u8 = 1;
/// Exit status: error. clap exits with it, too.
pub const FAILED: u8 = 2;

/// The result of a command.
pub type Outcome = Result<(), Stop>;

/// Why a command ends with a nonzero exit status.
#[derive(Debug)]
pub enum Stop {
    /// Check failed or nothing found, and the reason.
    Negative(String),
    /// The command failed.
    Failed(Error),
    /// An exit status without a message, because the output contains the reason, or it is the
    /// status of the recorded program.
    Status(u8),
}

impl Stop {
    /// Creates the negative result: check failed or nothing found, for this reason.
    pub fn negative(reason: impl Display) -> Stop {
        Stop::Negative(reason.to_string())
    }
}

/// Ends the command with an exit status that needs no message.
pub fn exit(status: u8) -> Outcome {
    if status == SUCCESS { Ok(()) } else { Err(Stop::Status(status)) }
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(error.into())
    }
}
