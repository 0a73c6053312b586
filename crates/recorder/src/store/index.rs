//! A hash table with open addressing that maps keys of some words to numbers. Each lane has its
//! own, of the records that it has made.

use crate::sys::memory::{self, InChild};

/// A table that is at most half full. It takes no memory until the first insertion.
#[repr(C)]
pub struct Index<const WORDS: usize> {
    entries: *mut Entry<WORDS>,
    capacity: usize,
    used: usize,
}

/// A key and its number; 0 if the entry is free.
type Entry<const WORDS: usize> = ([u32; WORDS], u32);

impl<const WORDS: usize> Index<WORDS> {
    const LEAST: usize = 512;

    fn slot(&self, key: [u32; WORDS]) -> *mut Entry<WORDS> {
        let mut hash = 0u64;
        for word in key {
            hash = (hash.rotate_left(21) ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let mut i = (hash >> 32) as usize;
        loop {
            let entry = self.entries.wrapping_add(i & (self.capacity - 1));
            // SAFETY: masked to the capacity; the table is never full, so the search ends.
            let (known, number) = unsafe { *entry };
            if known == key || number == 0 {
                return entry;
            }
            i += 1;
        }
    }

    /// Returns the number of a key, or 0.
    #[inline(always)]
    pub fn get(&self, key: [u32; WORDS]) -> u32 {
        if self.capacity == 0 {
            return 0;
        }
        // SAFETY: `slot` returns an entry of the table: the key's, or a free one, whose number is
        // 0.
        unsafe { (*self.slot(key)).1 }
    }

    /// Inserts a key. Returns false if there is no memory.
    pub fn insert(&mut self, key: [u32; WORDS], number: u32) -> bool {
        if self.used * 2 >= self.capacity && !self.enlarge() {
            return false;
        }
        // SAFETY: `slot` returns an entry of the table.
        unsafe { *self.slot(key) = (key, number) };
        self.used += 1;
        true
    }

    fn enlarge(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(Index::<WORDS>::LEAST);
        let bytes = |capacity: usize| capacity * size_of::<Entry<WORDS>>();
        let memory = memory::take(bytes(capacity), InChild::Nothing);
        if memory.is_null() {
            return false;
        }
        let old = Index::<WORDS> { entries: self.entries, capacity: self.capacity, used: 0 };
        self.entries = memory as *mut Entry<WORDS>;
        self.capacity = capacity;
        for i in 0..old.capacity {
            // SAFETY: within the old table.
            let (key, number) = unsafe { *old.entries.wrapping_add(i) };
            if number != 0 {
                // SAFETY: `slot` returns an entry of the new table.
                unsafe { *self.slot(key) = (key, number) };
            }
        }
        if old.capacity > 0 {
            let entries = old.entries as *mut u8;
            // SAFETY: only the lane's thread uses its index.
            unsafe { memory::release(entries, bytes(old.capacity), InChild::Nothing) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u32 = if cfg!(miri) { 1_000 } else { 10_000 };

    fn key(i: u32) -> [u32; 2] {
        [i / 100, i % 100]
    }

    #[test]
    fn every_key_has_its_number() {
        let mut index = Index::<2> { entries: core::ptr::null_mut(), capacity: 0, used: 0 };
        assert_eq!(index.get(key(0)), 0);
        for i in 0..KEYS {
            assert!(index.insert(key(i), i + 1));
        }
        assert!((0..KEYS).all(|i| index.get(key(i)) == i + 1));
        assert_eq!([index.get([100, 0]), index.get([0, 100])], [0, 0]);
    }
}
