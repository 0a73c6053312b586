//! libheaptide.so: records every allocation of the process it is loaded into, in a file that is
//! always complete.
//!
//! A guest: it allocates nothing from the program, takes no lock that the program can hold, prints
//! nothing, leaves errno and signal masks alone, and when something runs out it counts the loss and
//! the program goes on. No libc function is needed to load or run it; those it can use are looked
//! up ([`sys::next_symbol`]).
//!
//! From the entry of an allocation to its counters: [`hooks`] → `event::lane` → `event::fast_path`
//! or `event::record` → `event::stacks` → `store::sites`, `store::shadow`, `event::peak`. The
//! memory it all lies in is `store::profile`; what all threads share is `event::process`.
//!
//! The same sources are the crate `heaptide-embedded` (cfg `embedded`): the recorder within a Rust
//! program, round its allocator, for programs that no library can be loaded into. It has no hooks;
//! `hooks::embedded` replaces them.

// An unwinding profile, as of lints and tests, needs a personality function, which std has. The
// library that is loaded into programs is built without unwinding and without std.
#![cfg_attr(all(not(test), any(embedded, not(panic = "unwind"))), no_std)]
#![cfg_attr(embedded, allow(dead_code, reason = "some of it only hooks of the library use"))]
#![allow(
    unsafe_code,
    reason = "this is the crate that lives among raw pointers; everything else forbids it"
)]

mod api;
mod event;
mod hooks;
mod store;
mod sys;

#[cfg(embedded)]
pub use hooks::embedded::{Recorder, interface};

// Without LTO core refers to it; hidden, so that it stands in front of nobody's.
#[cfg(all(not(embedded), panic = "abort"))]
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "ud2"
);

#[cfg(all(not(embedded), panic = "abort"))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here panics by intent. Whoever gets here by a mistake of ours stays: the other
    // threads go on.
    loop {
        sys::kernel::sched_yield();
    }
}
