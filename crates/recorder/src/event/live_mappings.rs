//! The live mappings of the process: the ranges and records that events of mappings change and
//! accounts of resident memory read, under one lock.

use crate::event::stacks_apart::Apart;
use crate::store::mapping_records::Records;
pub use crate::store::mapping_table::Known;
use crate::store::mapping_table::Table;
use crate::sys::kernel::Errno;
use crate::sys::locked::{Held, Locked, holds_any};
use crate::sys::wiped::Wiped;

/// What is known of the mappings of the process. Zero is: none.
pub struct Mappings {
    pub table: Table,
    pub records: Records,
    pub apart: Option<&'static mut Apart>,
    /// The last event made a new peak, and none has lowered it since.
    pub rising: bool,
    /// Bytes mapped and unmapped since the last sample, and samples taken.
    pub since_sample: u64,
    pub samples: u64,
}

// SAFETY: zero is a free lock and mappings of which none is known.
static MAPPINGS: Wiped<Locked<Mappings>> = unsafe { Wiped::new() };

/// Has a forked child find no mappings: those that it inherits are from before its profile.
///
/// Errors: the kernel's.
pub fn wipe_in_children() -> Result<(), Errno> {
    MAPPINGS.wipe_in_children()
}

/// Waits for the mappings; none if another thread holds them for some seconds. The calling thread
/// does not hold them, nor has it interrupted their holder ([`holds_any`]).
pub fn acquire() -> Option<Held<'static, Mappings>> {
    MAPPINGS.get().acquire()
}

/// What is known of an address: the site of the live mapping there and where its range ends, or
/// that there is none and where the next known one begins. None if the table cannot be had now.
pub fn known(address: u64) -> Option<Known> {
    if holds_any() {
        return None;
    }
    known_beside_locks(address)
}

/// The same for a thread that has taken locks of the recorder and held none before.
pub fn known_beside_locks(address: u64) -> Option<Known> {
    acquire().map(|mappings| mappings.table.known(address))
}
