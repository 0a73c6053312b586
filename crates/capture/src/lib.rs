//! libheaptide.so: records every allocation of the process it is loaded into, in a file that is
//! always complete.
//!
//! A guest: it allocates nothing from the program, takes no lock that the program can hold, prints
//! nothing, leaves errno and signal masks alone, and when something runs out it counts the loss and
//! the program goes on. No libc function is needed to load or run it; those it can use are looked
//! up ([`real`]).
//!
//! From the entry of an allocation to its counters: [`hooks`] → [`lane`] → [`record`] → [`stacks`]
//! → [`sites`], [`shadow`], [`peak`]. The memory it all lies in is [`profile`]; what all threads
//! share is [`process`].
//!
//! The same sources are the crate `heaptide-embedded` (cfg `embedded`): the recorder within a Rust
//! program, round its allocator, for programs that no library can be loaded into. It has no hooks;
//! what stands in their place is [`embedded`].

// An unwinding profile, as of lints and tests, needs a personality function, which std has. The
// library that is loaded into programs is built without unwinding and without std.
#![cfg_attr(all(not(test), any(embedded, not(panic = "unwind"))), no_std)]
#![cfg_attr(embedded, allow(dead_code, reason = "some of it only hooks of the library use"))]
#![allow(
    unsafe_code,
    reason = "this is the crate that lives among raw pointers; everything else forbids it"
)]

mod attended;
#[cfg(not(embedded))]
mod confinement;
mod control;
#[cfg(embedded)]
mod embedded;
mod end;
#[cfg(not(embedded))]
mod exec;
#[cfg(not(embedded))]
mod exec_hooks;
#[cfg(not(embedded))]
mod extended;
mod figures;
#[cfg(not(embedded))]
mod hooks;
mod index;
mod interface;
mod lane;
mod ledger;
#[cfg(not(embedded))]
mod limits;
#[cfg(embedded)]
mod linked;
mod loader;
mod locked;
#[cfg(not(embedded))]
mod locking;
mod measurements;
mod memory;
mod modules;
mod moments;
mod monitors;
mod names;
#[cfg(not(embedded))]
mod operators;
mod options;
mod own_stack;
mod peak;
mod process;
mod profile;
mod rank;
#[cfg(not(embedded))]
mod real;
mod record;
mod regions;
mod scopes;
mod shadow;
mod sites;
mod stacks;
mod sys;
#[cfg(not(embedded))]
mod target;
mod timeline;
mod tls;
mod trace;
mod usual;
#[cfg(not(embedded))]
mod watched;
mod windows;

#[cfg(embedded)]
pub use embedded::{Recorder, interface};
// What stands here for hooks and the functions behind them.
#[cfg(embedded)]
use {embedded as hooks, linked as real};

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
        sys::sched_yield();
    }
}
