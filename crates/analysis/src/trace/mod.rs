//! Traces: every event of a process, in extents of its profile and in the trace file.
//!
//! ```text
//! extents of the profile ─┐
//! PID-IMAGE.trace ────────┴─chunks─▶ lanes ─merged by the clock─▶ blocks ─paired─▶ Event
//!                         └────── a thread of its own ──────┘
//! ```

mod ahead;
mod before;
mod blocks;
mod check;
mod chunks;
mod clock;
mod cut;
mod disk;
mod event;
pub mod file;
mod lanes;
pub(crate) mod lending;
pub mod live;
mod replay;
mod table;

pub use before::Before;
pub use blocks::Unpaired;
pub use check::{Difference, Replayed};
pub(crate) use chunks::contents_at;
pub use cut::KeepTrace;
pub use disk::OnDisk;
pub use event::{Event, LiveBlock, Operation};
pub use replay::Replay;
