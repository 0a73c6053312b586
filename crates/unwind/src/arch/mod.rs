//! Processor-specific parts: register numbers of unwind tables, the location of a frame's return
//! address, the packing of rules, and the kernel's signal frame. Both files define the same items.

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "only its tests run"))]
mod aarch64;
mod signal_frame;
#[cfg(any(not(target_arch = "aarch64"), test))]
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "only its tests run"))]
mod x86_64;

pub use signal_frame::SignalFrame;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(not(target_arch = "aarch64"))]
pub use x86_64::*;
