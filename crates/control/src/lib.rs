//! Controls and observes running recordings: sends requests to programs, takes snapshots at an
//! interval and by triggers, and moves trace events out of live profiles.

#![forbid(unsafe_code)]

mod actions;
mod awaiting;
mod control;
mod error;
mod file_user;
mod lead;
mod mover;
mod profiles;
mod programs;
mod snapshots;
pub mod status;
pub mod targets;
mod triggers;

pub use actions::{Action, Outcome};
pub use awaiting::{Awaiting, Waiting};
pub use control::{Answer, Control, Threshold, Wait};
pub use error::Error;
pub use file_user::{Entered, FileUser, Maker, path_of};
pub use lead::Lead;
pub use mover::Mover;
pub use snapshots::{Count, Plan, Snapshots};
pub use triggers::{Trigger, When};
