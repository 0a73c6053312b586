//! What depends on the processor: registers, system calls, and the frame of a signal, which has the
//! kernel put all registers of a thread back. Both files define the same items.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod calls;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
pub use calls::{Call, Places, result};
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

/// The registers that frames are found with, by their numbers in unwind tables.
pub type Known = calls::Known<UNWOUND>;
/// What a thread is to return to, once it has done what it is asked to.
pub type Before = calls::Before<Registers>;
