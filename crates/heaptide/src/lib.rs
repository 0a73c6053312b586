//! What a program can tell Heaptide about itself, ask it, and have it do.
//!
//! A program that is started with `heaptide run` has the recorder in it. With this crate it says
//! what it is doing ([`scope!`]) and what its data is called ([`label`](label())), asks for its own
//! figures ([`measure`], [`Window`], [`totals`]), steers the recorder ([`pause`], [`threshold`],
//! [`snapshot()`]) and has code of its own called for each allocation ([`Monitor`]).
//!
//! In a process without the recorder everything here does nothing: a load and a branch. The crate
//! has no dependency, and needs no library at link time; with statically linked programs, in which
//! the recorder cannot be, it does nothing too.
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

#![deny(unsafe_code)]

mod control;
mod figures;
#[allow(unsafe_code)]
mod interface;
mod label;
#[doc(hidden)]
pub mod monitor;
mod pool;
mod scope;
#[cfg(feature = "tracing")]
mod spans;
mod task;
mod window;

pub use control::{
    Paused, ProcessPaused, Threshold, flush, loaded, pause, pause_process, process_active,
    recording, reset, thread_active, threshold, turn_off, turn_on,
};
pub use figures::{Figures, Histograms, SIZE_CLASSES, histograms, measure, thread_figures, totals};
pub use label::{
    Block, Data, Kind, Label, label, label_dimensions, label_guard, label_memory, resolve, unlabel,
};
pub use monitor::{
    Monitor, NotRegistered, OptionsError, Registration, Report, option_number, options, register,
};
pub use pool::Pool;
pub use scope::{
    Attached, Context, Extent, Name, REGION, Scope, Value, carried, function_name, in_context,
};
#[cfg(feature = "tracing")]
pub use spans::ScopeLayer;
pub use task::{InScope, Scoped};
pub use window::{Window, mark, snapshot};
