//! `heaptide serve`: metrics and profiles of running programs over HTTP, read from outside of them.
//!
//! ```text
//! Prometheus ──▶ routes ─▶ readings ─▶ collector ─▶ watch: which processes there are
//!                   │                      └──────▶ observed: sums of live profiles
//! Parca, pprof ─────┴────▶ profiles ──────────────▶ tables of live profiles
//! collector ◀─ otlp: sends readings and profiles at an interval
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)] // `println!` panics if writing fails

mod access;
mod app;
mod collector;
mod error;
mod family;
mod numbers;
mod observed;
mod otlp;
mod own;
mod places;
mod pprof;
mod profiles;
mod readings;
mod routes;
mod server;
mod target;
mod text;
mod watch;

pub use collector::SERIES_MIN;
pub use error::Error;
pub use otlp::{Endpoint, Otlp, Report};
pub use profiles::Prepare;
pub use server::{Options, Server};
pub use target::Target;
