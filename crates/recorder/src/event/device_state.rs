//! The known device memory of the process, and the chunks of pools in it.

use crate::event::inside::Entry;
use crate::event::outside_heap::{Caller, OutsideHeap, is_any_live};
use crate::event::process::{State, process};
use crate::store::device_chunks::{Chunk, DeviceChunks};
use crate::store::device_table::{Block, By, DeviceTable, Key};
use crate::store::ids::SiteId;
use crate::store::outside_records::{Dimensions, Space};
use crate::store::shared::store;
use crate::sys::front::Front;
use crate::sys::locked::{Held, Locked};
use crate::sys::wiped::Wiped;
use heaptide_format::{DeviceClass, DeviceKey, Loss};

/// The known device memory of the process. All zeros: none.
pub struct Device {
    pub table: DeviceTable,
    pub counted: OutsideHeap,
    /// What libraries hand out.
    pub pools: Pools,
}

// SAFETY: all zeros is a free lock and no memory.
#[unsafe(link_section = ".bss.wiped")]
static DEVICE: Wiped<Locked<Device>> = unsafe { Wiped::new() };

/// Makes forked children start without device memory: they cannot use that of their parent.
pub fn wipe_in_children() {
    DEVICE.wipe_in_children();
}

/// All chunks, and the blocks in them. All zeros: none.
pub struct Pools {
    pub chunks: DeviceChunks,
    pub blocks: DeviceTable,
}

/// Returns whether device memory is live, so that its end has to be recorded.
pub fn is_recorded() -> bool {
    process().state() == State::Active && is_any_live(Space::Device)
}

/// Returns the calling thread, and the device memory.
pub fn enter<F: Front>(entry: Entry) -> Option<(Caller, Held<'static, Device>)> {
    let caller = Caller::enter::<F>(entry)?;
    Some((caller, acquire()?))
}

/// Returns the device memory.
pub fn acquire() -> Option<Held<'static, Device>> {
    let Some(mut device) = DEVICE.get().acquire() else {
        store().lost(Loss::NoMapping);
        return None;
    };
    device.counted.records.space = Space::Device;
    Some(device)
}

/// Returns whether it is a site of memory that counts only because the program announced it.
pub fn is_announced(site: SiteId) -> bool {
    let key = Dimensions::of_site(site).map(|of| DeviceKey::unpack(of.key));
    key.is_some_and(|key| key.class == DeviceClass::Announced as u8)
}

impl Device {
    /// Subtracts the bytes of a block from its chunks, or adds them if `sign` is negative.
    pub fn lend(&mut self, key: Key, bytes: u64, sign: i64) {
        let mut at = key.value;
        let end = key.value + bytes;
        while let Some(chunk) = self.pools.chunks.around(at, key.device).filter(|_| at < end) {
            let part_end = chunk.end().min(end);
            let part = (part_end - at).cast_signed() * sign;
            chunk.lent_bytes = chunk.lent_bytes.wrapping_add_signed(part);
            let owner = chunk.owner;
            if let Some(memory) = self.table.get(owner) {
                self.counted.lend(memory.site, part);
            }
            at = part_end;
        }
    }

    /// Ends the chunk that begins where this memory does, if it is one, before the memory ends.
    #[inline(never)]
    pub fn end_chunk(&mut self, key: Key) {
        if matches!(key.by, By::Address | By::View)
            && let Some(&mut chunk) = self.pools.chunks.around(key.value, key.device)
            && (chunk.start, chunk.owner.device) == (key.value, key.device)
        {
            self.end(chunk);
        }
    }

    /// Ends the chunks of all memory for which `is_it` holds, before this memory ends.
    #[inline(never)]
    pub fn end_chunks(&mut self, is_it: impl Fn(&Key, &Block) -> bool) {
        let mut next = 0;
        while let Some(chunk) = self.pools.chunks.get(next) {
            let memory = self.table.get(chunk.owner);
            if memory.is_some_and(|memory| is_it(&chunk.owner, memory)) {
                self.end(chunk); // the next one has its place now
            } else {
                next += 1;
            }
        }
    }

    /// Ends a chunk, after the blocks in it.
    fn end(&mut self, chunk: Chunk) {
        let device = chunk.owner.device;
        let is_in = |block: &Key, of: &Block| {
            let end = block.value.saturating_add(of.bytes);
            block.device == device && block.value < chunk.end() && end > chunk.start
        };
        let mut place = 0;
        while let Some((key, Block { site, bytes, .. })) =
            self.pools.blocks.take_next(&mut place, is_in)
        {
            self.counted.take_back(site, bytes);
            self.lend(key, bytes, -1);
        }
        self.pools.chunks.take(chunk.start, device);
    }
}
