//! Blocks of device memory that libraries hand out from larger pieces (caching allocators, pools).
//! The memory of a driver that contains such a block is a chunk of a pool. As on the host, the
//! bytes of a block are subtracted from its chunk: each byte counts once, and what is left of a
//! chunk is not in use.

use crate::event::device_state::{Device, acquire, enter, is_announced, is_recorded};
use crate::event::inside::Entry;
use crate::event::outside_heap::{Caller, mode};
use crate::store::device_chunks::Chunk;
use crate::store::device_table::{Block, By, Key};
use crate::store::ids::{NameId, SiteId};
use crate::store::outside_records::Dimensions;
use crate::store::shared::store;
use crate::sys::front::Front;
use heaptide_format::{DEVICE_UNKNOWN, DeviceClass, DeviceKey, Loss, Mode};

/// A block that a library hands out.
pub struct HandedOut {
    pub address: u64,
    pub requested: u64,
    pub bytes: u64,
    /// The number of the device; [`DEVICE_UNKNOWN`] if it is not known.
    pub device: u16,
}

/// Returns whether there can be blocks: in some modes, pools do nothing.
fn are_recorded() -> bool {
    is_recorded() && mode(store().header()) != Mode::Counters as u32
}

/// Records a block; `pool` returns the name of its pool. Returns false if no known memory contains
/// it.
pub fn handed_out<F: Front>(
    entry: Entry,
    block: &HandedOut,
    pool: impl FnOnce() -> NameId,
) -> bool {
    if !are_recorded() {
        return false;
    }
    let Some(caller) = Caller::enter::<F>(entry) else { return false };
    let pool = pool();
    let Some(mut device) = acquire() else { return false };
    let device = &mut *device;
    let Some(chunk) = device.chunk(block.address, block.device, pool) else { return false };
    let (api, number) = (chunk.api, chunk.device);
    let key = block_key(block.address, number);
    device.end_block(key);
    let bytes = device.free_bytes(key, block.bytes, pool);
    if bytes == 0 {
        store().lost(Loss::NoRegion); // other blocks have these bytes: ends were not reported
        return true;
    }
    if !caller.is_off {
        let class = DeviceClass::PoolBlock as u8;
        let of = DeviceKey { class, api, device: number }.pack();
        let site = device.counted.place(&caller, of, pool);
        device.hand_out(key, site, (block.requested, bytes));
        device.counted.sample(store(), &caller);
    }
    true
}

/// Records that a block came back. Returns false if it is not known.
pub fn came_back<F: Front>(entry: Entry, address: u64, device: u16) -> bool {
    let Some((_, mut memory)) = enter::<F>(entry).filter(|_| is_recorded()) else { return false };
    let known = memory.pools.blocks.known(block_key(address, device));
    known.is_some_and(|key| memory.end_block(key))
}

/// Records that a block changed its address or its size.
pub fn moved<F: Front>(entry: Entry, old: u64, block: &HandedOut) -> bool {
    let Some(pool) = pool_of::<F>(entry, old) else { return false };
    came_back::<F>(entry, old, block.device);
    handed_out::<F>(entry, block, || pool)
}

/// Returns the name of the pool of a block; none if the block is not known.
fn pool_of<F: Front>(entry: Entry, address: u64) -> Option<NameId> {
    let (_, mut device) = enter::<F>(entry).filter(|_| is_recorded())?;
    let key = device.pools.blocks.known(block_key(address, DEVICE_UNKNOWN))?;
    let block = device.pools.blocks.get(key)?;
    Some(Dimensions::of_site(block.site)?.label)
}

/// Makes the memory that contains an address a chunk of a pool. Returns false if there is none.
pub fn added<F: Front>(entry: Entry, address: u64, pool: NameId) -> bool {
    let memory = enter::<F>(entry).filter(|_| are_recorded());
    memory.is_some_and(|(_, mut device)| device.chunk(address, DEVICE_UNKNOWN, pool).is_some())
}

/// Returns whether a chunk contains an address.
pub fn is_in_chunk<F: Front>(entry: Entry, address: u64) -> bool {
    let memory = enter::<F>(entry).filter(|_| is_recorded());
    memory.is_some_and(|(_, mut device)| {
        device.pools.chunks.around(address, DEVICE_UNKNOWN).is_some()
    })
}

fn block_key(address: u64, device: u16) -> Key {
    Key { by: By::Block, api: 0, device, value: address }
}

impl Device {
    /// Returns the entry of the memory that contains an address, which is now a chunk of a pool;
    /// none if it is not known.
    #[inline(never)]
    fn chunk(&mut self, address: u64, device: u16, pool: NameId) -> Option<Key> {
        if let Some(chunk) = self.pools.chunks.around(address, device) {
            return Some(chunk.owner);
        }
        let (key, bytes) = self.table.around(address, device)?;
        // Libraries and drivers can number devices differently.
        if let Some(chunk) = self.pools.chunks.around(address, key.device) {
            return Some(chunk.owner);
        }
        let owner = match key.by {
            By::View => Key { by: By::Handle, value: self.table.get(key)?.context, ..key },
            _ => key,
        };
        let memory = self.table.get(owner)?;
        let (site, whole, views) = (memory.site, memory.bytes, memory.views);
        // Of memory that is mapped twice, bytes could be handed out twice.
        if is_announced(site) || views > 1 {
            return None;
        }
        let of = Dimensions::of_site(site)?;
        let class = DeviceClass::PoolChunk as u8;
        let of_chunks = DeviceKey { class, ..DeviceKey::unpack(of.key) }.pack();
        let site = self.counted.add_to_pool(site, of_chunks, pool, whole);
        let chunk = Chunk { start: key.value, bytes, owner, lent_bytes: 0 };
        if site.is_none() || !self.pools.chunks.add(chunk) {
            store().lost(Loss::NoRegion);
            return None;
        }
        self.table.get(owner)?.site = site;
        Some(owner)
    }

    /// Returns how many bytes from a block's address on are in chunks, at most `bytes`; 0 if some
    /// of these are handed out.
    #[inline(never)]
    fn free_bytes(&mut self, key: Key, bytes: u64, pool: NameId) -> u64 {
        let end = key.value.saturating_add(bytes);
        let mut at = key.value;
        while at < end && self.chunk(at, key.device, pool).is_some() {
            let Some(chunk) = self.pools.chunks.around(at, key.device) else { break };
            let part_end = chunk.end().min(end);
            if part_end - at > chunk.bytes - chunk.lent_bytes {
                return 0;
            }
            at = part_end;
        }
        at - key.value
    }

    /// Counts a block, whose bytes are all in chunks.
    #[inline(never)]
    fn hand_out(&mut self, key: Key, site: SiteId, (requested, bytes): (u64, u64)) {
        let block = Block { site, views: 0, references: 1, bytes, context: 0 };
        if site.is_none() || !self.pools.blocks.add(key, block) {
            return store().lost(Loss::NoRegion);
        }
        self.counted.hand_out(site, (requested, bytes));
        self.lend(key, bytes, 1);
    }

    /// Ends a block. Returns false if it is not known.
    #[inline(never)]
    fn end_block(&mut self, key: Key) -> bool {
        let Some(Block { site, bytes, .. }) = self.pools.blocks.take(key) else { return false };
        self.counted.take_back(site, bytes);
        self.lend(key, bytes, -1);
        true
    }
}
