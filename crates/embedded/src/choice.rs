//! Whether the program is recorded: decided once, at its first allocation.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Unknown changes to Forward or Record at the first allocation. A forked child inherits it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Choice {
    Unknown = 0,
    /// No recording was requested, or the library makes it.
    Forward = 1,
    Record = 2,
}

pub static CHOICE: AtomicU32 = AtomicU32::new(Choice::Unknown as u32);

#[inline(always)]
pub fn is(choice: Choice) -> bool {
    CHOICE.load(Relaxed) == choice as u32
}
