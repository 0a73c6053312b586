//! Programs with `heaptide run`: not affected, and recorded to the byte; requests to running
//! programs.
//!
//! The small programs are in `tests/programs`, their known numbers in their header comments (for
//! the grammar see `crates/harness/src/expectations.rs`). `cargo test -p heaptide-cli --test record
//! NAME` runs one.

#![allow(clippy::print_stderr)] // output of tests

mod aarch64;
mod allocators;
mod attaching;
mod attaching_filters;
mod attaching_limits;
mod attaching_users;
mod by_call;
mod by_size;
mod children;
mod control;
mod dangers;
mod device;
mod embedded;
mod ends;
mod footprint;
mod forwarding;
mod highest;
mod hostile_files;
mod inheritance;
mod interception;
mod interface;
#[cfg(target_arch = "x86_64")] // steps would break its exclusive stores elsewhere
mod kill_points;
#[cfg(target_arch = "x86_64")]
mod killed_commands;
mod kokkos;
mod languages;
mod launches;
mod limits;
mod mappings;
mod memory;
mod python_frames;
mod python_objects;
mod refusals;
mod replacing;
mod retaining;
mod sampled;
mod sealing;
mod services;
mod stacks;
#[cfg(target_arch = "x86_64")]
mod static_programs;
mod stepping;
mod surroundings;
mod timeline;
mod trace;
mod trace_files;
mod trace_model;
mod trace_sums;
mod unrecorded;
mod watchdog;

use heaptide_harness::{expectations, harness, programs, recording, steps};
