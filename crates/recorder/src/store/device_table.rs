//! Live memory of devices, by what a program frees it with: an address or a handle.
//!
//! A hash table with linear probing. Removal moves later entries back, so that no marks of removed
//! entries remain (Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm R).

use crate::store::ids::SiteId;
use crate::sys::memory::{self, InChild};
use heaptide_format::{DEVICE_UNKNOWN, DeviceApi};

/// What the value of a [`Key`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum By {
    /// The address of memory.
    Address = 1,
    /// The handle of an array, or of memory without an address.
    Handle = 2,
    /// The address at which such memory is mapped.
    View = 3,
    /// The address of a block that a library hands out.
    Block = 4,
}

/// What identifies an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub by: By,
    /// A [`heaptide_format::DeviceApi`].
    pub api: u8,
    /// The number of the device: devices can have equal addresses.
    pub device: u16,
    pub value: u64,
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// None for a view.
    pub site: SiteId,
    /// How often memory without an address is mapped.
    pub views: u32,
    /// How often its handle has to be released.
    pub references: u32,
    pub bytes: u64,
    /// The context with which it ends; of a view, the handle of its memory.
    pub context: u64,
}

/// A slot. All zeros: free.
#[derive(Clone, Copy)]
struct Slot {
    key: Option<Key>,
    block: Block,
}

/// All live memory. All zeros: none.
pub struct DeviceTable {
    slots: *mut Slot,
    /// A power of two, or 0.
    capacity: usize,
    count: usize,
}

const LEAST: usize = 256;

impl DeviceTable {
    #[cfg(test)]
    const EMPTY: DeviceTable = DeviceTable { slots: core::ptr::null_mut(), capacity: 0, count: 0 };

    /// Adds an entry, which replaces one with the same key. Returns false if there is no memory.
    pub fn add(&mut self, key: Key, block: Block) -> bool {
        if (self.count + 1) * 2 > self.capacity && !self.enlarge() {
            return false;
        }
        self.put(key, block);
        true
    }

    /// Adds an entry, for which there is a free slot.
    fn put(&mut self, key: Key, block: Block) {
        let place = self.find(|known| *known == key, key.value).unwrap_or_else(|free| {
            self.count += 1;
            free
        });
        *self.slot(place) = Slot { key: Some(key), block };
    }

    /// Returns the key of an entry that differs from `key` at most by its device; the one with the
    /// same device if there is one.
    pub fn known(&mut self, key: Key) -> Option<Key> {
        if self.capacity == 0 {
            return None;
        }
        let exact = |known: &Key| *known == key;
        let any = |known: &Key| Key { device: key.device, ..*known } == key;
        let place = self.find(exact, key.value).or_else(|_| self.find(any, key.value)).ok()?;
        self.slot(place).key
    }

    /// Returns the key of memory at an address, of any of these interfaces.
    pub fn of_apis(&mut self, apis: &[DeviceApi], value: u64) -> Option<Key> {
        apis.iter().find_map(|&api| {
            self.known(Key { by: By::Address, api: api as u8, device: DEVICE_UNKNOWN, value })
        })
    }

    /// Returns an entry by its key.
    pub fn get(&mut self, key: Key) -> Option<&mut Block> {
        if self.capacity == 0 {
            return None;
        }
        let place = self.find(|known| *known == key, key.value).ok()?;
        Some(&mut self.slot(place).block)
    }

    /// Removes an entry and returns it.
    pub fn take(&mut self, key: Key) -> Option<Block> {
        if self.capacity == 0 {
            return None;
        }
        let place = self.find(|known| *known == key, key.value).ok()?;
        let block = self.slot(place).block;
        self.remove(place);
        Some(block)
    }

    /// Removes the next entry, from a place on, for which `is_it` holds, and returns it. The place
    /// is 0 for the first call, and changes with each.
    pub fn take_next(
        &mut self,
        place: &mut usize,
        is_it: impl Fn(&Key, &Block) -> bool,
    ) -> Option<(Key, Block)> {
        while *place < self.capacity {
            let Slot { key, block } = *self.slot(*place);
            if let Some(key) = key.filter(|key| is_it(key, &block)) {
                self.remove(*place); // another entry may have its place now
                return Some((key, block));
            }
            *place += 1;
        }
        None
    }

    /// Returns the memory that contains an address, also where it is mapped, and its size in bytes;
    /// that of another device if `device` has none. Checks all entries.
    pub fn around(&self, address: u64, device: u16) -> Option<(Key, u64)> {
        let mut of_other = None;
        for place in 0..self.capacity {
            let Slot { key: Some(key), block } = *self.at(place) else { continue };
            let is_memory = matches!(key.by, By::Address | By::View);
            if is_memory && address.wrapping_sub(key.value) < block.bytes {
                if key.device == device {
                    return Some((key, block.bytes));
                }
                of_other = Some((key, block.bytes));
            }
        }
        of_other
    }

    /// Returns the place of the key for which `is_it` holds, or the free one after those with the
    /// same beginning. `value` is that of the key.
    fn find(&self, is_it: impl Fn(&Key) -> bool, value: u64) -> Result<usize, usize> {
        let mut place = self.home(value);
        while let Some(known) = self.at(place).key {
            if is_it(&known) {
                return Ok(place);
            }
            place = self.after(place);
        }
        Err(place)
    }

    fn remove(&mut self, place: usize) {
        let mask = self.capacity - 1;
        let distance = |from: usize, to: usize| to.wrapping_sub(from) & mask;
        let mut hole = place;
        let mut next = self.after(hole);
        while let Some(key) = self.at(next).key {
            if distance(self.home(key.value), next) >= distance(hole, next) {
                *self.slot(hole) = *self.at(next);
                hole = next;
            }
            next = self.after(next);
        }
        self.slot(hole).key = None;
        self.count -= 1;
    }

    fn enlarge(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(LEAST);
        let bytes = |capacity: usize| capacity * size_of::<Slot>();
        let slots = memory::take(bytes(capacity), InChild::Nothing) as *mut Slot;
        if slots.is_null() {
            return false;
        }
        let before = DeviceTable { ..*self };
        *self = DeviceTable { slots, capacity, count: 0 };
        for place in 0..before.capacity {
            let Slot { key, block } = *before.at(place);
            if let Some(key) = key {
                self.put(key, block);
            }
        }
        if before.capacity > 0 {
            // SAFETY: nothing refers to the former slots any more.
            unsafe {
                memory::release(before.slots as *mut u8, bytes(before.capacity), InChild::Nothing);
            }
        }
        true
    }

    /// Returns the place at which the search for a value begins.
    fn home(&self, value: u64) -> usize {
        // Fibonacci hashing: the upper bits depend on all others.
        let hash = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.capacity - 1)
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.capacity - 1)
    }

    fn at(&self, place: usize) -> &Slot {
        // SAFETY: a place of the table, which is borrowed; all zeros is a free slot.
        unsafe { &*self.slots.add(place) }
    }

    fn slot(&mut self, place: usize) -> &mut Slot {
        // SAFETY: as above; the table is borrowed exclusively.
        unsafe { &mut *self.slots.add(place) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn key(value: u64, device: u16) -> Key {
        Key { by: By::Address, api: 1, device, value }
    }

    fn block(bytes: u64, context: u64) -> Block {
        Block { site: SiteId::new(7), views: 0, references: 1, bytes, context }
    }

    #[test]
    fn random_changes_match_a_map() {
        let mut table = DeviceTable::EMPTY;
        let mut model = HashMap::new();
        assert_eq!(table.take(key(1, 0)), None);
        for step in 0..20_000u64 {
            // Few values, so that places are shared and keys return.
            let random = step.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29);
            let (value, device) = ((random % 700) << 21, (random >> 32) as u16 & 1);
            if (random >> 40) % 5 < 3 {
                assert!(table.add(key(value, device), block(step, value % 5)));
                model.insert((value, device), step);
            } else {
                let taken = table.take(key(value, device)).map(|block| block.bytes);
                assert_eq!(taken, model.remove(&(value, device)), "step {step}");
            }
        }
        for (&(value, device), &bytes) in &model {
            assert_eq!(table.get(key(value, device)).map(|block| block.bytes), Some(bytes));
        }
        assert_eq!(table.count, model.len());
    }

    #[test]
    fn a_key_of_another_device_is_known_unless_its_own_is() {
        let mut table = DeviceTable::EMPTY;
        table.add(key(64, 1), block(1, 0));
        assert_eq!(table.known(key(64, 0)), Some(key(64, 1)));
        table.add(key(64, 0), block(2, 0));
        assert_eq!(table.known(key(64, 0)), Some(key(64, 0)));
        assert_eq!(table.known(Key { by: By::Handle, ..key(64, 0) }), None);
    }

    #[test]
    fn memory_contains_all_its_addresses() {
        let mut table = DeviceTable::EMPTY;
        assert_eq!(table.around(4096, 0), None);
        table.add(key(4096, 0), block(512, 0));
        table.add(key(4096, 1), block(256, 0));
        table.add(Key { by: By::Handle, ..key(4608, 0) }, block(512, 0));
        assert_eq!([4095, 4608].map(|address| table.around(address, 0)), [None; 2]);
        assert_eq!(table.around(4607, 0), Some((key(4096, 0), 512)));
        assert_eq!(table.around(4100, 1), Some((key(4096, 1), 256)));
        assert_eq!(table.around(4400, 1), Some((key(4096, 0), 512)), "that of another device");
    }

    #[test]
    fn all_entries_of_a_context_are_taken() {
        let mut table = DeviceTable::EMPTY;
        for value in 0..5000 {
            table.add(key(value, 0), block(1, value % 3));
        }
        let (mut place, mut taken) = (0, 0);
        while table.take_next(&mut place, |_, block| block.context == 1).is_some() {
            taken += 1;
        }
        assert_eq!((taken, table.count), (1667, 3333));
        assert!((0..5000).all(|value| table.get(key(value, 0)).is_some() == (value % 3 != 1)));
    }
}
