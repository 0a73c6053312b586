//! Triggers: conditions of a running program that cause a snapshot of it.

use std::time::Duration;

mod levels;
mod pressure;

pub(crate) use levels::{Alarm, Growth, Level};
pub(crate) use pressure::{GroupId, Groups, is_pressing_on};

/// A condition that causes a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// The name of its snapshots, such as `live=500M`.
    pub name: String,
    /// The condition.
    pub when: When,
}

/// The condition of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Live bytes reach a limit.
    Live(u64),
    /// The resident memory of the process reaches a limit, in bytes.
    Resident(u64),
    /// Live bytes have grown by `bytes` within `span`, compared with their lowest value in that
    /// time.
    Growth {
        /// The growth in bytes.
        bytes: u64,
        /// The time span.
        span: Duration,
    },
    /// Memory is short: the kernel reports pressure, or a control group is close to its limit.
    Oom,
    /// The command receives this signal.
    Signal(i32),
    /// The program, or a child of it, ends with another exit status than 0 or by a signal.
    Failure,
}
