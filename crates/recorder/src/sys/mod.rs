//! Services of the process and the kernel: system calls, the environment, memory, locks, clocks,
//! the C library, and the front through which allocations arrive.

pub mod arch;
pub mod child;
pub mod clock;
pub mod confined;
pub mod exec_calls;
pub mod executed;
pub mod front;
pub mod kernel;
pub mod libc;
pub mod loader;
pub mod locked;
pub mod maps;
pub mod memory;
pub mod object;
pub mod options;
pub mod own_stack;
pub mod program_headers;
pub mod range;
pub mod rank;
pub mod replaced;
pub mod smaps;
pub mod socket;
pub mod text;
pub mod tls;
pub mod unloading;
pub mod versions;
pub mod wiped;
