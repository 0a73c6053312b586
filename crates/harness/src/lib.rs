//! What the five test binaries of the command (`crates/cli/tests`) have in common: they build guest
//! programs, run them bare and recorded, and compare the two.

#![forbid(unsafe_code)]

pub mod expectations;
pub mod harness;
pub mod http_client;
pub mod programs;
pub mod questions;
pub mod recording;
pub mod steps;
