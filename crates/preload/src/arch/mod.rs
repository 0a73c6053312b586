//! Entries in assembly. Both files define the same macros, with the same operand names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

/// The target of a direct call or jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The address of code.
    Code(u64),
    /// The address of a word that contains that of code.
    Slot(u64),
}
