//! The recorder within a Rust program: an allocator around the program's own, for programs that no
//! library can be loaded into. Replaces the hooks.
//!
//! Whether it records is decided once, at the first allocation. In a program that is not recorded
//! an event costs a load and a branch. The shape of an event is that of a hook: enter, real call,
//! record. A Rust allocator tells no usable sizes, so a block's is the size that was requested. A
//! table keeps it for callers that know no more than the block's address.

#![no_std]
#![allow(unsafe_code, reason = "it is an allocator")]

mod allocator;
mod choice;
mod exports;
mod front;
mod interface;
mod static_libc;

pub use allocator::Recorder;
pub use interface::interface;
