//! `heaptide view`: a server on loopback for a page in the browser.
//!
//! ```text
//! browser ──▶ server ─▶ access ─▶ routes ─▶ store ─▶ recordings, live profiles
//!                                   │  ▲
//!                                   │  └─ changes: a thread that polls running processes
//!                                   └─▶ control ─▶ running programs, with `--control` only
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // `println!` panics if writing fails

mod access;
mod app;
mod catalog;
mod changes;
mod control;
mod data;
mod error;
mod events;
mod findings;
mod lifetimes;
mod live;
mod owners;
mod query;
mod routes;
mod server;
mod source;
mod store;

pub use catalog::Opened;
pub use error::Error;
pub use server::{Options, Server};
pub use store::{For, Prepare, Words};
