//! Fuzz targets: functions that accept any bytes and must neither panic nor take long.
//!
//! `cargo xtask fuzz` runs each on random mutations of its corpus; the tests run the corpus itself.

#![forbid(unsafe_code)]

mod corpus;
mod fixtures;
mod mutate;
mod seeds;
mod targets;

pub use corpus::{Input, corpus, directory};
pub use mutate::mutated;
pub use seeds::{seeds, write_seeds};
pub use targets::*;

/// A target: the name of its corpus, and its function, which returns whether the input was read
/// instead of rejected.
pub type Target = (&'static str, fn(&[u8]) -> bool);

/// All targets.
pub const TARGETS: [Target; 10] = [
    ("profile_reader", profile_reader),
    ("query", query),
    ("trace", trace),
    ("eh_frame", eh_frame),
    ("rules", rules),
    ("suppressions", suppressions),
    ("symbols", symbols),
    ("names", names),
    ("jit", jit),
    ("demangler", demangler),
];
