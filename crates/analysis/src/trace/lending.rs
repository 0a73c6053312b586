//! Attributes live bytes to sites while the events of a trace are added up: to the site of their
//! block; bytes of a pool's block are subtracted from the site of the chunk that they are lent
//! from.

use std::collections::BTreeMap;

use super::event::{Event, Operation};
use crate::model::{Site, SiteKind};

/// The sizes of a block in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    pub(crate) usable: u64,
    /// Requested at its allocation.
    pub(crate) asked: u64,
    /// Requested as its site counts it.
    pub(crate) counted: u64,
}

impl Block {
    fn with(self, of: impl Fn(u64, u64) -> u64, other: Block) -> Block {
        Block {
            usable: of(self.usable, other.usable),
            asked: of(self.asked, other.asked),
            counted: of(self.counted, other.counted),
        }
    }
}

/// A change of the live bytes of a site.
pub(crate) struct Change {
    pub(crate) site: u32,
    pub(crate) block: Block,
    /// 1 or -1.
    pub(crate) sign: i64,
    /// Whether a chunk lends bytes or gets them back, so that the number of blocks does not change.
    pub(crate) is_lent: bool,
}

/// A chunk of a pool, from the allocator.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    end: u64,
    site: u32,
    /// Bytes of the pool's blocks inside it.
    lent: Block,
}

/// The chunks of pools.
#[derive(Default)]
pub(crate) struct Lending {
    /// Chunks by address.
    chunks: BTreeMap<u64, Chunk>,
}

impl Lending {
    /// Calls `add` with the changes of live bytes caused by an event.
    pub(crate) fn event(&mut self, sites: &[Site], event: &Event, add: &mut impl FnMut(Change)) {
        let Event { operation, site, site_before, address, usable, .. } = *event;
        let kind = |site: u32| sites.get(site as usize).map(|site| site.kind);
        let asked = event.allocated_requested;
        let now = Block { usable, asked, counted: event.requested };
        let before = Block { counted: event.requested_before, ..now };
        match operation {
            Operation::Allocate => self.enter((site, kind(site)), address, now, add),
            Operation::Free => self.leave((site, kind(site)), address, before, add),
            Operation::Relabel | Operation::Unlabel => {
                self.leave((site_before, kind(site_before)), address, before, add);
                self.enter((site, kind(site)), address, now, add);
            }
            Operation::Fail | Operation::Begin | Operation::End | Operation::Mark => {}
        }
    }

    /// Adds a block to a site.
    fn enter(
        &mut self,
        (site, kind): (u32, Option<SiteKind>),
        address: u64,
        block: Block,
        add: &mut impl FnMut(Change),
    ) {
        match kind {
            Some(SiteKind::PoolChunk) => {
                let (end, lent) = (address.saturating_add(block.usable), Block::default());
                self.chunks.insert(address, Chunk { end, site, lent });
            }
            Some(SiteKind::PoolBlock) => {
                if let Some(chunk) = self.chunk(address) {
                    chunk.lent = chunk.lent.with(u64::saturating_add, block);
                    add(Change { site: chunk.site, block, sign: -1, is_lent: true });
                }
            }
            _ => {}
        }
        add(Change { site, block, sign: 1, is_lent: false });
    }

    /// Removes a block from a site.
    fn leave(
        &mut self,
        (site, kind): (u32, Option<SiteKind>),
        address: u64,
        block: Block,
        add: &mut impl FnMut(Change),
    ) {
        add(Change { site, block, sign: -1, is_lent: false });
        match kind {
            Some(SiteKind::PoolChunk) => {
                // Lent bytes have already been subtracted.
                if let Some(Chunk { site, lent, .. }) = self.chunks.remove(&address) {
                    add(Change { site, block: lent, sign: 1, is_lent: true });
                }
            }
            Some(SiteKind::PoolBlock) => {
                if let Some(chunk) = self.chunk(address) {
                    let back = chunk.lent.with(u64::min, block);
                    chunk.lent = chunk.lent.with(u64::saturating_sub, back);
                    add(Change { site: chunk.site, block: back, sign: 1, is_lent: true });
                }
            }
            _ => {}
        }
    }

    /// Returns the chunk that contains an address.
    fn chunk(&mut self, address: u64) -> Option<&mut Chunk> {
        let below = self.chunks.range_mut(..=address).next_back();
        below.map(|(_, chunk)| chunk).filter(|chunk| address < chunk.end)
    }
}

/// Converts a number of bytes for subtraction, saturating.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
