//! The accounts of resident memory in the profile: an extent for each, so many of them that they
//! tell the whole run, and no more.

use crate::store::ids::StringId;
use crate::store::profile;
use crate::store::shared::Store;
use crate::sys::memory::{self, InChild};
use core::sync::atomic::Ordering::{Relaxed, Release};
use heaptide_format::shared::{ExtentHeader, Word};
use heaptide_format::{Account, AccountRange, EXTENT_HEADER, Kind, PAGE};

/// Accounts that are kept.
const SLOTS: usize = 64;
/// Names of mappings that are stored once each; a power of two.
const NAMES: usize = 4096;
/// Names are stored up to this fill of the table.
const NAMES_FULL: usize = NAMES / 4 * 3;

/// Where accounts go. Zero is: there are none yet.
pub struct Accounts {
    slots: [Slot; SLOTS],
    used: usize,
    /// Accounts so far.
    count: u64,
    names: Names,
}

/// An extent with an account, and what decides whether it is kept.
#[derive(Clone, Copy)]
struct Slot {
    extent: Option<&'static ExtentHeader>,
    time_ns: u64,
    /// Live bytes of the heap, and mapped ones.
    held_bytes: u64,
}

impl Accounts {
    /// Stores an account; false if there is no room for it.
    pub fn write(&mut self, p: &Store, account: &Account, ranges: &mut [AccountRange]) -> bool {
        let number = self.count + 1;
        let bytes = size_of::<Account>() + size_of_val(ranges);
        let at = if self.used < SLOTS { self.used } else { self.least_needed() };
        let Some(extent) = extent_for(p, self.slots[at].extent, bytes) else {
            return false;
        };
        ranges.iter_mut().for_each(|range| range.account = number as u32);
        let first = profile::first_record(extent);
        // SAFETY: the extent has that many bytes, which only the holder of the accounts writes;
        // readers of a live file check the numbers.
        unsafe {
            (first as *mut Account).write(Account { number, number_again: number, ..*account });
            let to = first.add(size_of::<Account>()) as *mut AccountRange;
            core::ptr::copy_nonoverlapping(ranges.as_ptr(), to, ranges.len());
        }
        extent.committed.store(bytes as u64, Release);
        let (time_ns, held_bytes) = (account.time_ns, account.live_bytes + account.mapped_bytes);
        self.slots[at] = Slot { extent: Some(extent), time_ns, held_bytes };
        self.used = self.used.max(at + 1);
        self.count = number;
        true
    }

    /// Live and mapped bytes of the account with the most of them.
    pub fn highest_bytes(&self) -> u64 {
        self.slots[self.highest()].held_bytes
    }

    /// The last of the accounts with the most live and mapped bytes.
    fn highest(&self) -> usize {
        let slots = self.slots[..self.used].iter().enumerate();
        slots.max_by_key(|(_, slot)| (slot.held_bytes, slot.time_ns)).map_or(0, |(at, _)| at)
    }

    /// The account whose neighbours in time are the closest, the highest, the first and the last
    /// one left out.
    fn least_needed(&self) -> usize {
        let highest = self.highest();
        let gap = |slot: &Slot| {
            let times = self.slots.iter().map(|other| other.time_ns);
            let before = times.clone().filter(|&time| time < slot.time_ns).max();
            let after = times.filter(|&time| time > slot.time_ns).min();
            before.zip(after).map_or(u64::MAX, |(before, after)| after - before)
        };
        let mut chosen = (0, u64::MAX);
        for (at, slot) in self.slots.iter().enumerate() {
            if at != highest && gap(slot) < chosen.1 {
                chosen = (at, gap(slot));
            }
        }
        chosen.0
    }

    /// The string of a mapping's name; none for an empty name, or if there is no room.
    pub fn name(&mut self, name: &[u8]) -> StringId {
        if name.is_empty() { StringId::NONE } else { self.names.get(name) }
    }
}

/// The extent, emptied, if it has room; else a new one, a quarter larger than needed.
fn extent_for(
    p: &Store,
    old: Option<&'static ExtentHeader>,
    bytes: usize,
) -> Option<&'static ExtentHeader> {
    if let Some(old) = old {
        old.committed.store(0, Release);
        if old.length.get() - EXTENT_HEADER >= bytes as u64 {
            return Some(old);
        }
    }
    let length = (bytes as u64 + bytes as u64 / 4 + EXTENT_HEADER).next_multiple_of(PAGE);
    profile::try_extent(p, Kind::Accounts, 0, length).ok()
}

/// Names that have a string already, in a table of open addressing.
struct Names {
    table: *mut (u64, u32),
    used: usize,
}

impl Names {
    fn get(&mut self, name: &[u8]) -> StringId {
        if self.table.is_null() {
            self.table = memory::take(NAMES * size_of::<(u64, u32)>(), InChild::Nothing).cast();
        }
        if self.table.is_null() {
            return StringId::NONE;
        }
        // SAFETY: that many entries, all zero at first, which only the holder of the accounts uses.
        let table = unsafe { core::slice::from_raw_parts_mut(self.table, NAMES) };
        let hash = hash_of(name);
        let mut at = hash as usize;
        loop {
            let (known, id) = &mut table[at % NAMES];
            let string = StringId::new(*id);
            if *id == 0 {
                if self.used >= NAMES_FULL {
                    return StringId::NONE;
                }
                let string = profile::string(name);
                (*known, *id) = (hash, string.number());
                self.used += usize::from(!string.is_none());
                return string;
            }
            if *known == hash && string.bytes() == name {
                return string;
            }
            at = at.wrapping_add(1);
        }
    }
}

/// FNV-1a.
fn hash_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Whether a mapping is the profile's.
pub fn is_profile(p: &Store, address: u64) -> bool {
    address.wrapping_sub(p.base.load(Relaxed) as u64) < p.reserved.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_between_the_closest_neighbours_goes_first() {
        // SAFETY: zeros are accounts without any.
        let mut accounts: Accounts = unsafe { core::mem::zeroed() };
        for (i, slot) in accounts.slots.iter_mut().enumerate() {
            (slot.time_ns, slot.held_bytes) = (100 * i as u64, 7);
        }
        accounts.used = SLOTS;
        accounts.slots[20].held_bytes = 8;
        accounts.slots[20].time_ns = 1950;
        accounts.slots[40].time_ns = 3950;
        // The 20th is the highest: its neighbours are 200 apart as the others, but the one before
        // it has less between them.
        assert_eq!(accounts.least_needed(), 19);
        accounts.slots[19].held_bytes = 9;
        accounts.slots[20].held_bytes = 7;
        assert_eq!(accounts.highest_bytes(), 9);
        // Now that is the 19th, and the next closest neighbours are those of the 39th.
        assert_eq!(accounts.least_needed(), 39);
    }
}
