//! Recordings to tables: read profiles as untrusted input, give addresses names, aggregate.
//!
//! ```text
//! PID-IMAGE.profile ──reader──▶ Profile ─┐
//! recording.json ────metadata───────────▶├─recording─▶ Recording (model) ──▶ groups, trees
//! symbols.json / modules ──symbols──────▶┘
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // a failed write would end the command

pub mod aggregate;
mod baseline;
pub mod brackets;
mod by_id;
pub mod diff;
pub mod draft;
mod ending;
mod error;
mod extents;
mod facts;
mod files;
pub mod filter;
pub mod glue;
pub mod growing;
mod hide;
mod identity;
pub mod input;
pub mod join;
pub mod joined_time;
pub mod leaks;
#[cfg(test)]
mod made;
pub mod measure;
pub mod merge;
pub mod metadata;
pub mod model;
pub mod named;
mod naming;
pub mod origin;
mod pack;
pub mod pattern;
pub mod peak;
pub mod reader;
mod reconcile;
pub mod recording;
mod restack;
mod rewrite;
pub mod rules;
pub mod running;
pub mod scope_frames;
pub mod scopes;
mod sets;
pub mod sizes;
pub mod snapshot;
pub mod suppressions;
pub mod symbols;
mod tables;
pub mod text;
pub mod threads;
pub mod timeline;
pub mod trace;
pub mod tree;
mod unrecorded;

pub use error::Error;
pub use files::is_file_of_recording;
pub use recording::{newest, seal};
