//! The recorder: what an allocation, a free and every other event do to the profile, a file that is
//! complete at all times.
//!
//! The recorder runs inside the guest. It allocates nothing from the program, takes no lock that
//! the program can hold, prints nothing, and leaves errno and signal masks unchanged. When a
//! resource runs out, it counts the loss and the program continues. It needs no libc function; it
//! looks up those that it can use ([`sys::libc`]).
//!
//! Allocations arrive through a front ([`sys::front`]): `heaptide-preload` hooks functions of the C
//! library, `heaptide-embedded` wraps the allocator of a Rust program.
//!
//! The path from the entry of an allocation to its counters: the front → `event::step`, with a
//! function for each kind of event → `event::fast_path`, or `event::slow_path` and `event::record`
//! → `event::stacks` → `store::sites`, `store::shadow`, `event::peak`. No module calls an earlier
//! one. `store::profile` holds the memory of all records, `event::process` the state that all
//! threads share.

#![no_std]
#![allow(
    unsafe_code,
    reason = "this is the crate that lives among raw pointers; everything else forbids it"
)]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    clippy::new_without_default,
    reason = "only the two fronts use it"
)]

#[cfg(any(test, miri))]
extern crate std;

pub mod api;
pub mod event;
pub mod store;
pub mod sys;
