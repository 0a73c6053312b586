//! Threads that used a lane one after the other: [`crate::Lane::tid`] is the last of them.

#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A thread that used a lane before another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct FormerThread {
    /// The lane, by index.
    pub lane: u32,
    /// The thread id.
    pub tid: u32,
}

/// The most such threads of a process.
pub const FORMER_THREADS_MAX: u32 = 1 << 16;
