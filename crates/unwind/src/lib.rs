//! Registers and stack words to frames, for a recorder that lives in the program it unwinds.
//!
//! - [`table`] turns one row of an unwind table into a packed [`Rule`];
//! - [`cache`] keeps rules by pc, insert-only, for all threads;
//! - [`kept`] has the stack that a thread had last, and what proves that it still has it;
//! - [`stack`] steps by rules and reuses what the kept stack has in common with this one;
//! - [`memo`] recognises inner ends of stacks that were seen some time ago;
//! - [`python`] has the offsets of interpreter frames, and decodes line tables;
//! - [`tree`] interns stacks as paths of an insert-only tree shared by all threads.
//!
//! Nothing here allocates, locks, or touches memory itself: the caller reads stack words
//! ([`stack::Machine`]) and lends the tables. x86-64 and aarch64 ([`arch`]).

#![no_std]
#![forbid(unsafe_code)]

pub mod arch;
pub mod cache;
pub mod kept;
pub mod memo;
pub mod python;
pub mod rule;
pub mod stack;
pub mod step;
pub mod table;
pub mod tree;

pub use rule::Rule;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic;
#[cfg(loom)]
pub(crate) use loom::sync::atomic;
