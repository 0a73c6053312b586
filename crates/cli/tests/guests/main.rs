//! Guest programs and real programs with `heaptide run`: not affected, and recorded to the byte.
//!
//! The small programs are in `tests/programs`, their known numbers in their header comments (for
//! the grammar see `expectations.rs`). `cargo test -p heaptide-cli --test guests NAME` runs one.

#![allow(clippy::print_stderr)] // output of tests

mod aarch64;
mod advise;
mod advise_table;
mod allocators;
mod answers;
mod attaching;
mod attaching_filters;
mod attaching_limits;
mod attaching_users;
mod book;
mod browser;
mod by_call;
mod by_size;
mod check;
mod children;
mod churn;
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
mod handlers;
mod harness;
mod highest;
mod hostile;
mod hostile_files;
mod http_client;
mod inheritance;
mod inputs;
mod interception;
mod interface;
mod kill;
#[cfg(target_arch = "x86_64")] // steps would break its exclusive stores elsewhere
mod kill_points;
#[cfg(target_arch = "x86_64")]
mod killed_commands;
mod known_totals;
mod languages;
mod launches;
mod library;
mod limits;
mod manners;
mod manual;
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
mod sampled;
mod schema;
mod screen;
mod sealing;
mod serve;
mod serve_examples;
mod serve_otlp;
mod services;
mod stacks;
#[cfg(target_arch = "x86_64")]
mod stepping;
mod steps;
mod surroundings;
mod test_limits;
mod timeline;
mod top;
mod trace;
mod trace_files;
mod trace_model;
mod trace_sums;
mod unrecorded;
mod unwritable;
mod view;
mod views;
mod watchdog;
