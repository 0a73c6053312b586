//! Triggers: what a running program has to do for a snapshot of it to be taken.

use std::time::Duration;

mod levels;
mod pressure;

pub(crate) use levels::{Alarm, Growth, Level};
pub(crate) use pressure::{GroupId, Groups, is_pressing_on};

/// A reason to take a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// The name that its snapshots get, such as `live=500M`.
    pub name: String,
    /// When one is taken.
    pub when: When,
}

/// When a trigger takes a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Live bytes reach a limit.
    Live(u64),
    /// The resident memory of the process reaches a limit, in bytes.
    Resident(u64),
    /// Live bytes have grown by `bytes` within `span`: those of now, less the lowest of that time.
    Growth {
        /// How much.
        bytes: u64,
        /// In which time.
        span: Duration,
    },
    /// Memory is short: the kernel reports pressure, or a control group is close to its limit.
    Oom,
    /// The command receives this signal.
    Signal(i32),
    /// The program, or a child of it, ends with another exit status than 0 or by a signal.
    Failure,
}
