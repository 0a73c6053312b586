//! Starts a program exactly as exec would, watches it, and looks before whether it can be recorded.
//!
//! The command stands between a program and its starter. It must not be noticed: the program
//! inherits what exec would have handed on, gets the signals that it would have got, and ends with
//! its own status.

#![deny(unsafe_code)]

pub mod elf;
pub mod environment;
#[allow(unsafe_code)]
pub mod exec;
#[cfg(test)]
mod fixtures;
pub mod images;
pub mod process;
pub mod program;
pub mod python;
pub mod signals;
pub mod start;
pub mod supervisor;
mod unseen;
mod witness;
