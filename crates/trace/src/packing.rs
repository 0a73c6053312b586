//! The state that encoder and decoder share: kinds of records, and the context after each.

use crate::record::Block;

/// Kinds of records, stored in the low bits of the first byte.
pub(crate) const ALLOCATED: u8 = 0;
pub(crate) const FREED: u8 = 1;
pub(crate) const MOVING: u8 = 2;
pub(crate) const OTHER: u8 = 3;

/// What a record of kind [`FREED`] or [`MOVING`] has of its block, in the highest bits of the first
/// byte: nothing, the slot of its site with the usable size it has there, or site and usable size.
pub(crate) mod end {
    pub(crate) const NOTHING: u8 = 0;
    pub(crate) const SLOT: u8 = 1;
    pub(crate) const WHOLE: u8 = 2;
}

/// Events of records of kind [`OTHER`].
pub(crate) mod other {
    pub(crate) const ALLOCATED: u8 = 1;
    pub(crate) const FREED: u8 = 2;
    pub(crate) const MOVING: u8 = 3;
    pub(crate) const STILL_THERE: u8 = 4;
    pub(crate) const RELEASED: u8 = 5;
    pub(crate) const FAILED: u8 = 6;
    pub(crate) const RELABELLED: u8 = 7;
    pub(crate) const UNLABELLED: u8 = 8;
    pub(crate) const OPENED: u8 = 9;
    pub(crate) const CLOSED: u8 = 10;
    pub(crate) const SCOPE: u8 = 11;
    pub(crate) const THREAD: u8 = 12;
    pub(crate) const NODE: u8 = 13;
    pub(crate) const LABELLED: u8 = 14;
    pub(crate) const ENDED: u8 = 15;
    pub(crate) const ELEMENT: u8 = 16;
    pub(crate) const MARK: u8 = 17;
    /// A scope, after ticks since the last record that fit in four bytes, or at a time.
    pub(crate) const SCOPE_LATER: u8 = 18;
    pub(crate) const SCOPE_AT: u8 = 19;
}

/// The number of sites remembered with their last sizes.
pub(crate) const SLOTS: usize = 256;

#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) site: u32,
    pub(crate) requested: u64,
    pub(crate) usable: u64,
}

/// The state of both sides after the same records.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) ticks: u64,
    pub(crate) address: u64,
    /// The slot of the last allocation.
    pub(crate) last: u8,
    pub(crate) slots: [Slot; SLOTS],
}

/// A slot that no site has used.
pub(crate) const NO_SITE: Slot = Slot { site: 0, requested: 0, usable: 0 };

impl Context {
    pub(crate) const fn new() -> Context {
        Context { ticks: 0, address: 0, last: 0, slots: [NO_SITE; SLOTS] }
    }

    /// Resets it in place, because a new one would take kilobytes of the caller's stack.
    pub(crate) fn restart(&mut self, ticks: u64) {
        (self.ticks, self.address, self.last) = (ticks, 0, 0);
        self.slots.fill(NO_SITE);
    }

    /// Returns the slot of a site, by Knuth's multiplicative hash (volume 3, section 6.4).
    #[inline]
    pub(crate) fn slot_of(site: u32) -> u8 {
        (site.wrapping_mul(0x9e37_79b1) >> 24) as u8
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u8) -> &Slot {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn note(&mut self, slot: u8, block: &Block) {
        let Block { site, requested, usable, .. } = *block;
        self.slots[slot as usize] = Slot { site, requested, usable };
        self.last = slot;
    }
}

/// Returns glibc's usable size for a request on 64 bits: a chunk has one more word, is a multiple
/// of two words, and has at least four.
#[inline]
pub(crate) fn usual_size(requested: u64) -> u64 {
    (requested.wrapping_add(23) & !15).max(32).wrapping_sub(8)
}
