//! `heaptide top`: a live screen of running recordings, and the replay of finished ones.
//!
//! ```text
//! source: a thread that reads ──Update──▶ model: App ──▶ screen ──▶ terminal
//!                    ▲                      ▲   │
//!                    └─────── Request ──────┼───┘
//!                             terminal: keys, mouse, signals
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // a failed write would panic

mod error;
mod model;
mod run;
mod screen;
mod source;
mod terminal;

pub use error::Error;
pub use model::view::View;
pub use run::{Mode, Options, run};
pub use source::images::Prepare;
