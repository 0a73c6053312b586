//! libheaptide.so: records every allocation of the process it is loaded into. Its functions stand
//! in front of those of the C library, enter the recorder, and call the real ones.

// An unwinding profile, as of lints, needs a personality function, which std has. The library that
// is loaded into programs is built without unwinding and without std.
#![cfg_attr(not(panic = "unwind"), no_std)]
#![allow(unsafe_code, reason = "it replaces functions of the C library")]

mod allocator;
mod arch;
mod attaching;
mod attachment;
mod auxiliary;
mod calls;
mod confinement;
mod exec;
mod exec_hooks;
mod exec_target;
mod exports;
mod family;
mod front;
mod hooks;
mod imports;
mod intercept;
mod jemalloc;
mod limits;
mod malloc;
mod mappings;
mod mlock;
mod next_symbol;
mod operators;
mod own_allocator;
mod route;
mod statistics;

use heaptide_recorder::event::{exit, start};

/// The library as the recorder sees it.
struct Preload;

/// Runs once the library is loaded: a program that never allocates has a profile too.
extern "C" fn loaded() {
    next_symbol::note_loading();
    start::start_early::<Preload>();
    exit::register();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

// Without LTO core refers to it; hidden, so that it stands in front of nobody's.
#[cfg(panic = "abort")]
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    arch::trap!()
);

#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing panics by intent. A thread that does so by a mistake of ours stops here; the others
    // continue.
    loop {
        heaptide_recorder::sys::kernel::sched_yield();
    }
}
