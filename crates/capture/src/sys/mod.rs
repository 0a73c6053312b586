//! What the process and the kernel offer: system calls, the environment, memory, locks,
//! clocks, the C library and the allocator.

#[cfg(not(embedded))]
pub mod allocator;
pub mod clock;
pub mod confined;
pub mod kernel;
pub mod loader;
pub mod locked;
pub mod memory;
#[cfg_attr(embedded, path = "static_libc.rs")]
pub mod next_symbol;
pub mod options;
pub mod own_stack;
pub mod range;
pub mod rank;

// A program that has the recorder in it brings its own allocator.
#[cfg(embedded)]
pub use crate::hooks::embedded as allocator;
