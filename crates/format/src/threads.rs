//! Threads that shared a lane one after the other: [`crate::Lane::tid`] is the last of them.

#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A thread that had a lane before another one took it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct FormerThread {
    /// The lane, by index.
    pub lane: u32,
    /// The thread, as the system numbers it.
    pub tid: u32,
}

/// A process has as many of them at most.
pub const FORMER_THREADS_MAX: u32 = 1 << 16;
