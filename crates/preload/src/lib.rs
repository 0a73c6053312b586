//! libheaptide.so: records every allocation of the process that loads it. Its functions interpose
//! those of the C library, enter the recorder, and call the real ones.

// Profiles with unwinding, such as those of lints, need a personality function, which std defines.
// The library for programs is built without unwinding and without std.
#![cfg_attr(not(panic = "unwind"), no_std)]
#![allow(unsafe_code, reason = "it replaces functions of the C library")]

mod allocator;
mod arch;
mod attaching;
mod attachment;
mod auxiliary;
mod block_sizes;
mod calls;
mod confinement;
mod driver;
mod driver_lookup;
mod driver_state;
mod driver_table;
mod exec;
mod exec_hooks;
mod exec_target;
mod exports;
mod family;
mod family_calls;
mod front;
mod glibc_heap;
mod hooks;
mod imports;
mod inlined;
mod insertion;
mod intercept;
mod jemalloc;
mod kokkos;
mod limits;
mod loading;
mod malloc;
mod mappings;
mod microtask;
mod mlock;
mod next_symbol;
mod openmp;
mod operators;
mod own_allocator;
mod own_calls;
mod python_allocator;
mod python_wrapping;
mod pytorch;
mod route;
mod statistics;

/// The library's implementation of the recorder's interface.
struct Preload;

// core refers to it without LTO; hidden, so that it does not interpose another definition.
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
    // Nothing panics by design. If a bug causes a panic, this thread stops here, and the others
    // continue.
    loop {
        heaptide_recorder::sys::kernel::sched_yield();
    }
}
