//! The leaves of the shadow table that a lane used last: most blocks are in one of them.

use crate::store::shadow::{REGION_BITS, Table};
use core::sync::atomic::AtomicU32;

/// Leaves that are remembered, by region; a power of two.
const LEAVES: usize = 16;
/// What tells a block's leaf: its region, and the half for blocks aligned to 8 only. With the bits
/// below, an address inside a block has no leaf here, and so no word that lies across two others.
const LEAF_KEY: u64 = !0 << REGION_BITS | 15;

/// A lane's leaves. Their keys and origins lie apart: that takes two instructions less.
#[repr(C)]
pub struct Leaves {
    keys: [u64; LEAVES],
    /// What a quarter of a block's address is added to for that of its word, which has 4 bytes for
    /// 16 of memory. The half of blocks aligned to 8 only has a key and an origin of its own.
    origins: [u64; LEAVES],
}

#[inline(always)]
fn place(block: u64) -> usize {
    (block >> REGION_BITS) as usize % LEAVES
}

impl Leaves {
    /// No leaf is remembered.
    pub fn clear(&mut self) {
        self.keys = [!0; LEAVES];
    }

    /// Returns the shadow word of a block, if its leaf is remembered.
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

    /// Returns the shadow word of a block, and remembers its leaf; none without a leaf.
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

    /// A table, and leaves of which none is remembered.
    fn empty() -> (std::boxed::Box<Table>, Leaves) {
        // SAFETY: zero is a table that was not created.
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
