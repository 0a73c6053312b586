//! The interface between a program and the recorder in its process.
//!
//! A program names what it does ([`scope!`]) and its data ([`label`](label())), reads its own
//! statistics ([`measure`], [`Window`], [`totals`]), controls the recorder ([`pause`],
//! [`threshold`], [`snapshot()`]) and registers functions that are called on each allocation
//! ([`Monitor`]).
//!
//! In a process without the recorder everything here does nothing: a load and a branch. The crate
//! has no dependency, and needs no library at link time. Into a statically linked program no
//! library can be loaded: there it does nothing, unless the program has the recorder [in
//! it](#programs-that-no-library-can-be-loaded-into).
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
//! Guards end what they began when they are dropped. Those that belong to a thread stay on it:
//!
//! ```compile_fail
//! let scope = heaptide::scope!("load");
//! std::thread::spawn(move || drop(scope));
//! ```
//!
//! To take a scope path to another thread there is [`Context`]; to take it through awaits there is
//! [`InScope::in_scope`].
//!
//! # Features
//!
//! `tracing`: `ScopeLayer`, by which the spans of the `tracing` crate become scopes.
//!
//! `recorder`: `Recorder`, the recorder as an allocator of the program.
//!
//! `attribute`: `#[heaptide::limits(…)]`, limits on what a function may allocate. What is no limit,
//! and what is no function, does not compile:
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
//! `criterion`: `Allocated`, what an iteration allocates as a measurement of criterion.
//!
//! # Programs that no library can be loaded into
//!
//! A program that is static, or whose allocator is its own and not malloc, embeds the recorder:
//! with feature `recorder`, round the allocator that it has.
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
//! if `HEAPTIDE_OUTPUT` or `HEAPTIDE_MODE` is in the environment: `heaptide run ./program` sees to
//! that. Without them it hands calls on: a load and a branch for each. Nobody needs to build a
//! program anew to record it.
//!
//! - Where libheaptide.so is loaded too, that one records, and the embedded one only hands on. So
//!   nothing is counted twice. An allocator that is not made of malloc the library cannot see:
//!   `heaptide run --no-preload ./program` leaves it to the embedded one.
//! - It sees what Rust code allocates, and no malloc of C code.
//! - Usable sizes are the sizes that were asked for: a Rust allocator tells no others.
//! - While it records, blocks are aligned to 8 bytes and take 8 at least, as in every malloc.
//! - It has no hooks: it learns of a thread's name when the thread first allocates, not of later
//!   ones; nor of `dlclose`; and under a seccomp filter it may do what the filter forbids.
//! - A program with more rights than its user (setuid) is never recorded.
//! - C code that is linked into the same program finds the embedded recorder by `heaptide.h`.
//! - A debug build has a slow recorder, unless `[profile.dev.package.heaptide-embedded]` in the
//!   program's Cargo.toml says `opt-level = 3`.
//! - For now Linux: x86-64 with glibc and musl, aarch64 with glibc.

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
    recording, reset, separate_threads, start, thread_active, threshold, turn_off, turn_on, write,
    write_to,
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
