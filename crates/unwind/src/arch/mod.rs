//! What depends on the processor: registers as unwind tables number them, where a frame's return
//! address is, how a rule is packed, and the kernel's signal frame. Both files define the same items.

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "only its tests run"))]
mod aarch64;
#[cfg(any(not(target_arch = "aarch64"), test))]
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "only its tests run"))]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(not(target_arch = "aarch64"))]
pub use x86_64::*;

/// Where the kernel's signal frame has the registers of what was interrupted: bytes from the stack
/// pointer at which the handler returns.
pub struct SignalFrame {
    /// The frame pointer.
    pub bp: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The interrupted instruction.
    pub pc: u64,
    /// The link register, if there is one.
    pub link: Option<u64>,
}
