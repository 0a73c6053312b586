//! A map from pointers to numbers, with a word for each 16 bytes of address space that holds
//! blocks. One table holds the site of each block, another one labelled blocks.
//!
//! It has two levels. The first has a pair of entries for each region of 4 MiB of the user space:
//! one for blocks aligned to 16, and one for the few blocks that allocators with tiny classes align
//! to 8 only, so that two blocks never share a word. Leaves are mapped on demand. 0 means that no
//! block was recorded.
//!
//! An entry holds its region's number beside its leaf. So the first level can be short where
//! address space is scarce: regions that share an entry are distinguished, and only the first one
//! gets a leaf.

use crate::sys::arch::USER_ADDRESS_BITS as ADDRESS_BITS;
use crate::sys::memory::{self, InChild};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
pub use heaptide_format::live_blocks::REGION_BITS;
use heaptide_format::live_blocks::{LEAF_WORDS, REGION_ENTRY_BYTES, leaf_entry, leaf_of};

const LEAF_BYTES: usize = LEAF_WORDS * size_of::<u32>();
/// Number of regions of the whole address space, and of a short first level.
const REGIONS: usize = 1 << (ADDRESS_BITS - REGION_BITS);
const REGIONS_SCARCE: usize = 1 << 13;

/// The first level, and the mask of its index, as in [`heaptide_format::live_blocks`]. All zeros: a
/// table that was not created.
#[repr(C)]
pub struct Table {
    root: AtomicPtr<AtomicU64>,
    mask: AtomicUsize,
}

impl Table {
    /// Maps the first level, a short one where address space is scarce. Returns none without
    /// memory.
    pub fn create(&self, scarce: bool) -> Option<()> {
        let regions = if scarce { REGIONS_SCARCE } else { REGIONS };
        let bytes = regions * REGION_ENTRY_BYTES as usize;
        let root = memory::take(bytes, InChild::Nothing);
        if root.is_null() {
            return None;
        }
        self.mask.store(regions - 1, Relaxed);
        self.root.store(root as *mut AtomicU64, Relaxed);
        Some(())
    }

    pub fn is_made(&self) -> bool {
        !self.root.load(Relaxed).is_null()
    }

    #[inline(always)]
    fn entry(&self, block: u64) -> &'static AtomicU64 {
        let region = (block as usize >> REGION_BITS) & self.mask.load(Relaxed);
        let index = region * 2 + ((block as usize >> 3) & 1);
        // SAFETY: masked to the length of the first level, which is mapped while recording.
        unsafe { &*self.root.load(Relaxed).wrapping_add(index) }
    }

    /// Returns the word of a block, if its leaf exists.
    #[inline(always)]
    pub fn word(&self, block: *const u8) -> Option<&'static AtomicU32> {
        let block = block as u64;
        leaf(self.entry(block).load(Acquire), block).map(|leaf| word(leaf, block))
    }

    /// Stores the number of a new block. Returns false if there is no memory.
    #[inline(always)]
    pub fn put(&self, block: *const u8, number: u32) -> bool {
        let block = block as u64;
        let entry = self.entry(block);
        let Some(leaf) = leaf(entry.load(Acquire), block).or_else(|| new_leaf(entry, block)) else {
            return false;
        };
        word(leaf, block).store(number, Relaxed);
        true
    }

    /// Removes the number of a block that is about to be freed, and returns it; 0 if it has none.
    #[inline(always)]
    pub fn take(&self, block: *const u8) -> u32 {
        let block = block as u64;
        let Some(leaf) = leaf(self.entry(block).load(Acquire), block) else {
            return 0;
        };
        take_word(word(leaf, block))
    }

    /// Returns the number of the block that begins at `block`; 0 if it has none.
    pub fn get(&self, block: u64) -> u32 {
        leaf(self.entry(block).load(Acquire), block)
            .map_or(0, |leaf| word(leaf, block).load(Relaxed))
    }

    /// Returns whether a block begins in a range of pages. The search is short: it covers blocks
    /// that begin in the first pages, or, as large blocks do, shortly after the start of a page.
    pub fn has_blocks(&self, low: u64, high: u64) -> bool {
        const PAGE: u64 = 4096;
        const WHOLE: u64 = 4 * PAGE;
        const PAGES: usize = 1024;
        // Sizes of the headers before blocks, or before the first of several in a row.
        const HEADERS: [u64; 6] = [0, 16, 32, 64, 128, 256];
        let begins = |cell: u64| self.get(cell) != 0 || self.get(cell | 8) != 0;
        let is_in_use = |cell: u64| self.entry(cell).load(Acquire) != 0;
        let whole = low..high.min(low + WHOLE);
        if (is_in_use(low) || is_in_use(whole.end)) && whole.step_by(16).any(begins) {
            return true;
        }
        let mut page = low;
        for _ in 0..PAGES {
            if page >= high {
                return false;
            }
            if !is_in_use(page) {
                page = ((page >> REGION_BITS) + 1) << REGION_BITS;
                continue;
            }
            if HEADERS.into_iter().any(|offset| begins(page + offset)) {
                return true;
            }
            page += PAGE;
        }
        false
    }

    /// Returns the last block that begins at or before `address` and not before `least`, and its
    /// number. Parts of the address space in which no block ever began cost a step for each 4 MiB.
    pub fn last_before(&self, address: u64, least: u64) -> Option<(u64, u32)> {
        let mut cell = address & !15;
        loop {
            let halves = [cell | 8, cell].map(|half| self.entry(half).load(Acquire));
            if halves == [0, 0] {
                let region = cell >> REGION_BITS;
                cell = (region << REGION_BITS).checked_sub(16)?;
            } else {
                for start in [cell | 8, cell] {
                    let number = self.get(start);
                    if number != 0 && start <= address {
                        return (start >= least).then_some((start, number));
                    }
                }
                cell = cell.checked_sub(16)?;
            }
            if cell + 16 <= least {
                return None;
            }
        }
    }
}

/// Takes the value out of `word`, leaving 0.
#[inline(always)]
pub fn take_word(word: &AtomicU32) -> u32 {
    let number = word.load(Relaxed);
    if number != 0 {
        word.store(0, Relaxed);
    }
    number
}

/// Returns the leaf of a block, if the entry belongs to the block's region.
#[inline(always)]
fn leaf(entry: u64, block: u64) -> Option<*mut AtomicU32> {
    leaf_of(entry, block >> REGION_BITS, ADDRESS_BITS).map(|leaf| leaf as *mut AtomicU32)
}

#[inline(always)]
fn word(leaf: *mut AtomicU32, block: u64) -> &'static AtomicU32 {
    let index = (block as usize >> 4) & (LEAF_WORDS - 1);
    // SAFETY: a leaf has LEAF_WORDS words and is never unmapped.
    unsafe { &*leaf.wrapping_add(index) }
}

#[cold]
#[inline(never)]
fn new_leaf(entry: &AtomicU64, block: u64) -> Option<*mut AtomicU32> {
    let region = block >> REGION_BITS;
    let taken = entry.load(Acquire) != 0;
    if taken || region >> (ADDRESS_BITS - REGION_BITS) != 0 {
        return None;
    }
    let memory = memory::take(LEAF_BYTES, InChild::Nothing);
    if memory.is_null() {
        return None;
    }
    let mine = leaf_entry(region, memory as u64, ADDRESS_BITS);
    if let Err(other) = entry.compare_exchange(0, mine, AcqRel, Acquire) {
        // SAFETY: no other thread has seen it.
        unsafe { memory::release(memory, LEAF_BYTES, InChild::Nothing) };
        return leaf(other, block);
    }
    Some(memory as *mut AtomicU32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 0x7f12_3456_7890;
    const REGION: u64 = 1 << REGION_BITS;

    fn at(address: u64) -> *const u8 {
        address as *const u8
    }

    fn table(scarce: bool) -> Table {
        let table = Table { root: AtomicPtr::default(), mask: AtomicUsize::new(0) };
        assert!(!table.is_made());
        table.create(scarce).expect("address space");
        table
    }

    #[test]
    fn a_block_has_its_number_until_it_is_taken() {
        let table = table(false);
        assert!(table.put(at(BLOCK), 5) && table.put(at(BLOCK + 16), 6));
        // Aligned to 8 only, by an allocator with tiny blocks.
        assert!(table.put(at(BLOCK + 8), 7));
        assert_eq!([0, 8, 16, 24].map(|n| table.get(BLOCK + n)), [5, 7, 6, 0]);
        assert_eq!((table.take(at(BLOCK)), table.take(at(BLOCK))), (5, 0));
        assert_eq!(table.take(at(BLOCK + REGION)), 0);
        assert!(table.word(at(BLOCK + REGION)).is_none());
    }

    #[test]
    fn the_lowest_region_is_empty_at_first_and_has_a_place() {
        let table = table(false);
        let low = 0x32_92a0; // the heap of a program that is linked at 2 MiB
        assert_eq!((table.get(low), table.take(at(low))), (0, 0));
        assert!(table.word(at(low)).is_none());
        assert!(table.put(at(low), 3));
        assert_eq!((table.get(low), table.last_before(low + 8, 0)), (3, Some((low, 3))));
    }

    /// On aarch64, kernels with pages of 4 KiB map at addresses of 48 bits.
    #[test]
    fn the_highest_addresses_have_a_place() {
        let highest = if cfg!(target_arch = "aarch64") { 0xffff_9d00_4560 } else { BLOCK };
        let table = table(false);
        assert!(table.put(at(highest), 9));
        assert_eq!((table.get(highest), table.take(at(highest))), (9, 9));
    }

    #[test]
    fn addresses_of_the_kernel_have_no_place() {
        let table = table(false);
        assert!(!table.put(at(1 << ADDRESS_BITS), 1));
        assert_eq!(table.get(1 << ADDRESS_BITS), 0);
    }

    /// mimalloc 3 has a header of 128 bytes in front of blocks of equal sizes.
    #[test]
    fn blocks_behind_a_header_are_found() {
        let table = table(false);
        let low = BLOCK & !0xffff;
        for header in [0, 16, 32, 64, 128, 256] {
            assert!(!table.has_blocks(low, low + REGION));
            let block = low + 0x9_0000 + header;
            assert!(table.put(at(block), 1) && table.has_blocks(low, low + REGION), "{header}");
            assert!(!table.has_blocks(low, low + 0x9_0000));
            assert_eq!(table.take(at(block)), 1);
        }
    }

    #[test]
    fn the_last_block_before_an_address_is_found_over_empty_regions() {
        let table = table(false);
        let far = BLOCK + 3 * REGION;
        assert!(table.put(at(BLOCK), 1) && table.put(at(far), 2));
        assert_eq!(table.last_before(far + 100, 0), Some((far, 2)));
        assert_eq!(table.last_before(far - 1, 0), Some((BLOCK, 1)));
        assert_eq!(table.last_before(far - 1, BLOCK), Some((BLOCK, 1)));
        assert_eq!(table.last_before(far - 1, BLOCK + 1), None);
    }

    #[test]
    fn where_space_is_scarce_the_later_of_two_regions_goes_without() {
        let table = table(true);
        let same_entry = BLOCK + REGIONS_SCARCE as u64 * REGION;
        assert!(table.put(at(BLOCK), 1));
        assert!(!table.put(at(same_entry), 2));
        assert_eq!((table.get(BLOCK), table.get(same_entry)), (1, 0));
    }
}
