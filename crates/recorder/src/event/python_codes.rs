//! The code objects of Python of which the recorder has read names. It has to notice when one of
//! them is gone: another block at the same address is another object.

use crate::store::budgets::PYTHON_CODES_MAX as SLOTS_MAX;
use crate::sys::locked::Locked;
use crate::sys::memory::{self, InChild};
use crate::sys::wiped::Wiped;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Size of the smallest code objects in bytes; smaller blocks hold none.
const LEAST: u64 = 160;
/// Slots of the first table; each further one has twice as many.
const SLOTS_FIRST: usize = 1024;
/// Bytes in front of a table; their last word holds its length.
const HEAD: usize = 64;
/// Number of versions, which addresses share; a power of two.
const VERSIONS: usize = 1024;
/// Marks the slot of an address that was removed.
const REMOVED: u64 = 1;

/// The addresses, in a table with open addressing, and how often one of them turned out to be
/// another object: in all, and by address. All zeros: none.
struct Codes {
    table: AtomicPtr<AtomicU64>,
    generation: AtomicU32,
    versions: [AtomicU32; VERSIONS],
    /// Number of slots that are not free.
    used: Locked<usize>,
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static CODES: Wiped<Codes> = unsafe { Wiped::new() };

/// Makes forked children start without code objects.
pub fn wipe_in_children() {
    CODES.wipe_in_children();
}

/// Returns a number that changes when cached data of any code object becomes invalid.
#[inline(always)]
pub fn generation() -> u32 {
    CODES.get().generation.load(Acquire)
}

/// Returns a number that changes when cached data of a code object becomes invalid.
#[inline(always)]
pub fn version(code: u64) -> u32 {
    CODES.get().versions[place(code) & (VERSIONS - 1)].load(Relaxed)
}

/// Notes a new block. A code object that was at its address is gone.
#[inline(always)]
pub fn block_begins(block: *mut u8, requested: u64) {
    if requested >= LEAST && holds(block as u64) {
        replace(block as u64);
    }
}

/// Invalidates the cached data of all code objects, for when new blocks are not seen.
#[cold]
pub fn forget_all() {
    let codes = CODES.get();
    for version in &codes.versions {
        version.fetch_add(1, Relaxed);
    }
    codes.generation.fetch_add(1, Release);
}

#[inline(always)]
fn slots() -> &'static [AtomicU64] {
    let table = CODES.get().table.load(Acquire);
    if table.is_null() {
        return &[];
    }
    // SAFETY: tables are never unmapped; their length is stored in front of them.
    unsafe { core::slice::from_raw_parts(table, *(table as *const usize).sub(1)) }
}

/// Returns the slot of an address, or the free slot for it.
#[inline(always)]
fn find(slots: &'static [AtomicU64], address: u64) -> Option<&'static AtomicU64> {
    let mask = slots.len().checked_sub(1)?;
    let mut at = place(address);
    loop {
        // At most half of the slots are in use.
        let slot = slots.get(at & mask)?;
        let known = slot.load(Relaxed);
        if known == address || known == 0 {
            return Some(slot);
        }
        at += 1;
    }
}

#[inline(always)]
fn holds(address: u64) -> bool {
    find(slots(), address).is_some_and(|slot| slot.load(Relaxed) == address)
}

/// Notes that another block is at the address of a code object.
#[cold]
#[inline(never)]
fn replace(address: u64) {
    let codes = CODES.get();
    let held = codes.used.acquire();
    if let Some(slot) = find(slots(), address).filter(|slot| slot.load(Relaxed) == address) {
        slot.store(REMOVED, Relaxed);
    }
    codes.versions[place(address) & (VERSIONS - 1)].fetch_add(1, Relaxed);
    codes.generation.fetch_add(1, Release);
    drop(held);
}

/// Adds a code object. Returns false if there is no room.
pub fn insert(address: u64) -> bool {
    let Some(mut used) = CODES.get().used.acquire() else {
        return false;
    };
    if *used * 2 >= slots().len() && !enlarge(&mut used) {
        return false;
    }
    let Some(slot) = find(slots(), address) else {
        return false;
    };
    if slot.load(Relaxed) == address {
        return true;
    }
    // The slot of a removed address is reused, which takes no free slot.
    match find_removed(slots(), address) {
        Some(removed) => removed.store(address, Relaxed),
        None => {
            slot.store(address, Relaxed);
            *used += 1;
        }
    }
    true
}

/// Returns the first slot of a removed address on the way to the free slot for `address`.
fn find_removed(slots: &'static [AtomicU64], address: u64) -> Option<&'static AtomicU64> {
    let start = place(address);
    let way = (0..slots.len()).map(|step| &slots[(start + step) & (slots.len() - 1)]);
    let mut way = way.take_while(|slot| slot.load(Relaxed) != 0);
    way.find(|slot| slot.load(Relaxed) == REMOVED)
}

/// Returns where the search for an address begins.
#[inline(always)]
fn place(address: u64) -> usize {
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 32
}

fn enlarge(used: &mut usize) -> bool {
    let old = slots();
    let live = old.iter().map(|slot| slot.load(Relaxed)).filter(|&address| address > REMOVED);
    // If most slots are of removed addresses, a table of the same size suffices.
    let length = (live.clone().count() * 4).next_power_of_two().max(SLOTS_FIRST);
    if length > SLOTS_MAX {
        return false;
    }
    let memory = memory::take(length * size_of::<AtomicU64>() + HEAD, InChild::Nothing);
    if memory.is_null() {
        return false;
    }
    // SAFETY: fresh zeroed memory: a length in front, then free slots.
    let (table, new) = unsafe {
        let table = memory.add(HEAD) as *mut AtomicU64;
        *(table as *mut usize).sub(1) = length;
        (table, core::slice::from_raw_parts(table, length))
    };
    *used = 0;
    for address in live {
        if let Some(slot) = find(new, address) {
            slot.store(address, Relaxed);
            *used += 1;
        }
    }
    // The old table stays: other threads may be reading it.
    CODES.get().table.store(table, Release);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_until_another_block_is_there() {
        let block = |i: u64| (0x7000_0000 + i * 208) as *mut u8;
        for i in 0..5000 {
            assert!(insert(block(i) as u64));
            assert!(insert(block(i) as u64), "twice");
        }
        let before = generation();
        block_begins(block(5000), 1000);
        block_begins(block(7), LEAST - 1);
        assert_eq!(generation(), before, "no code object's, or too small");
        for i in 0..5000 {
            block_begins(block(i), LEAST);
            block_begins(block(i), LEAST);
        }
        assert_eq!(generation(), before + 5000, "each once");
        assert!(insert(block(7) as u64) && holds(block(7) as u64));
    }
}
