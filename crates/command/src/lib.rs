//! The library of the two binaries, `heaptide` and `heaptide-sql`: opens the selected part of a
//! recording, writes output and messages, shows progress, and determines the exit status.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would panic

pub mod chosen;
pub mod damage;
pub mod dataset;
pub mod entry;
pub mod error;
pub mod growth;
pub mod message;
pub mod missing_names;
mod names;
pub mod outcome;
pub mod output;
pub mod progress;
pub mod project;
pub mod replayed;
pub mod select;
pub mod selection;
pub mod snapshots;
pub mod source;
pub mod sql;
pub mod target;
pub mod terminal;
pub mod values;

/// The allocator of programs linked with musl, because musl's uses one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
