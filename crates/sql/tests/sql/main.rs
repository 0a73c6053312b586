//! Tests the SQL engine's program like users run it: through `heaptide`, on recordings made here.

mod answers;
#[cfg(feature = "cluster")]
mod cluster;
mod compacted;
mod damaged;
mod datasets;
mod exports;
mod harness;
mod judge;
mod manifest;
mod ranks;
mod readers;
