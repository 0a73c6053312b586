//! Regions, which are pieces of memory with a name: where they are, and how they end.
//!
//! Regions are found by their first byte in a table like that of blocks, which has a place for each
//! word of 8 bytes, and by any other byte in a search backwards from there. Regions nest: a pool's
//! block is inside its chunk. One lock guards all of them; programs without labels and pools never
//! take it.

use crate::event::lane::{LaneState, NOBODY};
use crate::event::relabel::{lend, move_out, take_back};
use crate::event::trace;
use crate::store::budgets::REGION_PIECES_MAX as PIECES;
use crate::store::ids::{NameId, SiteId};
use crate::store::sampled_blocks::sampled_blocks;
use crate::store::shadow::Table;
use crate::store::shapes::{Array, Shapes};
use crate::store::shared::{Store, store};
use crate::sys::locked::{Held, Locked};
use crate::sys::memory::{self, InChild};
use crate::sys::wiped::Wiped;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::Loss;
use heaptide_format::shared::Word;
use heaptide_trace::Record;

/// Regions of one piece of memory.
const PER_PIECE: usize = 4096;
/// Maximum number of words that are checked in search of a region that contains an address.
const LOOKS: usize = 1024;
/// Bytes of a word, in which several regions may begin.
const WORD: u64 = 8;
/// The kind of a region.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    Block = 1,
    PoolBlock = 2,
    Chunk = 3,
    Other = 4,
}

/// A region of memory.
#[derive(Clone, Copy)]
pub struct Region {
    pub start: u64,
    pub bytes: u64,
    pub uid: u64,
    pub array: Array,
    pub what: What,
    /// The site that counts its bytes, and the one that counted them before it got a label.
    pub site: SiteId,
    pub origin: SiteId,
    /// The name of its label, and of its pool.
    pub label: NameId,
    pub pool: NameId,
    /// The region around it; 0 for none.
    pub parent: u32,
    /// The next older region that begins in the same word of 8 bytes; 0 for none. Of regions that
    /// begin at the same byte, the older one is the outer one.
    pub under: u32,
}

/// All regions of the process. All zeros: none yet.
pub struct Regions {
    list: Locked<List>,
    /// Set once there is a region that is not an allocator's block: munmap has to be checked then.
    pub foreign: AtomicBool,
}

/// Regions by number, from 1. All zeros: none yet.
pub struct List {
    /// Maps the word of the first byte to the newest region that begins there.
    table: Table,
    pieces: *mut *mut Region,
    used: u32,
    free: u32,
    pub uids: u64,
    /// The shapes of labelled memory.
    pub shapes: Shapes,
    /// Size of the longest region so far, which bounds the search backwards from an address.
    longest: u64,
}

// SAFETY: all zeros is a valid value: no regions.
#[unsafe(link_section = ".bss.wiped")]
static REGIONS: Wiped<Regions> = unsafe { Wiped::new() };

/// Returns the regions of this process.
pub fn regions() -> &'static Regions {
    REGIONS.get()
}

/// Makes forked children start without regions.
pub fn wipe_in_children() {
    REGIONS.wipe_in_children();
}

impl Regions {
    /// Acquires the list, and creates its tables if there are none.
    pub fn acquire(&self) -> Option<Held<'_, List>> {
        let mut list = self.list.acquire_unblocked()?;
        if !list.table.is_made() {
            let pieces = memory::take(PIECES * size_of::<*mut Region>(), InChild::Nothing);
            if pieces.is_null() {
                return None;
            }
            list.pieces = pieces as *mut *mut Region;
            list.table.create(store().scarce.load(Relaxed))?;
        }
        Some(list)
    }
}

impl List {
    fn place(&self, number: u32) -> *mut Region {
        let (piece, place) = (number as usize / PER_PIECE, number as usize % PER_PIECE);
        // SAFETY: a number that `add` returned: its piece is mapped.
        unsafe { (*self.pieces.wrapping_add(piece)).add(place) }
    }

    /// Returns a region by its number.
    pub fn at(&self, number: u32) -> &Region {
        // SAFETY: a region that `add` wrote; it is borrowed with the list.
        unsafe { &*self.place(number) }
    }

    /// Returns a region by its number, for changes.
    pub fn at_mut(&mut self, number: u32) -> &mut Region {
        // SAFETY: as above, and the list is borrowed exclusively.
        unsafe { &mut *self.place(number) }
    }

    /// Stores a region, and returns its number; 0 if there is no room.
    pub fn add(&mut self, region: Region) -> u32 {
        let number = if self.free != 0 {
            let number = self.free;
            self.free = self.at(number).under;
            number
        } else {
            let number = self.used + 1;
            if !self.has_piece(number as usize / PER_PIECE) {
                return 0;
            }
            self.used = number;
            number
        };
        let (start, bytes) = (region.start, region.bytes);
        let under = self.table.get(start);
        // SAFETY: a free place in a mapped piece.
        unsafe { self.place(number).write(Region { under, ..region }) };
        if !self.table.put(start as *const u8, number) {
            self.discard(number);
            return 0;
        }
        self.longest = self.longest.max(bytes);
        number
    }

    fn has_piece(&mut self, piece: usize) -> bool {
        if piece >= PIECES {
            return false;
        }
        // SAFETY: within the table of pieces, which is borrowed with the list.
        let slot = unsafe { &mut *self.pieces.wrapping_add(piece) };
        if slot.is_null() {
            let piece = memory::take(PER_PIECE * size_of::<Region>(), InChild::Nothing);
            *slot = piece as *mut Region;
        }
        !slot.is_null()
    }

    fn discard(&mut self, number: u32) {
        self.at_mut(number).under = self.free;
        self.free = number;
    }

    /// Removes a region.
    pub fn remove(&mut self, number: u32) {
        let (start, under) = (self.at(number).start, self.at(number).under);
        let first = self.table.get(start);
        if first == number {
            self.table.put(start as *const u8, under);
        } else {
            let mut above = first;
            while above != 0 && self.at(above).under != number {
                above = self.at(above).under;
            }
            if above != 0 {
                self.at_mut(above).under = under;
            }
        }
        self.discard(number);
    }

    /// Returns the innermost region that begins at an address; 0 if there is none.
    pub fn first(&self, address: u64) -> u32 {
        self.from(self.table.get(address), address)
    }

    /// Returns the next outer region that begins at the same byte; 0 if there is none.
    pub fn next(&self, number: u32) -> u32 {
        let Region { start, under, .. } = *self.at(number);
        self.from(under, start)
    }

    /// Returns the first region from `number` on that begins at an address; 0 if there is none.
    fn from(&self, mut number: u32, address: u64) -> u32 {
        while number != 0 && self.at(number).start != address {
            number = self.at(number).under;
        }
        number
    }

    /// Returns the region with the highest start up to an address, from `number` on; of several the
    /// innermost one, and 0 if there is none.
    fn last_up_to(&self, mut number: u32, address: u64) -> u32 {
        let mut last = 0;
        while number != 0 {
            let start = self.at(number).start;
            if start <= address && (last == 0 || start > self.at(last).start) {
                last = number;
            }
            number = self.at(number).under;
        }
        last
    }

    /// Returns the innermost region that contains an address; 0 if there is none.
    pub fn holding(&self, address: u64) -> u32 {
        let least = address.saturating_sub(self.longest) & !(WORD - 1);
        let mut from = address;
        for _ in 0..LOOKS {
            let Some((word, first)) = self.table.last_before(from, least) else {
                return 0;
            };
            let mut at = self.last_up_to(first, from);
            if at == 0 {
                // All of the word begin after the address.
                let Some(before) = word.checked_sub(1) else { return 0 };
                from = before;
                continue;
            }
            let start = self.at(at).start;
            while at != 0 {
                let region = self.at(at);
                if address.wrapping_sub(region.start) < region.bytes {
                    return at;
                }
                at = match self.next(at) {
                    0 => region.parent,
                    outer => outer,
                };
            }
            let Some(before) = start.checked_sub(1) else {
                return 0;
            };
            from = before;
        }
        0
    }
}

pub fn region(what: What, start: u64, bytes: u64, site: SiteId) -> Region {
    Region {
        start,
        bytes,
        uid: 0,
        array: Array::new(0, &[]),
        what,
        site,
        origin: SiteId::NONE,
        label: NameId::NONE,
        pool: NameId::NONE,
        parent: 0,
        under: 0,
    }
}

/// Returns the site of the block that begins at an address; none if no recorded block begins there.
pub fn site_of_block(p: &Store, address: u64) -> SiteId {
    if !address.is_multiple_of(WORD) {
        return SiteId::NONE; // tables of blocks have a place for each word
    }
    SiteId::new(match p.header().sample_mean_bytes.get() {
        0 => p.shadow.get(address),
        _ => sampled_blocks().get(address),
    })
}

/// Moves a recorded block to another site.
pub fn set_site_of_block(p: &Store, address: u64, site: SiteId) {
    let block = address as *const u8;
    // There is room, since the block already has a site.
    let _ = match p.header().sample_mean_bytes.get() {
        0 => p.shadow.put(block, site.number()),
        _ => sampled_blocks().put(block, site.number()),
    };
}

/// Moves a block back to the site at which it was allocated.
pub fn restore(r: &Region, me: u32) {
    move_out(r.site, r.bytes, me);
    take_back(r.origin, r.bytes);
    set_site_of_block(store(), r.start, r.origin);
    trace::write_for(me, &Record::Unlabelled { address: r.start, site: r.origin.number() });
}

impl Region {
    /// Returns whether the region is an allocator's block.
    pub fn is_heap(&self) -> bool {
        self.what == What::Block || (self.what == What::Chunk && !self.origin.is_none())
    }
}

/// Removes the region of a block whose memory holds a new block by now: the new allocation was
/// recorded before the end of the old block.
pub fn drop_stale(list: &mut List, address: u64, me: u32) {
    let number = list.first(address);
    if number == 0 {
        return;
    }
    let r = list.at(number);
    if r.is_heap() && site_of_block(store(), address) != r.site {
        end_inside(list, number, me);
        list.remove(number);
    }
}

/// Ends a region, after the regions in it.
pub fn end(list: &mut List, number: u32, me: u32) {
    end_inside(list, number, me);
    end_alone(list, number, me);
}

/// Ends a region that contains no other: its bytes leave their site.
fn end_alone(list: &mut List, number: u32, me: u32) {
    let Region { what, site, start, bytes, parent, .. } = *list.at(number);
    trace::write_for(me, &Record::Closed { address: start, site: site.number() });
    move_out(site, bytes, me);
    if what == What::PoolBlock && parent != 0 {
        lend(list.at(parent).site, -(bytes as i64));
    }
    list.remove(number);
}

/// Ends the regions inside a region: from the last word to the first, and of those that begin in
/// the same word the newest first, so that each contains no other when it ends.
pub fn end_inside(list: &mut List, number: u32, me: u32) {
    let Region { start, bytes, .. } = *list.at(number);
    let least = start & !(WORD - 1);
    let mut from = start + bytes.max(1) - 1;
    while let Some((word, newest)) = list.table.last_before(from, least) {
        let (mut inner, mut is_older) = (newest, false);
        while inner != 0 {
            let Region { start: begins, under, .. } = *list.at(inner);
            is_older |= inner == number;
            let is_outer = is_older && begins == start;
            let is_in = begins.wrapping_sub(start) < bytes.max(1) && !is_outer;
            if is_in && goes_with(list, inner, number) {
                end_alone(list, inner, me);
            }
            inner = under;
        }
        if word <= least {
            return;
        }
        from = word - 1;
    }
}

/// Returns whether a region ends together with `around`: it is inside that, or inside a pool's
/// block.
fn goes_with(list: &List, number: u32, around: u32) -> bool {
    let mut at = number;
    while at != 0 && at != around {
        let region = list.at(at);
        if region.what == What::PoolBlock {
            return true;
        }
        at = region.parent;
    }
    at == around
}

/// Ends the region of an allocator's block that is about to be freed, or was moved.
#[cold]
#[inline(never)]
pub fn block_ended(block: *const u8, site: SiteId, me: u32) {
    let p = store();
    let regions = &regions().list;
    let held = if me == NOBODY { regions.try_acquire() } else { regions.acquire_unblocked() };
    let Some(mut held) = held.filter(|list| list.table.is_made()) else {
        return p.lost(Loss::NoRegion);
    };
    let list = &mut *held;
    let mut number = list.first(block as u64);
    while number != 0 && list.at(number).site != site {
        number = list.next(number);
    }
    if number != 0 {
        end_inside(list, number, me);
        list.remove(number);
    }
}

/// Ends the regions in memory that is about to be unmapped, except an allocator's blocks.
#[cold]
#[inline(never)]
pub fn unmapped(lane: &LaneState, start: u64, bytes: u64) {
    let Some(mut held) = regions().acquire() else {
        return;
    };
    let list = &mut *held;
    let mut from = start.saturating_add(bytes).saturating_sub(1);
    while let Some((word, newest)) = list.table.last_before(from, start) {
        let mut number = newest;
        while number != 0 {
            if list.at(number).origin.is_none() {
                end(list, number, lane.index());
                number = list.table.get(word); // others may have ended with it
            } else {
                number = list.at(number).under;
            }
        }
        if word <= start {
            return;
        }
        from = word - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    /// Returns regions of a process that has few.
    fn list() -> Box<List> {
        // SAFETY: all zeros is a valid value.
        let mut list = unsafe { Box::<List>::new_zeroed().assume_init() };
        list.table.create(true).expect("memory");
        let bytes = PIECES * size_of::<*mut Region>();
        list.pieces = memory::take(bytes, InChild::Nothing) as *mut *mut Region;
        list
    }

    fn at(start: u64, bytes: u64) -> Region {
        region(What::Other, start, bytes, SiteId::NONE)
    }

    #[test]
    fn the_innermost_region_around_an_address_is_found() {
        let mut list = list();
        let outer = list.add(at(0x1000, 0x1000));
        let inner = list.add(Region { parent: outer, ..at(0x1400, 0x100) });
        assert_eq!([0xfff, 0x1000, 0x13ff].map(|a| list.holding(a)), [0, outer, outer]);
        assert_eq!([0x1400, 0x14ff].map(|a| list.holding(a)), [inner; 2]);
        assert_eq!([0x1500, 0x1fff, 0x2000].map(|a| list.holding(a)), [outer, outer, 0]);
    }

    #[test]
    fn regions_that_begin_at_one_byte_lie_under_each_other() {
        let mut list = list();
        let numbers = [0x1000, 0x100, 0x10].map(|bytes| list.add(at(0x8000, bytes)));
        assert_eq!(list.holding(0x8000), numbers[2]);
        assert_eq!(list.holding(0x8010), numbers[1]);
        list.remove(numbers[1]);
        assert_eq!([0x8000, 0x8010].map(|a| list.holding(a)), [numbers[2], numbers[0]]);
        list.remove(numbers[2]);
        list.remove(numbers[0]);
        assert_eq!([list.holding(0x8000), list.first(0x8000)], [0, 0]);
    }

    #[test]
    fn regions_that_begin_in_one_word_are_distinguished() {
        let mut list = list();
        let numbers = [0x8000, 0x8005, 0x800a, 0x8002].map(|start| list.add(at(start, 3)));
        let starts = [0x8000, 0x8005, 0x800a, 0x8002].map(|start| list.first(start));
        assert_eq!(starts, numbers);
        assert_eq!([0x8001, 0x8003, 0x8006, 0x800c].map(|a| list.first(a)), [0; 4]);
        // The last byte of the first one is the first byte of the last one.
        let at = [0x8001, 0x8002, 0x8005, 0x8007, 0x8008, 0x800c, 0x800d];
        let [first, second, third, last] = numbers;
        let inside = [first, last, second, second, 0, third, 0];
        assert_eq!(at.map(|address| list.holding(address)), inside);
        list.remove(second);
        assert_eq!([0x8000, 0x8005, 0x8002].map(|a| list.first(a)), [first, 0, last]);
    }

    #[test]
    fn a_region_ends_with_what_it_is_a_part_of() {
        let mut list = list();
        let chunk = list.add(region(What::Chunk, 0x4000, 0x400, SiteId::NONE));
        let of_pool = region(What::PoolBlock, 0x4100, 0x10, SiteId::NONE);
        let block = list.add(Region { parent: chunk, ..of_pool });
        let other = list.add(at(0x4200, 0x10));
        assert!(goes_with(&list, block, chunk));
        assert!(!goes_with(&list, other, chunk));
    }

    #[test]
    fn places_are_used_again() {
        let mut list = list();
        let many = PER_PIECE as u64 + 10;
        let numbers: std::vec::Vec<u32> =
            (0..many).map(|i| list.add(at(0x10_000 + i * 16, 16))).collect();
        assert!(numbers.iter().enumerate().all(|(i, &number)| number as usize == i + 1));
        list.remove(numbers[5]);
        assert_eq!(list.add(at(0x10_000 + 5 * 16, 16)), numbers[5]);
        assert_eq!(list.holding(0x10_000 + 5 * 16 + 3), numbers[5]);
        assert_eq!(list.holding(0x10_000 + (many - 1) * 16), numbers[many as usize - 1]);
    }
}
