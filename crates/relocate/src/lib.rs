//! Moves the first instructions of a function, so that a jump can replace them.
//!
//! A function's entry is patched with a jump ([`jump`]). The overwritten instructions are written
//! to another address with the same effect ([`relocate`]): operands relative to the instruction
//! pointer are adapted, and a jump back follows. A call of the moved code runs the original
//! function. Functions that cannot be moved safely are rejected.

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
