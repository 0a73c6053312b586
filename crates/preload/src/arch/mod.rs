//! Entries in assembly. Both files define the same macros, with the same operand names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod target;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
pub use target::Target;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
