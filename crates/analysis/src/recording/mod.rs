//! Recordings: opening, sealing and merging them, their snapshots and metadata, which of their
//! processes still run, and joining their processes to one.

pub(crate) mod ending;
pub(crate) mod identity;
pub mod join;
pub mod join_timeline;
pub mod merge;
pub mod metadata;
pub(crate) mod open;
pub mod origin;
pub mod running;
pub mod snapshot;

pub use open::{Choice, SUFFIX, Sealed, newest, seal, seal_with};
