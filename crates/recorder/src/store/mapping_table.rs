//! The ranges of live mappings: which pages belong to which mapping. It stays exact when mappings
//! are replaced or unmapped in parts.
//!
//! Ranges are kept in order of address in pieces of one page each, found through an array of the
//! pieces. A lookup takes two binary searches, a change moves at most one page. Programs have some
//! tens of mappings, allocators thousands, so the array rarely has more than some tens of entries.

use crate::store::ids::SiteId;
use crate::store::outside_records::Gone;
use crate::sys::memory::{self, InChild};
use crate::sys::range::Range;
use core::ptr::null_mut;
use heaptide_format::PAGE;

/// A mapping of which at least one range is live or being unmapped.
#[repr(C)]
struct Mapping {
    /// The next free one, in the pool's list.
    next: *mut Mapping,
    site: SiteId,
    /// Number of ranges in the table.
    ranges: u32,
    /// Number of ranges that were taken out and may be put back.
    taken: u32,
    /// Size of the whole mapping when it was created.
    bytes: u64,
}

/// A range of pages that belongs to one mapping.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    range: Range,
    mapping: *mut Mapping,
}

/// Entries that fit in one page.
const PER_PIECE: usize = (PAGE as usize - 16) / size_of::<Entry>();

/// A page of entries, in order of address.
#[repr(C)]
struct Piece {
    next: *mut Piece,
    count: usize,
    entries: [Entry; PER_PIECE],
}

/// A range that was taken out of the table. It is put back ([`Table::put_back`]) or is forgotten
/// ([`Table::forget`]).
#[derive(Clone, Copy)]
pub struct Taken {
    range: Range,
    mapping: *mut Mapping,
}

impl Taken {
    pub const NONE: Taken = Taken { range: Range::EMPTY, mapping: null_mut() };
}

/// A part of a mapping that leaves the table or is put back.
#[derive(Clone, Copy)]
pub struct Part {
    pub taken: Taken,
    pub gone: Gone,
}

/// The table's result for an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The site of the mapping at the address, or none.
    pub site: SiteId,
    /// Where this result ends: at the end of the range, or at the start of the next one.
    pub end: u64,
}

/// The ranges of all live mappings. All zeros: none.
#[repr(C)]
pub struct Table {
    pieces: *mut *mut Piece,
    count: usize,
    capacity: usize,
    free_pieces: *mut Piece,
    free_mappings: *mut Mapping,
}

/// The position of an entry, existing or to be inserted.
#[derive(Clone, Copy)]
struct Place {
    piece: usize,
    entry: usize,
}

impl Table {
    /// The table of no mappings.
    #[cfg(test)]
    const EMPTY: Table = Table {
        pieces: null_mut(),
        count: 0,
        capacity: 0,
        free_pieces: null_mut(),
        free_mappings: null_mut(),
    };

    /// Adds a mapping to a free range. Returns false if there is no memory.
    pub fn add(&mut self, range: Range, site: SiteId) -> bool {
        let Some(mapping) = self.new_mapping() else {
            return false;
        };
        let new = Mapping { next: null_mut(), site, ranges: 1, taken: 0, bytes: length(range) };
        // SAFETY: memory of a mapping that nothing else refers to.
        unsafe { mapping.write(new) };
        let added = self.insert(Entry { range, mapping });
        if !added {
            self.release(mapping, |m| m.ranges = 0);
        }
        added
    }

    /// Takes out the parts within `range` and passes each to `each`, which returns whether the part
    /// may be put back. Returns false if a remainder outside of `range` could not be stored; it is
    /// taken out as well.
    pub fn cut(&mut self, range: Range, mut each: impl FnMut(Part) -> bool) -> bool {
        let mut is_whole = true;
        while let Some((place, entry)) = self.first_from(range.low) {
            if entry.range.low >= range.high {
                break;
            }
            is_whole &= self.cut_entry(place, entry, range, &mut each);
        }
        is_whole
    }

    fn cut_entry(
        &mut self,
        place: Place,
        entry: Entry,
        range: Range,
        each: &mut impl FnMut(Part) -> bool,
    ) -> bool {
        let Range { low, high } = entry.range;
        let mut taken = Range { low: low.max(range.low), high: high.min(range.high) };
        let mut stored = true;
        match (low < taken.low, taken.high < high) {
            (false, false) => self.remove(place),
            (false, true) => self.at(place).range.low = taken.high,
            (true, false) => self.at(place).range.high = taken.low,
            (true, true) => {
                self.at(place).range.high = taken.low;
                let rest = Entry { range: Range { low: taken.high, high }, ..entry };
                stored = self.insert(rest);
                if stored {
                    // SAFETY: the mapping of a live entry.
                    unsafe { (*entry.mapping).ranges += 1 };
                } else {
                    taken.high = high;
                }
            }
        }
        self.take(entry.mapping, taken, taken == entry.range, each);
        stored
    }

    /// Counts a part of a mapping as taken out. `is_entry`: the part was a whole entry.
    fn take(
        &mut self,
        mapping: *mut Mapping,
        range: Range,
        is_entry: bool,
        each: &mut impl FnMut(Part) -> bool,
    ) {
        // SAFETY: the mapping of an entry that was live until now.
        let m = unsafe { &mut *mapping };
        m.ranges -= is_entry as u32;
        m.taken += 1;
        let taken = Taken { range, mapping };
        if !each(part_of(m, taken)) {
            self.forget(taken);
        }
    }

    /// Forgets a part that will not be put back.
    pub fn forget(&mut self, taken: Taken) {
        self.release(taken.mapping, |m| m.taken -= 1);
    }

    /// Puts a part back into a range in which nothing has been mapped since. Returns none, and
    /// forgets the part, if there is no memory.
    pub fn put_back(&mut self, taken: Taken) -> Option<Part> {
        if !self.insert(Entry { range: taken.range, mapping: taken.mapping }) {
            self.forget(taken);
            return None;
        }
        // SAFETY: a mapping with a part taken out is not released.
        let m = unsafe { &mut *taken.mapping };
        let part = part_of(m, taken);
        m.taken -= 1;
        m.ranges += 1;
        Some(part)
    }

    /// Returns the mapping at an address, or where the next one begins.
    pub fn known(&self, address: u64) -> Known {
        match self.first_from(address) {
            None => Known { site: SiteId::NONE, end: u64::MAX },
            Some((_, entry)) if entry.range.low > address => {
                Known { site: SiteId::NONE, end: entry.range.low }
            }
            Some((_, entry)) => {
                // SAFETY: the mapping of a live entry.
                Known { site: unsafe { (*entry.mapping).site }, end: entry.range.high }
            }
        }
    }

    /// Returns the site and the range of a mapping that begins at an address and is whole.
    pub fn whole_at(&self, start: u64) -> Option<(SiteId, Range)> {
        let (_, entry) = self.first_from(start).filter(|(_, entry)| entry.range.low == start)?;
        // SAFETY: the mapping of a live entry.
        let mapping = unsafe { &*entry.mapping };
        let is_whole = mapping.ranges == 1 && mapping.bytes == length(entry.range);
        is_whole.then_some((mapping.site, entry.range))
    }

    /// Changes the site of the mapping that begins at an address.
    pub fn set_site(&mut self, start: u64, site: SiteId) {
        if let Some((_, entry)) = self.first_from(start) {
            // SAFETY: the mapping of a live entry; the table is borrowed exclusively.
            unsafe { (*entry.mapping).site = site };
        }
    }

    /// Returns the range of the mapping that begins at an address, up to the first gap; none if no
    /// mapping begins there.
    pub fn range_from(&self, start: u64) -> Option<Range> {
        let (_, first) = self.first_from(start)?;
        if first.range.low != start {
            return None;
        }
        let mut range = first.range;
        while let Some((_, entry)) = self.first_from(range.high) {
            if entry.range.low != range.high || entry.mapping != first.mapping {
                break;
            }
            range.high = entry.range.high;
        }
        Some(range)
    }

    fn piece(&self, index: usize) -> &Piece {
        // SAFETY: entries below `count` point to pieces of the table, which is borrowed.
        unsafe { &**self.pieces.wrapping_add(index) }
    }

    fn piece_mut(&mut self, index: usize) -> &mut Piece {
        // SAFETY: as above; the table is borrowed exclusively.
        unsafe { &mut **self.pieces.wrapping_add(index) }
    }

    fn at(&mut self, place: Place) -> &mut Entry {
        &mut self.piece_mut(place.piece).entries[place.entry]
    }

    /// Returns the first entry that ends above an address.
    fn first_from(&self, address: u64) -> Option<(Place, Entry)> {
        let ends_above = |piece: usize| {
            let piece = self.piece(piece);
            piece.entries[piece.count - 1].range.high > address
        };
        let piece = first(self.count, ends_above)?;
        let entries = &self.piece(piece).entries;
        let count = self.piece(piece).count;
        let entry = first(count, |i| entries[i].range.high > address)?;
        Some((Place { piece, entry }, entries[entry]))
    }

    /// Inserts an entry that overlaps no other. Returns false if there is no memory.
    fn insert(&mut self, entry: Entry) -> bool {
        let place = match self.first_from(entry.range.low) {
            Some((place, _)) => place,
            None if self.count == 0 => {
                if !self.insert_piece(0) {
                    return false;
                }
                Place { piece: 0, entry: 0 }
            }
            None => {
                let piece = self.count - 1;
                Place { piece, entry: self.piece(piece).count }
            }
        };
        let Some(Place { piece, entry: at }) = self.make_room(place) else {
            return false;
        };
        let piece = self.piece_mut(piece);
        piece.entries.copy_within(at..piece.count, at + 1);
        piece.entries[at] = entry;
        piece.count += 1;
        true
    }

    /// Returns the place at which to insert an entry, after splitting the piece if it is full.
    fn make_room(&mut self, place: Place) -> Option<Place> {
        const HALF: usize = PER_PIECE / 2;
        if self.piece(place.piece).count < PER_PIECE {
            return Some(place);
        }
        if !self.insert_piece(place.piece + 1) {
            return None;
        }
        // SAFETY: two pieces of the table, which is borrowed exclusively.
        let (left, right) = unsafe {
            let left = self.pieces.wrapping_add(place.piece);
            (&mut **left, &mut **left.wrapping_add(1))
        };
        right.entries[..PER_PIECE - HALF].copy_from_slice(&left.entries[HALF..]);
        (left.count, right.count) = (HALF, PER_PIECE - HALF);
        Some(match place.entry.checked_sub(HALF) {
            Some(entry) => Place { piece: place.piece + 1, entry },
            None => place,
        })
    }

    fn remove(&mut self, place: Place) {
        let piece = self.piece_mut(place.piece);
        piece.entries.copy_within(place.entry + 1..piece.count, place.entry);
        piece.count -= 1;
        if piece.count == 0 {
            self.remove_piece(place.piece);
        }
    }

    /// Inserts an empty piece at an index.
    fn insert_piece(&mut self, index: usize) -> bool {
        if self.count == self.capacity && !self.enlarge() {
            return false;
        }
        let piece = match self.free_pieces {
            free if free.is_null() => memory::take(PAGE as usize, InChild::Nothing) as *mut Piece,
            free => {
                // SAFETY: `remove_piece` put the piece there.
                self.free_pieces = unsafe { (*free).next };
                free
            }
        };
        if piece.is_null() {
            return false;
        }
        // SAFETY: a page of its own; the array has room for one more.
        unsafe {
            (*piece).count = 0;
            let at = self.pieces.add(index);
            core::ptr::copy(at, at.add(1), self.count - index);
            at.write(piece);
        }
        self.count += 1;
        true
    }

    fn remove_piece(&mut self, index: usize) {
        // SAFETY: an entry of the array; the piece is empty and no longer found.
        unsafe {
            let at = self.pieces.add(index);
            let piece = *at;
            core::ptr::copy(at.add(1), at, self.count - index - 1);
            (*piece).next = self.free_pieces;
            self.free_pieces = piece;
        }
        self.count -= 1;
    }

    /// Doubles the array of pieces.
    fn enlarge(&mut self) -> bool {
        const LEAST: usize = PAGE as usize / size_of::<*mut Piece>();
        let capacity = (self.capacity * 2).max(LEAST);
        let bytes = |capacity: usize| capacity * size_of::<*mut Piece>();
        let memory = memory::take(bytes(capacity), InChild::Nothing);
        if memory.is_null() {
            return false;
        }
        let old = (self.pieces, self.capacity);
        self.pieces = memory as *mut *mut Piece;
        self.capacity = capacity;
        if old.1 > 0 {
            // SAFETY: as many entries as the old array has; nothing refers to it after this.
            unsafe {
                core::ptr::copy_nonoverlapping(old.0, self.pieces, self.count);
                memory::release(old.0 as *mut u8, bytes(old.1), InChild::Nothing);
            }
        }
        true
    }

    fn new_mapping(&mut self) -> Option<*mut Mapping> {
        if self.free_mappings.is_null() {
            let page = memory::take(PAGE as usize, InChild::Nothing) as *mut Mapping;
            if page.is_null() {
                return None;
            }
            for i in 0..PAGE as usize / size_of::<Mapping>() {
                let mapping = page.wrapping_add(i);
                // SAFETY: within the page, which nothing else refers to.
                unsafe { (*mapping).next = self.free_mappings };
                self.free_mappings = mapping;
            }
        }
        let mapping = self.free_mappings;
        // SAFETY: the first of the list of free ones.
        self.free_mappings = unsafe { (*mapping).next };
        Some(mapping)
    }

    /// Changes a mapping, and releases it if nothing refers to it afterwards.
    fn release(&mut self, mapping: *mut Mapping, change: impl FnOnce(&mut Mapping)) {
        // SAFETY: the mapping is in use, since a range or a part refers to it.
        let m = unsafe { &mut *mapping };
        change(m);
        if m.ranges == 0 && m.taken == 0 {
            m.next = self.free_mappings;
            self.free_mappings = mapping;
        }
    }
}

fn part_of(mapping: &Mapping, taken: Taken) -> Part {
    let gone = Gone {
        site: mapping.site,
        bytes: length(taken.range),
        whole_bytes: mapping.bytes,
        is_last: mapping.ranges == 0,
    };
    Part { taken, gone }
}

fn length(range: Range) -> u64 {
    range.high - range.low
}

/// Returns the first of `count` indices for which `is_after` holds; it must also hold for all that
/// follow.
fn first(count: usize, is_after: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_after(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (low < count).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    /// A model of the table: the mapping's number and its site, for each page.
    type Pages = BTreeMap<u64, (u32, u32)>;

    fn range(page: u64, pages: u64) -> Range {
        Range { low: page * PAGE, high: (page + pages) * PAGE }
    }

    /// The table and the model, which receive the same changes.
    struct Both {
        table: Table,
        pages: Pages,
        mappings: u32,
    }

    impl Both {
        fn new() -> Both {
            Both { table: Table::EMPTY, pages: Pages::new(), mappings: 0 }
        }

        /// Removes pages from the model. Returns bytes by site, and the sites of mappings that are
        /// gone.
        fn expect(&mut self, page: u64, pages: u64) -> (BTreeMap<u32, u64>, Vec<u32>) {
            let mut bytes = BTreeMap::new();
            let mut gone = Vec::new();
            for page in page..page + pages {
                if let Some((mapping, site)) = self.pages.remove(&page) {
                    *bytes.entry(site).or_insert(0) += PAGE;
                    if self.pages.values().all(|(other, _)| *other != mapping) {
                        gone.push(site);
                    }
                }
            }
            gone.sort_unstable();
            (bytes, gone)
        }

        /// Cuts both, and returns the parts that may be put back.
        fn cut(&mut self, page: u64, pages: u64, keep: bool) -> Vec<Part> {
            let (mut bytes, mut gone, mut parts) = (BTreeMap::new(), Vec::new(), Vec::new());
            assert!(self.table.cut(range(page, pages), |part| {
                *bytes.entry(part.gone.site.number()).or_insert(0) += part.gone.bytes;
                if part.gone.is_last {
                    gone.push(part.gone.site.number());
                }
                parts.push(part);
                keep
            }));
            gone.sort_unstable();
            assert_eq!((bytes, gone), self.expect(page, pages));
            parts
        }

        fn map(&mut self, page: u64, pages: u64, site: u32) {
            self.cut(page, pages, false);
            assert!(self.table.add(range(page, pages), SiteId::new(site)));
            self.mappings += 1;
            let mapping = self.mappings;
            self.pages.extend((page..page + pages).map(|page| (page, (mapping, site))));
        }

        fn same(&self, pages: u64) {
            for page in 0..pages {
                let site = self.pages.get(&page).map_or(0, |(_, site)| *site);
                let known = self.table.known(page * PAGE + 7);
                assert_eq!(known.site.number(), site, "page {page}");
                let is_same = |other: &u64| {
                    self.pages.get(other).map(|m| m.0) == self.pages.get(&page).map(|m| m.0)
                };
                if known.end != u64::MAX {
                    let to = known.end / PAGE;
                    assert!(to > page && (page..to).all(|other| is_same(&other)), "page {page}");
                }
            }
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.0 >> 33) % n
        }
    }

    #[test]
    fn a_whole_mapping_can_change_its_site() {
        let mut table = Table::EMPTY;
        let range = |low, high| Range { low: low * PAGE, high: high * PAGE };
        assert!(table.add(range(10, 14), SiteId::new(1)));
        assert_eq!(table.whole_at(11 * PAGE), None, "it begins elsewhere");
        assert_eq!(table.whole_at(10 * PAGE), Some((SiteId::new(1), range(10, 14))));
        table.set_site(10 * PAGE, SiteId::new(2));
        assert_eq!(table.known(11 * PAGE).site, SiteId::new(2));
        table.cut(range(11, 12), |_| false);
        assert_eq!(table.whole_at(10 * PAGE), None, "a part is gone");
    }

    #[test]
    fn any_sequence_is_right_page_by_page() {
        const PAGES: u64 = 400;
        const STEPS: usize = if cfg!(miri) { 150 } else { 3000 };
        let (mut both, mut random) = (Both::new(), Random(1));
        for step in 0..STEPS {
            // Short ones first, so that many pieces result.
            let longest = if step % 1000 < 700 { 2 } else { 60 };
            let pages = 1 + random.below(longest);
            let page = random.below(PAGES - pages);
            match random.below(8) {
                0..=3 => both.map(page, pages, 1 + random.below(40) as u32),
                4 | 5 => drop(both.cut(page, pages, false)),
                6 => {
                    // An unmapping that fails.
                    let before = both.pages.clone();
                    for part in both.cut(page, pages, true) {
                        assert!(both.table.put_back(part.taken).is_some());
                    }
                    both.pages = before;
                }
                _ => {
                    // A move: the old range goes, the new one is another mapping.
                    both.cut(page, pages, false);
                    let to = random.below(PAGES - 2 * pages);
                    both.map(to, 2 * pages, 50);
                }
            }
            if step % 50 == 0 {
                both.same(PAGES);
            }
        }
        both.cut(0, PAGES, false);
        assert!(both.pages.is_empty() && both.table.count == 0);
    }

    #[test]
    fn pieces_are_divided_and_used_again() {
        const MANY: u64 = 4 * PER_PIECE as u64;
        let mut table = Table::EMPTY;
        for turn in 0..2 {
            for page in (0..MANY).rev() {
                assert!(table.add(range(2 * page, 1), SiteId::new(1)));
            }
            assert!(table.count >= 4, "turn {turn}");
            assert!(table.cut(range(0, 2 * MANY), |part| !part.gone.is_last));
            assert_eq!(table.count, 0);
        }
        assert!(!table.free_pieces.is_null());
    }

    #[test]
    fn a_mapping_is_gone_with_its_last_range() {
        let mut table = Table::EMPTY;
        assert!(table.add(range(10, 10), SiteId::new(3)));
        let mut lasts = Vec::new();
        for (page, pages) in [(13, 2), (10, 3), (15, 5)] {
            assert!(table.cut(range(page, pages), |part| {
                lasts.push((
                    part.gone.bytes / PAGE,
                    part.gone.is_last,
                    part.gone.whole_bytes / PAGE,
                ));
                false
            }));
        }
        assert_eq!(lasts, [(2, false, 10), (3, false, 10), (5, true, 10)]);
    }

    #[test]
    fn a_part_that_comes_back_makes_its_mapping_live() {
        let mut table = Table::EMPTY;
        assert!(table.add(range(0, 4), SiteId::new(3)));
        let mut first = Taken::NONE;
        table.cut(range(0, 2), |part| {
            first = part.taken;
            true
        });
        // Another thread unmaps the rest, so nothing of the mapping is left.
        table.cut(range(2, 2), |part| {
            assert!(part.gone.is_last);
            false
        });
        assert!(table.put_back(first).is_some_and(|part| part.gone.is_last));
        assert_eq!(table.known(0), Known { site: SiteId::new(3), end: 2 * PAGE });
        assert_eq!(table.known(2 * PAGE), Known { site: SiteId::NONE, end: u64::MAX });
    }

    #[test]
    fn the_range_of_a_mapping_goes_to_its_first_gap() {
        let mut table = Table::EMPTY;
        assert!(table.add(range(4, 4), SiteId::new(1)));
        assert!(table.add(range(8, 4), SiteId::new(2)));
        assert_eq!(table.range_from(4 * PAGE), Some(range(4, 4)));
        assert_eq!(table.range_from(5 * PAGE), None);
    }
}
