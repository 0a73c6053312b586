//! Processor-specific parts: registers, system calls, and the signal frame with which the kernel
//! restores all registers of a thread. Both files define the same items.

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

/// The registers that unwinding tracks, by their numbers in unwind tables.
pub type Known = calls::Known<UNWOUND>;
/// The state to which a thread returns after its calls.
pub type Before = calls::Before<Registers>;
