//! The mappings of an account: what each belongs to, and how much of it is resident.
//!
//! The kernel merges neighbouring mappings of equal rights into one line of smaps. Such a line is
//! divided where the recorder knows more: at the ends of recorded mappings and of the zeroed data
//! of modules. The resident pages of each part are then counted page by page.

use crate::event::lane;
use crate::event::live_mappings;
use crate::store::accounts::{Accounts, is_profile};
use crate::store::ids::SiteId;
use crate::store::modules::modules;
use crate::store::shared::{Store, store};
use crate::sys::kernel;
use crate::sys::range::Range;
use crate::sys::smaps::Resident;
use crate::sys::{front, memory};
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::Word;
use heaptide_format::{
    ACCOUNT_RANGES, Account, AccountRange, Mode, PAGE, RANGE_BLOCKS, RANGE_EXECUTE, RANGE_GUARDED,
    RANGE_READ, RANGE_RECORDER, RANGE_SHARED, RANGE_STACK, RANGE_WRITE,
};

/// Maximum size of a guard: a mapping without rights below a stack.
const GUARD_MAX: u64 = 256 << 10;
/// Number of pages that are queried at once.
const PRESENT: usize = 64 << 10;
/// Number of ranges of a divided mapping that are searched for one with the same site.
const SEARCHED: usize = 64;

/// Memory in which an account is gathered.
pub struct Scratch {
    memory: *mut u8,
}

impl Scratch {
    const RANGES: usize = ACCOUNT_RANGES * size_of::<AccountRange>();
    const BYTES: usize = Scratch::RANGES + PRESENT;

    /// Maps the memory. Returns none if there is none.
    pub fn map() -> Option<Scratch> {
        let memory = memory::map_briefly(Scratch::BYTES);
        (!memory.is_null()).then_some(Scratch { memory })
    }

    fn range(&self) -> Range {
        let low = self.memory as u64;
        Range { low, high: low + Scratch::BYTES as u64 }
    }

    fn parts(&mut self) -> (&mut [AccountRange], &mut [u8]) {
        let ranges = self.memory as *mut AccountRange;
        let present = self.memory.wrapping_add(Scratch::RANGES);
        // SAFETY: two parts of a mapping that this owns; all zeros is a valid range.
        unsafe {
            let ranges = core::slice::from_raw_parts_mut(ranges, ACCOUNT_RANGES);
            (ranges, core::slice::from_raw_parts_mut(present, PRESENT))
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        unsafe { kernel::unmap(self.memory, Scratch::BYTES) };
    }
}

/// The ranges of an account that is being gathered, in order of address.
pub struct Ranges<'a> {
    accounts: &'a mut Accounts,
    own: OwnMemory,
    room: &'a mut [AccountRange],
    /// For each page, whether it is resident.
    present: &'a mut [u8],
    count: usize,
    /// The mapping listed before, and whether it has any access rights.
    before: Option<(Range, bool)>,
    has_sites: bool,
}

impl<'a> Ranges<'a> {
    /// Starts without ranges. `has_sites`: recorded mappings may be looked up, since the thread
    /// held no lock of the recorder before that of the accounts.
    pub fn new(
        accounts: &'a mut Accounts,
        scratch: &'a mut Scratch,
        has_sites: bool,
    ) -> Ranges<'a> {
        let own = OwnMemory::of(scratch.range());
        let (room, present) = scratch.parts();
        Ranges { accounts, own, room, present, count: 0, before: None, has_sites }
    }

    /// Returns the store of accounts and the ranges that were gathered.
    pub fn finish(self) -> (&'a mut Accounts, &'a mut [AccountRange]) {
        (self.accounts, &mut self.room[..self.count])
    }

    /// Adds a mapping, and its numbers to the sums of the account.
    pub fn add(&mut self, account: &mut Account, mapping: &Resident) {
        account.resident_bytes += (mapping.resident as u64) << 10;
        account.swap_bytes += (mapping.swap as u64) << 10;
        let is_own = self.own.holds(mapping);
        if mapping.resident == 0 {
            account.absent_bytes += if is_own { 0 } else { length(mapping.range) };
        } else if self.count == self.room.len() {
            account.ranges_left_out += 1;
            account.left_out_bytes += (mapping.resident as u64) << 10;
        } else if is_own {
            self.push(mapping, mapping.range, SiteId::NONE, RANGE_RECORDER);
            self.share(account, mapping, self.count - 1);
        } else {
            self.divide(account, mapping);
        }
        let has_rights = mapping.readable || mapping.writable || mapping.executable;
        self.before = Some((mapping.range, has_rights));
    }

    /// Adds the parts of a mapping. If there are more parts than room, the last range includes the
    /// rest.
    fn divide(&mut self, account: &mut Account, mapping: &Resident) {
        let Range { low: start, high } = mapping.range;
        let (first, mut low) = (self.count, start);
        while low < high {
            let (part, site) = self.part(mapping, low);
            let is_whole = part == mapping.range;
            let pages = if is_whole { 1 } else { self.present_pages(mapping, part) };
            let at = self.range_for(mapping, part, site, first);
            if let Some(range) = self.room.get_mut(at) {
                range.length += length(part);
                // a weight until `share`
                range.resident_kib = range.resident_kib.saturating_add(pages);
            }
            low = part.high;
        }
        self.share(account, mapping, first);
    }

    /// Returns the part of a mapping that begins at `low`, and its site.
    fn part(&mut self, mapping: &Resident, low: u64) -> (Range, SiteId) {
        let known = if self.has_sites { live_mappings::known_beside_locks(low) } else { None };
        self.has_sites = known.is_some(); // waiting once is enough
        let (site, mut end) = known.map_or((SiteId::NONE, u64::MAX), |k| (k.site, k.end));
        if site.is_none() && mapping.name().is_empty() {
            end = end.min(modules().end_at(low).unwrap_or(u64::MAX));
        }
        (Range { low, high: end.min(mapping.range.high) }, site)
    }

    /// Returns the resident pages of a part. For files, where the kernel's answer has another
    /// meaning, it returns all pages.
    fn present_pages(&mut self, mapping: &Resident, part: Range) -> u32 {
        let is_anonymous = mapping.name().is_empty() || mapping.name().starts_with(b"[");
        if !is_anonymous || mapping.shared {
            return (length(part) / PAGE) as u32;
        }
        let page = kernel::page_bytes();
        let mut pages = 0;
        let mut low = part.low;
        while low < part.high {
            let bytes = (part.high - low).min(PRESENT as u64 * page);
            let present = kernel::present_pages(low, bytes, self.present);
            pages += present.iter().filter(|&&page| page & 1 != 0).count();
            low += bytes;
        }
        (pages as u64 * (page / PAGE)) as u32
    }

    /// Returns the index of the range to which a part of a mapping belongs: one with the same site,
    /// or a new one. The ranges of the mapping begin at `first`.
    fn range_for(&mut self, mapping: &Resident, part: Range, site: SiteId, first: usize) -> usize {
        let searched = first.max(self.count.saturating_sub(SEARCHED));
        let is_its = |range: &AccountRange| !site.is_none() && range.site == site.number();
        if let Some(at) = self.room[searched..self.count].iter().rposition(is_its) {
            return searched + at;
        }
        if self.count == self.room.len() {
            return self.count - 1;
        }
        let guarded = part.low == mapping.range.low && self.is_guarded(part);
        let mut flags = if guarded { RANGE_GUARDED } else { 0 };
        let stack = stack_of(mapping, part, guarded);
        if stack.is_some() {
            flags |= RANGE_STACK;
        } else if mapping.name().is_empty() && mapping.writable && has_blocks(store(), part) {
            flags |= RANGE_BLOCKS;
        }
        self.push(mapping, Range { low: part.low, high: part.low }, site, flags);
        self.room[self.count - 1].lane = stack.unwrap_or(0);
        self.count - 1
    }

    /// Returns whether a short mapping without rights was listed directly below.
    fn is_guarded(&self, part: Range) -> bool {
        self.before.is_some_and(|(range, rights)| {
            !rights && range.high == part.low && length(range) <= GUARD_MAX
        })
    }

    /// Adds a range. There must be room for it.
    fn push(&mut self, mapping: &Resident, range: Range, site: SiteId, flags: u32) {
        let bit = |is: bool, flag: u32| if is { flag } else { 0 };
        let rights = bit(mapping.readable, RANGE_READ)
            | bit(mapping.writable, RANGE_WRITE)
            | bit(mapping.executable, RANGE_EXECUTE)
            | bit(mapping.shared, RANGE_SHARED);
        self.room[self.count] = AccountRange {
            start: range.low,
            length: length(range),
            flags: flags | rights,
            name: self.accounts.name(mapping.name()).number(),
            site: site.number(),
            ..AccountRange::default()
        };
        self.count += 1;
    }

    /// Divides the mapping's numbers among its ranges, from `first` on; their `resident_kib` hold
    /// the weights. Ranges without resident bytes are removed.
    fn share(&mut self, account: &mut Account, mapping: &Resident, first: usize) {
        let ranges = &mut self.room[first..self.count];
        if let [range] = ranges {
            range.resident_kib = mapping.resident;
            range.private_dirty_kib = mapping.private_dirty;
            range.swap_kib = mapping.swap;
            return;
        }
        let weight = |range: &AccountRange| range.resident_kib as u64;
        divide(mapping.private_dirty, ranges, weight, |range, kib| range.private_dirty_kib = kib);
        divide(mapping.resident, ranges, weight, |range, kib| range.resident_kib = kib);
        let absent =
            |range: &AccountRange| (range.length >> 10).saturating_sub(range.resident_kib as u64);
        divide(mapping.swap, ranges, absent, |range, kib| range.swap_kib = kib);
        let mut kept = 0;
        for at in 0..ranges.len() {
            let range = ranges[at];
            if range.resident_kib == 0 {
                account.absent_bytes += range.length;
            } else {
                ranges[kept] = range;
                kept += 1;
            }
        }
        self.count = first + kept;
    }
}

/// Divides `kib` exactly among ranges by their weights. If all weights are 0, the last range gets
/// all of it.
fn divide(
    kib: u32,
    ranges: &mut [AccountRange],
    weight: impl Fn(&AccountRange) -> u64,
    set: impl Fn(&mut AccountRange, u32),
) {
    let all: u64 = ranges.iter().map(&weight).sum();
    let (mut sum, mut given) = (0, 0);
    for range in ranges.iter_mut() {
        sum += weight(range);
        let until = (kib as u64).saturating_mul(sum).checked_div(all).unwrap_or(0);
        set(range, (until - given) as u32);
        given = until;
    }
    if let (Some(last), 0) = (ranges.last_mut(), all) {
        set(last, kib);
    }
}

fn length(range: Range) -> u64 {
    range.high - range.low
}

/// The locations of the recorder's memory.
struct OwnMemory {
    arenas: [Range; 3],
    code: Range,
    /// The memory in which the account is gathered, and an address on the stack in use.
    scratch: Range,
    stack: u64,
}

impl OwnMemory {
    fn of(scratch: Range) -> OwnMemory {
        let marker = 0u8;
        OwnMemory {
            arenas: memory::ranges(),
            code: front::platform().map_or(Range::EMPTY, |platform| (platform.own_code)()),
            scratch,
            stack: &raw const marker as u64,
        }
    }

    /// Returns whether a mapping is the recorder's. Memory outside of its arenas is recognised by
    /// the settings that the recorder applies to all of its memory: no core dumps, no huge pages.
    fn holds(&self, mapping: &Resident) -> bool {
        let (start, range) = (mapping.range.low, mapping.range);
        let is_anonymous = mapping.name().is_empty();
        self.arenas.iter().any(|arena| arena.holds(start))
            || self.code.holds(start)
            || is_profile(store(), start)
            || range.holds(self.scratch.low)
            || range.holds(self.stack)
            || is_anonymous && mapping.set_apart && !mapping.shared
    }
}

/// Returns the lane of the thread whose stack is a part of a mapping. libc places the control block
/// of a thread above its stack in the same mapping, except for the first thread.
fn stack_of(mapping: &Resident, part: Range, guarded: bool) -> Option<u32> {
    let is_first = mapping.name() == b"[stack]";
    if !guarded && !is_first {
        return None;
    }
    let is_its = |&&lane: &&*mut lane::LaneState| {
        // SAFETY: lanes stay mapped. Words of another thread's lane are read while it may write
        // them.
        let lane = unsafe { &*lane };
        let block = lane.thread_pointer.load(Relaxed);
        let in_use = lane.in_use.load(Relaxed) != 0;
        in_use && (part.holds(lane.stack.low) || !is_first && part.holds(block))
    };
    // SAFETY: as above.
    lane::all().iter().find(is_its).map(|&lane| unsafe { (*lane).index() })
}

/// Returns whether recorded blocks begin in a range, if blocks are recorded by address.
fn has_blocks(p: &Store, range: Range) -> bool {
    let mode = Mode::from_number(p.header().mode.get());
    let has_shadow = mode.is_some_and(|mode| !mode.is_by_lane()) && p.shadow.is_made();
    has_shadow && p.shadow.has_blocks(range.low, range.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(kib: u32, weights: [u32; 3]) -> [u32; 3] {
        let range = |resident_kib| AccountRange { resident_kib, ..AccountRange::default() };
        let mut ranges = weights.map(range);
        let weight = |range: &AccountRange| range.resident_kib as u64;
        divide(kib, &mut ranges, weight, |range, kib| range.swap_kib = kib);
        ranges.map(|range| range.swap_kib)
    }

    #[test]
    fn shares_add_up() {
        assert_eq!(shares(60, [1, 2, 3]), [10, 20, 30]);
        assert_eq!(shares(100, [1, 1, 1]), [33, 33, 34]);
        assert_eq!(shares(7, [0, 0, 0]), [0, 0, 7]);
        assert_eq!(shares(0, [5, 0, 1]), [0, 0, 0]);
        assert_eq!(shares(u32::MAX, [0, u32::MAX, 0]), [0, u32::MAX, 0]);
    }
}
