//! Chunks of device memory from which libraries hand out blocks, in order of their addresses.

use crate::store::device_table::Key;
use crate::sys::memory::{self, InChild};
use heaptide_format::DEVICE_UNKNOWN;

/// Memory from which blocks are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    pub start: u64,
    pub bytes: u64,
    /// The entry of the memory itself, by its address or its handle.
    pub owner: Key,
    /// Bytes that are handed out.
    pub lent_bytes: u64,
}

impl Chunk {
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

/// All chunks, sorted by start. All zeros: none.
pub struct DeviceChunks {
    list: *mut Chunk,
    capacity: usize,
    count: usize,
}

const LEAST: usize = 128;
/// The most chunks before an address that are checked: on few systems, memory of several devices
/// has the same addresses.
const LOOKS: usize = 16;

impl DeviceChunks {
    #[cfg(test)]
    const EMPTY: DeviceChunks = DeviceChunks { list: core::ptr::null_mut(), capacity: 0, count: 0 };

    fn all(&mut self) -> &mut [Chunk] {
        if self.count == 0 {
            return &mut [];
        }
        // SAFETY: the list has that many chunks, and is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.list, self.count) }
    }

    /// Returns a chunk by its position.
    pub fn get(&mut self, at: usize) -> Option<Chunk> {
        self.all().get(at).copied()
    }

    /// Returns the chunk of a device that contains an address; of any device for
    /// [`DEVICE_UNKNOWN`].
    pub fn around(&mut self, address: u64, device: u16) -> Option<&mut Chunk> {
        let is_of = |chunk: &Chunk| device == DEVICE_UNKNOWN || chunk.owner.device == device;
        let all = self.all();
        let after = all.partition_point(|chunk| chunk.start <= address);
        let mut near = all[..after].iter_mut().rev().take(LOOKS);
        near.find(|chunk| is_of(chunk) && chunk.contains(address))
    }

    /// Adds a chunk. Returns false if there is no memory.
    pub fn add(&mut self, chunk: Chunk) -> bool {
        if self.count == self.capacity && !self.enlarge() {
            return false;
        }
        let at = self.all().partition_point(|known| known.start <= chunk.start);
        // SAFETY: there is a place behind the last chunk.
        unsafe {
            let place = self.list.add(at);
            place.copy_to(place.add(1), self.count - at);
            place.write(chunk);
        }
        self.count += 1;
        true
    }

    /// Removes the chunk of a device that begins at an address, and returns it.
    pub fn take(&mut self, start: u64, device: u16) -> Option<Chunk> {
        let all = self.all();
        let first = all.partition_point(|chunk| chunk.start < start);
        let is_it = |chunk: &Chunk| chunk.start == start && chunk.owner.device == device;
        let at = first + all[first..].iter().take(LOOKS).position(is_it)?;
        let chunk = all[at];
        all.copy_within(at + 1.., at);
        self.count -= 1;
        Some(chunk)
    }

    fn enlarge(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(LEAST);
        let bytes = |capacity: usize| capacity * size_of::<Chunk>();
        let list = memory::take(bytes(capacity), InChild::Nothing) as *mut Chunk;
        if list.is_null() {
            return false;
        }
        if self.capacity > 0 {
            // SAFETY: the new list is larger; nothing refers to the former one any more.
            unsafe {
                list.copy_from_nonoverlapping(self.list, self.count);
                memory::release(self.list as *mut u8, bytes(self.capacity), InChild::Nothing);
            }
        }
        (self.list, self.capacity) = (list, capacity);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::device_table::By;

    fn chunk(start: u64, bytes: u64, device: u16) -> Chunk {
        let owner = Key { by: By::Address, api: 1, device, value: start };
        Chunk { start, bytes, owner, lent_bytes: 0 }
    }

    #[test]
    fn chunks_are_found_by_the_addresses_in_them() {
        let mut chunks = DeviceChunks::EMPTY;
        assert_eq!(chunks.around(0, 0), None);
        // 389 and 1000 have no common divisor, so each multiple occurs once.
        for at in 0..1000 {
            assert!(chunks.add(chunk(at * 389 % 1000 * 64, 32, 0)));
        }
        for at in 0..1000 {
            let found = [0, 31, 32].map(|byte| chunks.around(at * 64 + byte, 0).map(|c| c.start));
            assert_eq!(found, [Some(at * 64), Some(at * 64), None]);
        }
        for at in (0..1000).step_by(2) {
            assert_eq!(chunks.take(at * 64, 0), Some(chunk(at * 64, 32, 0)));
        }
        let left = (0..1000).filter(|at| chunks.around(at * 64, 0).is_some());
        assert!(left.eq((1..1000).step_by(2)));
        assert_eq!([chunks.take(0, 0), chunks.take(65, 0)], [None; 2]);
    }

    #[test]
    fn devices_can_have_equal_addresses() {
        let mut chunks = DeviceChunks::EMPTY;
        chunks.add(chunk(4096, 64, 0));
        chunks.add(chunk(4096, 128, 1));
        let mut device = |address, device| chunks.around(address, device).map(|c| c.owner.device);
        assert_eq!([device(4100, 0), device(4100, 1), device(4200, 0)], [Some(0), Some(1), None]);
        assert_eq!(device(4200, DEVICE_UNKNOWN), Some(1));
        assert_eq!(chunks.take(4096, 1), Some(chunk(4096, 128, 1)));
        assert_eq!(chunks.take(4096, 1), None);
    }
}
