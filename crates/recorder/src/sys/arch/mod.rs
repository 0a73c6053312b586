//! Code that depends on the processor: system calls and their numbers, the registers from which
//! unwinding starts, thread-local storage, clocks, stubs in assembly. Both files define the same
//! items.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("the recorder runs on x86-64 and aarch64");
