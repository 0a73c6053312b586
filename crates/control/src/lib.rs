//! Controls and observes running recordings: requests to programs, snapshots at an interval, and
//! the events of traces, which move out of live profiles.

#![forbid(unsafe_code)]

mod actions;
mod control;
mod error;
mod lead;
mod mover;
mod snapshots;
pub mod status;
pub mod targets;

pub use actions::{Action, Outcome};
pub use control::{Answer, Control, Threshold, Wait};
pub use error::Error;
pub use lead::Lead;
pub use mover::Mover;
pub use snapshots::Snapshots;
