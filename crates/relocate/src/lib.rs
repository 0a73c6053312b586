//! Moves the first instructions of a function, so that a jump can stand in their place.
//!
//! An entry is patched with a jump ([`jump`]). The instructions that it overwrites are written
//! elsewhere with the same effect ([`relocate`]): what they address relative to themselves is
//! adapted, and a jump back follows. Calls of the moved code run the function as it was. What
//! cannot be moved with certainty is refused.

#![no_std]
#![forbid(unsafe_code)]

mod aarch64;
mod moved;
mod unmovable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as processor;
#[cfg(target_arch = "x86_64")]
use x86_64 as processor;

pub use moved::{MOVED_BYTES_MAX, Moved, STUB_BYTES};
pub use processor::{JUMP_BYTES, REACH, jump, jump_far, pass, relocate};
pub use unmovable::Unmovable;
