//! The interface between a program and the recorder in its process.
//!
//! A program names its activities ([`scope!`]) and its data ([`label`](label())), reads its own
//! counters ([`measure`], [`Window`], [`totals`]), controls the recorder ([`pause`], [`threshold`],
//! [`snapshot()`]) and registers functions that are called on each allocation ([`Monitor`]).
//!
//! In a process without the recorder every call is a no-op, which costs a load and a branch. The
//! crate has no dependencies and needs no library at link time. `heaptide run` puts the recorder
//! into statically linked programs, too, if they were not stripped; others can
//! [embed](#programs-that-no-library-can-be-loaded-into) it.
//!
//! ```
//! use heaptide::{measure, scope};
//!
//! fn load() -> Vec<String> {
//!     let _scope = scope!("load");
//!     (0..100).map(|line| format!("line {line}")).collect()
//! }
//!
//! let (lines, figures) = measure(load);
//! if heaptide::recording() {
//!     assert_eq!(figures.live_blocks, 101); // the lines and their list
//! }
//! # drop(lines);
//! ```
//!
//! Dropping a guard ends what it began. Guards that belong to a thread cannot leave it:
//!
//! ```compile_fail
//! let scope = heaptide::scope!("load");
//! std::thread::spawn(move || drop(scope));
//! ```
//!
//! [`Context`] carries a scope path to another thread; [`InScope::in_scope`] carries it across
//! awaits.
//!
//! # Features
//!
//! `tracing`: `ScopeLayer`, which turns the spans of the `tracing` crate into scopes.
//!
//! `recorder`: `Recorder`, the recorder as an allocator of the program.
//!
//! `attribute`: `#[heaptide::limits(…)]`, limits on the allocations of a function. An unknown
//! limit, or an item that is not a plain function, does not compile:
//!
#![cfg_attr(feature = "attribute", doc = "```compile_fail")]
#![cfg_attr(not(feature = "attribute"), doc = "```ignore")]
//! #[heaptide::limits(blocks = 1)]
//! fn parse() {}
//! ```
//!
#![cfg_attr(feature = "attribute", doc = "```compile_fail")]
#![cfg_attr(not(feature = "attribute"), doc = "```ignore")]
//! #[heaptide::limits]
//! async fn parse() {}
//! ```
//!
//! `criterion`: `Allocated`, a measurement for criterion: the allocations of an iteration.
//!
//! # Programs that no library can be loaded into
//!
//! A program that is linked statically and stripped, or whose allocator is not malloc, embeds the
//! recorder around its allocator, with feature `recorder`:
//!
#![cfg_attr(feature = "recorder", doc = "```")]
#![cfg_attr(not(feature = "recorder"), doc = "```ignore")]
//! use std::alloc::System;
//!
//! #[global_allocator]
//! static ALLOCATOR: heaptide::Recorder<System> = heaptide::Recorder::new(System);
//! # fn main() {}
//! ```
//!
//! It records every Rust allocation, with stacks, scopes and labels, into the same kind of profile,
//! if the environment contains `HEAPTIDE_OUTPUT` or `HEAPTIDE_MODE`, which `heaptide run ./program`
//! sets. Otherwise it forwards calls, at the cost of a load and a branch each, so that the same
//! build runs with and without recording.
//!
//! - If libheaptide.so is loaded too, it records, and the embedded recorder only forwards, so that
//!   nothing is counted twice. The library cannot see an allocator that does not use malloc: with
//!   `heaptide run --no-preload ./program`, the embedded recorder records it.
//! - It records allocations of Rust code, but no malloc of C code.
//! - Usable sizes equal the requested sizes, because a Rust allocator does not report others.
//! - While it records, blocks are aligned to 8 bytes and have at least 8 bytes, as in every malloc.
//! - It has no hooks: it reads a thread's name only when the thread first allocates, does not
//!   notice `dlclose`, and may make system calls that a seccomp filter forbids.
//! - A program with more rights than its user (setuid) is never recorded.
//! - C code that is linked into the same program finds the embedded recorder through `heaptide.h`.
//! - The recorder is slow in a debug build, unless the program's Cargo.toml has `opt-level = 3` in
//!   `[profile.dev.package.heaptide-embedded]`.
//! - It supports Linux on x86-64 with glibc or musl, and on aarch64 with glibc.

#![deny(unsafe_code)]

#[cfg(feature = "criterion")]
mod benchmark;
mod control;
mod figures;
#[allow(unsafe_code)]
mod interface;
mod label;
mod limits;
mod measure;
#[doc(hidden)]
pub mod monitor;
mod pool;
mod registered;
mod scope;
#[cfg(feature = "tracing")]
mod spans;
#[allow(unsafe_code)]
mod task;
mod window;

#[cfg(feature = "criterion")]
pub use benchmark::Allocated;
pub use control::{
    Paused, ProcessPaused, Threshold, flush, loaded, pause, pause_process, process_active,
    recording, reset, separate_threads, start, start_with, thread_active, threshold, turn_off,
    turn_on, write, write_to,
};
pub use figures::{Figures, Histograms, ProcessMemory, SIZE_CLASSES};
#[cfg(feature = "recorder")]
pub use heaptide_embedded::Recorder;
#[cfg(feature = "attribute")]
pub use heaptide_macros::limits;
pub use label::{
    Block, Data, Kind, Label, label, label_dimensions, label_guard, label_memory, resolve, unlabel,
};
pub use limits::{Limits, assert_no_alloc};
pub use measure::{histograms, measure, process_memory, thread_figures, totals};
pub use monitor::{
    NotRegistered, OptionsError, Registration, Report, option_number, options, register,
};
pub use pool::Pool;
pub use registered::Monitor;
pub use scope::{
    Attached, Context, Extent, Name, REGION, Scope, Value, carried, function_name, in_context,
};
#[cfg(feature = "tracing")]
pub use spans::ScopeLayer;
pub use task::{InScope, Scoped};
pub use window::{Window, mark, snapshot};
