//! Every event of a program in a few bytes: the packed form of traces, for the recorder that writes
//! it and for readers.
//!
//! A record is packed against what came before it in the same extent: clock and address as
//! differences, a site as its place among those seen lately, a size as the one that site had last.
//!
//! ```text
//!            bits 0 1   2 3    4 5      6 7
//! byte 0     kind       clock  address  site      kind 0 allocated, 1 freed, 2 moving, 3 other
//! byte 1     size       usable realloc  0 0 0     of kind 0 only
//! then       clock, address, site, requested, usable: as many bytes as these say
//! ```
//!
//! - clock: ticks since the last record, 1 to 3 bytes (0 to 2).
//! - address: zigzag of the difference to the last address, in 8 bytes, 1 to 4 bytes (0 to 3).
//! - site: 0 that of the last allocation, 1 its slot (1 byte), 2 its id (3 bytes), 3 its id (4).
//! - size: 0 as last from the slot, else 1, 2 or 4 bytes.
//! - usable: 0 what glibc gives for the size, 1 as last from the slot, else 1 or 4 bytes more than
//!   requested.
//!
//! A record of these kinds has 16 bytes at most. What does not fit, and all that is rare, is of
//! kind 3: bits 2 to 7 say what, and its fields follow whole.

#![no_std]
#![forbid(unsafe_code)]

mod decode;
mod encode;

pub use decode::{Decoder, Fault};
pub use encode::{Encoder, LONGEST};

/// What happened. Ids are those of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// A block was allocated; told after the allocator gave it.
    Allocated(Block),
    /// A block is about to be freed.
    Freed {
        /// Where it begins.
        address: u64,
    },
    /// A block is about to be reallocated: what comes of it is the next of `Allocated`,
    /// `StillThere` and `Released` in the lane. If none of them comes the program ended meanwhile.
    Moving {
        /// Where it begins.
        address: u64,
    },
    /// The reallocation failed.
    StillThere,
    /// The reallocation was a free.
    Released,
    /// An allocation failed.
    Failed {
        /// What it would have counted for.
        site: u32,
    },
    /// A block goes to another site, by getting a name.
    Relabelled(Block),
    /// A block goes back to the site that it was allocated at.
    Unlabelled {
        /// Where it begins.
        address: u64,
        /// That site.
        site: u32,
    },
    /// Memory that is no block of the allocator's is known from here on: a pool's block, something
    /// with a name.
    Opened(Block),
    /// It is no longer.
    Closed {
        /// Where it begins.
        address: u64,
        /// Its site: memory of several sites may begin there.
        site: u32,
    },
    /// The scope that the thread is in from here on.
    Scope(u32),
    /// The thread that has the lane from here on.
    Thread(u32),
    /// The node of the stack of frees from here on.
    Node(u32),
}

/// Memory that a site counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Its site.
    pub site: u32,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes given.
    pub usable: u64,
    /// Whether by a reallocation.
    pub reallocated: bool,
}

/// Kinds, in the low bits of the first byte.
const ALLOCATED: u8 = 0;
const FREED: u8 = 1;
const MOVING: u8 = 2;
const OTHER: u8 = 3;

/// What a record of kind [`OTHER`] is.
mod other {
    pub const ALLOCATED: u8 = 1;
    pub const FREED: u8 = 2;
    pub const MOVING: u8 = 3;
    pub const STILL_THERE: u8 = 4;
    pub const RELEASED: u8 = 5;
    pub const FAILED: u8 = 6;
    pub const RELABELLED: u8 = 7;
    pub const UNLABELLED: u8 = 8;
    pub const OPENED: u8 = 9;
    pub const CLOSED: u8 = 10;
    pub const SCOPE: u8 = 11;
    pub const THREAD: u8 = 12;
    pub const NODE: u8 = 13;
}

/// Sites that are remembered with the sizes they had last.
const SLOTS: usize = 256;

#[derive(Clone, Copy)]
struct Slot {
    site: u32,
    requested: u64,
    usable: u64,
}

/// What both sides know after the same records.
#[derive(Clone)]
struct Context {
    ticks: u64,
    address: u64,
    /// The slot of the last allocation.
    last: u8,
    slots: [Slot; SLOTS],
}

/// What a slot holds that no site has used.
const NO_SITE: Slot = Slot { site: 0, requested: 0, usable: 0 };

impl Context {
    const fn new() -> Context {
        Context { ticks: 0, address: 0, last: 0, slots: [NO_SITE; SLOTS] }
    }

    /// Begins anew where it is: a new one would need kilobytes of the caller's stack.
    fn restart(&mut self, ticks: u64) {
        (self.ticks, self.address, self.last) = (ticks, 0, 0);
        self.slots.fill(NO_SITE);
    }

    /// The slot of a site, by the multiplicative hash of Knuth, volume 3, section 6.4.
    fn slot_of(site: u32) -> u8 {
        (site.wrapping_mul(0x9e37_79b1) >> 24) as u8
    }

    fn slot(&self, slot: u8) -> &Slot {
        &self.slots[slot as usize]
    }

    fn note(&mut self, slot: u8, block: &Block) {
        let Block { site, requested, usable, .. } = *block;
        self.slots[slot as usize] = Slot { site, requested, usable };
        self.last = slot;
    }
}

/// The usable size that glibc gives for a request, on 64 bits: a chunk has a word more, is a
/// multiple of two words long, and of four at least.
fn usual_size(requested: u64) -> u64 {
    (requested.wrapping_add(23) & !15).max(32).wrapping_sub(8)
}
