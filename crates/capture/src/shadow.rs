//! Pointer → site: one word for every 16 bytes of address space that holds blocks.
//!
//! Two levels: the first has a pair of leaves for each 64 MiB of the 47-bit user space, one for blocks aligned
//! to 16 and one for the few that allocators with tiny classes align to 8 only, so that two blocks never share
//! a word. Leaves are mapped on demand. 0 means: not a block that was recorded.

use crate::process::{Process, process};
use crate::sys;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU32};

const LEAF_BITS: u32 = 26;
const ADDRESS_BITS: u32 = 47;
const LEAF_WORDS: usize = 1 << (LEAF_BITS - 4);
const ROOT_ENTRIES: usize = 2 << (ADDRESS_BITS - LEAF_BITS);

/// Maps the first level.
pub fn create(p: &Process) -> Option<()> {
    let bytes = ROOT_ENTRIES * size_of::<usize>();
    let root = sys::map_private(bytes);
    if root.is_null() {
        return None;
    }
    // SAFETY: a fresh mapping; a child makes its own.
    unsafe { sys::advise(root, bytes, sys::MADV_DONTFORK) }.ok()?;
    p.shadow.store(root as *mut AtomicPtr<AtomicU32>, Relaxed);
    Some(())
}

#[inline(always)]
fn entry(block: *const u8) -> Option<&'static AtomicPtr<AtomicU32>> {
    let address = block as usize;
    if address >> ADDRESS_BITS != 0 {
        return None;
    }
    let index = (address >> LEAF_BITS) * 2 + ((address >> 3) & 1);
    // SAFETY: the index is below ROOT_ENTRIES for a 47-bit address, and the root is mapped while recording.
    Some(unsafe { &*process().shadow.load(Relaxed).add(index) })
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
    let Some(entry) = entry(block) else {
        return false;
    };
    let mut leaf = entry.load(Acquire);
    if leaf.is_null() {
        leaf = new_leaf(entry);
        if leaf.is_null() {
            return false;
        }
    }
    word(leaf, block).store(site, Relaxed);
    true
}

/// The site of a block that is about to be freed, which is then forgotten; 0 if it was not recorded.
#[inline(always)]
pub fn take(block: *const u8) -> u32 {
    let Some(entry) = entry(block) else { return 0 };
    let leaf = entry.load(Acquire);
    if leaf.is_null() {
        return 0;
    }
    let word = word(leaf, block);
    let site = word.load(Relaxed);
    if site != 0 {
        word.store(0, Relaxed);
    }
    site
}

#[cold]
#[inline(never)]
fn new_leaf(entry: &AtomicPtr<AtomicU32>) -> *mut AtomicU32 {
    const BYTES: usize = LEAF_WORDS * size_of::<u32>();
    if !process().may_map() {
        return core::ptr::null_mut();
    }
    let leaf = sys::map_private(BYTES) as *mut AtomicU32;
    if leaf.is_null() {
        return leaf;
    }
    // SAFETY: a fresh mapping. Without DONTFORK a child would only keep address space it does not use.
    let _ = unsafe { sys::advise(leaf as *mut u8, BYTES, sys::MADV_DONTFORK) };
    match entry.compare_exchange(core::ptr::null_mut(), leaf, AcqRel, Acquire) {
        Ok(_) => leaf,
        Err(other) => {
            // SAFETY: nobody else saw it.
            unsafe { sys::unmap(leaf as *mut u8, BYTES) };
            other
        }
    }
}
