//! The recorder: what an allocation, a free and every other event do to the profile, which is a
//! file that is always complete.
//!
//! A guest: it allocates nothing from the program, takes no lock that the program can hold, prints
//! nothing, leaves errno and signal masks alone, and when something runs out it counts the loss and
//! the program continues. No libc function is needed; those it can use are looked up
//! ([`sys::libc`]).
//!
//! How allocations come in is the matter of a front ([`sys::front`]): `heaptide-preload` has hooks
//! for the functions of the C library, `heaptide-embedded` wraps the allocator of a Rust program.
//!
//! From the entry of an allocation to its counters: the front → `event::lane` → `event::fast_path`
//! or `event::record` → `event::stacks` → `store::sites`, `store::shadow`, `event::peak`. The
//! memory it all lies in is `store::profile`; what all threads share is `event::process`.

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
