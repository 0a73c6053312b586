//! Pointer → site: one word for every 16 bytes of address space that holds blocks.
//!
//! Two levels: the first has a pair of entries for each 4 MiB region of the 47-bit user space, one
//! for blocks aligned to 16 and one for the few that allocators with tiny classes align to 8 only,
//! so that two blocks never share a word. Leaves are mapped on demand. 0 means: not a block that
//! was recorded.
//!
//! An entry names its region next to its leaf. So where address space is scarce the first level can
//! be short: regions that would share an entry are told apart, and the later one goes without.

use crate::process::{Process, process};
use crate::sys;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

const REGION_BITS: u32 = 22;
const ADDRESS_BITS: u32 = 47;
const LEAF_WORDS: usize = 1 << (REGION_BITS - 4);
const LEAF_BYTES: usize = LEAF_WORDS * size_of::<u32>();
/// Regions of the whole address space, and of a short first level.
const REGIONS: usize = 1 << (ADDRESS_BITS - REGION_BITS);
const REGIONS_SCARCE: usize = 1 << 13;
/// An entry: the leaf's page number below, its region above.
const PAGE_BITS: u32 = 12;
const LEAF_PAGE_BITS: u32 = ADDRESS_BITS - PAGE_BITS;

/// Maps the first level.
pub fn create(p: &Process) -> Option<()> {
    let regions = if p.scarce.load(Relaxed) { REGIONS_SCARCE } else { REGIONS };
    let bytes = regions * 2 * size_of::<u64>();
    let root = sys::map_private(bytes);
    if root.is_null() {
        return None;
    }
    // SAFETY: a fresh mapping; a child makes its own.
    unsafe { sys::advise(root, bytes, sys::MADV_DONTFORK) }.ok()?;
    p.shadow_mask.store(regions - 1, Relaxed);
    p.shadow.store(root as *mut AtomicU64, Relaxed);
    Some(())
}

#[inline(always)]
fn entry(block: *const u8) -> &'static AtomicU64 {
    let p = process();
    let address = block as usize;
    let region = (address >> REGION_BITS) & p.shadow_mask.load(Relaxed);
    let index = region * 2 + ((address >> 3) & 1);
    // SAFETY: masked to the length of the first level, which is mapped while recording.
    unsafe { &*p.shadow.load(Relaxed).add(index) }
}

/// The leaf of a block, if its entry is its region's.
#[inline(always)]
fn leaf(entry: u64, block: *const u8) -> Option<*mut AtomicU32> {
    let same = entry >> LEAF_PAGE_BITS == block as u64 >> REGION_BITS;
    let page = entry & ((1 << LEAF_PAGE_BITS) - 1);
    same.then_some((page << PAGE_BITS) as *mut AtomicU32)
}

#[inline(always)]
fn word(leaf: *mut AtomicU32, block: *const u8) -> &'static AtomicU32 {
    let index = (block as usize >> 4) & (LEAF_WORDS - 1);
    // SAFETY: a leaf has LEAF_WORDS words and is never unmapped.
    unsafe { &*leaf.add(index) }
}

/// Notes the site of a new block; false if there is no memory for it.
#[inline(always)]
pub fn put(block: *const u8, site: u32) -> bool {
    let entry = entry(block);
    let Some(leaf) = leaf(entry.load(Acquire), block).or_else(|| new_leaf(entry, block)) else {
        return false;
    };
    word(leaf, block).store(site, Relaxed);
    true
}

/// The site of a block that is about to be freed, which is then forgotten; 0 if it was not
/// recorded.
#[inline(always)]
pub fn take(block: *const u8) -> u32 {
    let Some(leaf) = leaf(entry(block).load(Acquire), block) else {
        return 0;
    };
    let word = word(leaf, block);
    let site = word.load(Relaxed);
    if site != 0 {
        word.store(0, Relaxed);
    }
    site
}

#[cold]
#[inline(never)]
fn new_leaf(entry: &AtomicU64, block: *const u8) -> Option<*mut AtomicU32> {
    let region = block as u64 >> REGION_BITS;
    let taken = entry.load(Acquire) != 0;
    if taken || region >> (ADDRESS_BITS - REGION_BITS) != 0 || !process().may_map() {
        return None;
    }
    let memory = sys::map_private(LEAF_BYTES);
    if memory.is_null() {
        return None;
    }
    // SAFETY: a fresh mapping. Without DONTFORK a child would only keep address space it does not
    // use.
    let _ = unsafe { sys::advise(memory, LEAF_BYTES, sys::MADV_DONTFORK) };
    let mine = region << LEAF_PAGE_BITS | memory as u64 >> PAGE_BITS;
    if let Err(other) = entry.compare_exchange(0, mine, AcqRel, Acquire) {
        // SAFETY: nobody else saw it.
        unsafe { sys::unmap(memory, LEAF_BYTES) };
        return leaf(other, block);
    }
    Some(memory as *mut AtomicU32)
}
