//! Where bytes are live as the events of a trace are added: at the site of their block, and those
//! of a pool's block not at the site of the chunk that they are lent from.

use std::collections::BTreeMap;

use super::event::{Event, Operation};
use crate::model::{Site, SiteKind};

/// Bytes of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    pub(crate) usable: u64,
    /// Requested of the allocator.
    pub(crate) asked: u64,
    /// Requested, as its site counts it.
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

/// Bytes that come to a site, or leave it.
pub(crate) struct Change {
    pub(crate) site: u32,
    pub(crate) block: Block,
    /// 1 or -1.
    pub(crate) sign: i64,
    /// Whether these are bytes that a chunk lends or gets back, and no block comes or goes.
    pub(crate) is_lent: bool,
}

/// A chunk of a pool, from the allocator.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    end: u64,
    site: u32,
    /// What the pool's blocks in it have.
    lent: Block,
}

/// The chunks that lend bytes.
#[derive(Default)]
pub(crate) struct Lending {
    /// By address.
    chunks: BTreeMap<u64, Chunk>,
}

impl Lending {
    /// Reports to `add` what an event changes of what is live.
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
            Operation::Fail | Operation::Begin | Operation::End => {}
        }
    }

    /// A block comes to a site.
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

    /// A block leaves a site.
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
                // What it lent was taken off already.
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

    /// The chunk that an address is in.
    fn chunk(&mut self, address: u64) -> Option<&mut Chunk> {
        let below = self.chunks.range_mut(..=address).next_back();
        below.map(|(_, chunk)| chunk).filter(|chunk| address < chunk.end)
    }
}

/// A number of bytes that may be taken off.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
