//! Starts a program exactly like exec, supervises it, and checks beforehand whether it can be
//! recorded.
//!
//! The command runs between a program and its starter, and must not be noticed: the program
//! inherits everything that exec passes on, gets the same signals, and ends with its own status.

#![deny(unsafe_code)]

pub mod elf;
pub mod environment;
#[allow(unsafe_code)]
pub mod exec;
#[cfg(test)]
mod fixtures;
pub mod images;
pub mod out_of_memory;
pub mod process;
pub mod program;
pub mod signals;
pub mod start;
pub mod supervisor;
mod unseen;
pub mod watchdog;
mod witness;
