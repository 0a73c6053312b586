//! A lane's cache of leaves of the shadow table: most blocks are in one of the last leaves.

use crate::store::shadow::{REGION_BITS, Table};
use core::sync::atomic::AtomicU32;

/// Number of cached leaves, by region; a power of two.
const LEAVES: usize = 16;
/// The address bits that identify a block's leaf: its region, and bit 3, which separates the half
/// for blocks aligned to 8 only. With the bits below, an address inside a block never has a leaf
/// here, and so no word that overlaps two others.
const LEAF_KEY: u64 = !0 << REGION_BITS | 15;

/// A lane's leaves. Keys and origins are in separate arrays, which saves two instructions.
#[repr(C)]
pub struct Leaves {
    keys: [u64; LEAVES],
    /// The address of a block's word is a quarter of the block's address plus this, since a word of
    /// 4 bytes stands for 16 bytes of memory. The half for blocks aligned to 8 only has its own key
    /// and origin.
    origins: [u64; LEAVES],
}

#[inline(always)]
fn place(block: u64) -> usize {
    (block >> REGION_BITS) as usize % LEAVES
}

impl Leaves {
    /// Empties the cache.
    pub fn clear(&mut self) {
        self.keys = [!0; LEAVES];
    }

    /// Returns the shadow word of a block, if its leaf is cached.
    #[inline(always)]
    pub fn word(&self, block: *const u8) -> Option<&'static AtomicU32> {
        let block = block as u64;
        let place = place(block);
        if self.keys[place] != block & LEAF_KEY {
            return None;
        }
        let address = self.origins[place].wrapping_add(block >> 2);
        // SAFETY: leaves are never unmapped, and the block is in this one.
        Some(unsafe { &*(address as *const AtomicU32) })
    }

    /// Returns the shadow word of a block, and caches its leaf; none without a leaf.
    #[inline(always)]
    pub fn find(&mut self, table: &Table, block: *const u8) -> Option<&'static AtomicU32> {
        if let Some(word) = self.word(block) {
            return Some(word);
        }
        let word = table.word(block)?;
        let block = block as u64;
        self.keys[place(block)] = block & LEAF_KEY;
        self.origins[place(block)] = (word.as_ptr() as u64).wrapping_sub(block >> 2);
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    /// Returns a table and an empty cache.
    fn empty() -> (std::boxed::Box<Table>, Leaves) {
        // SAFETY: all zeros is a table that was not created.
        let table = unsafe { std::boxed::Box::<Table>::new_zeroed().assume_init() };
        table.create(true).expect("memory");
        let mut leaves = Leaves { keys: [0; LEAVES], origins: [0; LEAVES] };
        leaves.clear();
        (table, leaves)
    }

    fn block(address: usize) -> *const u8 {
        core::ptr::without_provenance(address)
    }

    #[test]
    fn a_leaf_is_remembered_once_it_was_found() {
        let (table, mut leaves) = empty();
        let first = block(0x7f00_0000_0010);
        assert!(leaves.word(first).is_none() && leaves.find(&table, first).is_none());
        assert!(table.put(first, 5));
        assert_eq!(leaves.find(&table, first).map(|word| word.load(Relaxed)), Some(5));
        assert!(table.put(block(0x7f00_0000_0100), 6));
        let near = leaves.word(block(0x7f00_0000_0100));
        assert_eq!(near.map(|word| word.load(Relaxed)), Some(6), "of the same leaf");
        assert!(leaves.word(block(0x7f00_0000_0108)).is_none(), "aligned to 8: another leaf");
        assert!(leaves.word(block(0x7f00_0040_0010)).is_none(), "another region");
        for inside in 1..16 {
            assert!(leaves.word(block(0x7f00_0000_0010 + inside)).is_none(), "inside a block");
        }
    }
}
