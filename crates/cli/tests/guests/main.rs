//! Guest programs and real programs under `heaptide run`: unharmed, and recorded to the byte.
//!
//! The small programs stand in `tests/programs`, their known numbers in their header comments (the
//! grammar is in `expectations.rs`). `cargo test -p heaptide-cli --test guests NAME` runs one.

#![allow(clippy::print_stderr)] // the output of a test

mod aarch64;
mod advise;
mod allocators;
mod answers;
mod attaching;
mod attaching_limits;
mod browser;
mod by_call;
mod by_size;
mod children;
mod command;
mod compat_alloc_monitor;
mod compat_caliper;
mod compat_malloc;
mod control;
mod damaged;
mod dangers;
mod diff;
mod documents;
mod embedded;
mod ends;
mod everything;
mod expectations;
mod filters;
mod folded;
mod footprint;
mod foreign;
mod forwarding;
mod harness;
mod highest;
mod hostile;
mod inheritance;
mod inputs;
mod interception;
mod interface;
mod kill;
mod known_totals;
mod languages;
mod launches;
mod library;
mod limits;
mod manners;
mod mappings;
mod memory;
mod merging;
mod odd_names;
mod output;
mod owners;
mod page;
mod pictures;
mod python_frames;
mod queries;
mod ranks;
mod real;
mod recording;
mod refusals;
mod replacing;
mod schema;
mod screen;
mod sealing;
mod stacks;
mod steps;
mod top;
mod trace;
mod trace_files;
mod trace_model;
mod trace_sums;
mod unrecorded;
mod unwritable;
mod view;
mod views;
