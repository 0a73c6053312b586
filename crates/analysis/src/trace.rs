//! Traces: every event of a process, in extents of its profile and in a file beside it.

pub mod file;
pub mod live;
