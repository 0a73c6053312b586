//! The recorder within a Rust program: an allocator around the program's own, for programs that
//! cannot load a library. It replaces the hooks.
//!
//! Whether it records is decided once, at the first allocation. In a program that is not recorded,
//! an event costs a load and a branch. An event has the shape of a hook: enter, real call, record.
//! A Rust allocator does not report usable sizes, so a block's usable size is the requested one. A
//! table stores it for callers that have only the block's address.

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
