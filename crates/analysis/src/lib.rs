//! Turns recordings into tables: reads profiles as untrusted input, resolves addresses to names,
//! aggregates.
//!
//! ```text
//! PID-IMAGE.profile ──profile─▶ Profile ─┐
//! symbols.json / modules ──symbols───────┴─tables─▶ Process ─┐
//! recording.json ──────────────────────────────────recording─┴─▶ Recording ─selection─▶ views
//! ```
//!
//! A folder imports only from the folders before it in this list: `collections`, `files`, `model`,
//! `profile`, `tables`, `trace`, `recording`, `attribution`, `selection`, `views`. `cargo xtask
//! tidy` enforces this.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would end the command

pub mod attribution;
pub mod binomial;
pub mod collections;
mod error;
pub mod files;
#[cfg(test)]
mod fixtures;
pub mod model;
pub mod profile;
pub mod quantity;
pub mod recording;
pub mod selection;
pub mod symbols;
mod tables;
pub mod text;
pub mod threads;
pub mod trace;
pub mod views;

pub use error::Error;
pub use files::file_names::is_file_of_recording;
pub use recording::{newest, recordings_below, seal};
