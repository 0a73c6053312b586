//! The SQL engine's program, run as users run it: through `heaptide`, over recordings made here.

mod answers;
#[cfg(feature = "cluster")]
mod cluster;
mod datasets;
mod harness;
mod judge;
mod ranks;
mod readers;
