//! Unwinds the stack, from registers and stack words to frames, for a recorder in the same process.
//!
//! - [`table`] converts one row of an unwind table to a packed [`Rule`];
//! - [`index`] searches sections that have no search table, such as `.debug_frame`;
//! - [`cache`] is an insert-only table of rules by pc, for all threads;
//! - [`kept`] holds the last stack of a thread, and the words that prove that it is still current;
//! - [`stack`] steps by rules, and reuses the part of the kept stack that is unchanged;
//! - [`memo`] recognises inner ends of stacks that were seen earlier;
//! - [`python`] has the offsets of interpreter frames, and decodes line tables;
//! - [`tree`] interns stacks as paths of an insert-only tree, shared by all threads.
//!
//! Nothing here allocates, locks, or accesses memory itself: the caller reads stack words
//! ([`stack::Machine`]) and provides the tables. Supports x86-64 and aarch64 ([`arch`]).

#![no_std]
#![forbid(unsafe_code)]

pub mod arch;
pub mod cache;
pub mod index;
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
