//! The live mappings of the process: the ranges and records that events of mappings change and
//! accounts of resident memory read, under one lock.

use crate::event::outside_heap::OutsideHeap;
pub use crate::store::mapping_table::Known;
use crate::store::mapping_table::Table;
use crate::sys::locked::{Held, Locked, holds_any};
use crate::sys::wiped::Wiped;

/// The known mappings of the process. All zeros: none.
pub struct Mappings {
    pub table: Table,
    pub counted: OutsideHeap,
}

// SAFETY: all zeros is a free lock and no mappings.
#[unsafe(link_section = ".bss.wiped")]
static MAPPINGS: Wiped<Locked<Mappings>> = unsafe { Wiped::new() };

/// Makes forked children start without mappings: those that they inherit precede their profile.
pub fn wipe_in_children() {
    MAPPINGS.wipe_in_children();
}

/// Waits for the mappings; none if another thread holds them for some seconds. The calling thread
/// must not hold them, nor have interrupted their holder ([`holds_any`]).
pub fn acquire() -> Option<Held<'static, Mappings>> {
    MAPPINGS.get().acquire()
}

/// Returns the site of the live mapping at an address and the end of its range, or no site and the
/// start of the next known mapping. None if the table is not available now.
pub fn known(address: u64) -> Option<Known> {
    if holds_any() {
        return None;
    }
    known_beside_locks(address)
}

/// Does the same for a thread that has taken locks of the recorder now and held none before.
pub fn known_beside_locks(address: u64) -> Option<Known> {
    acquire().map(|mappings| mappings.table.known(address))
}
