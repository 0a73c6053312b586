//! Accounts of resident memory in the profile, each in an extent of its own. Their number is
//! bounded; those that are kept are spread over the whole run.

use crate::store::budgets::ACCOUNTS_MAX as SLOTS;
use crate::store::ids::StringId;
use crate::store::profile;
use crate::store::shared::Store;
use crate::sys::memory::{self, InChild};
use core::sync::atomic::Ordering::{Relaxed, Release};
use heaptide_format::shared::{ExtentHeader, Word};
use heaptide_format::{ACCOUNT_HELD_PART, Account, AccountRange, EXTENT_HEADER, Kind, PAGE};

/// Entries of the table of mapping names; a power of two.
const NAMES: usize = 4096;
/// Number of names at which the table counts as full; further names are not stored.
const NAMES_FULL: usize = NAMES / 4 * 3;

/// The extents that hold the accounts. All zeros: no accounts yet.
pub struct Accounts {
    slots: [Slot; SLOTS],
    used: usize,
    /// Number of accounts written so far.
    count: u64,
    names: Names,
}

/// An extent that holds an account, and the values that decide whether the account is kept.
#[derive(Clone, Copy)]
struct Slot {
    extent: Option<&'static ExtentHeader>,
    time_ns: u64,
    /// Live heap bytes plus mapped bytes.
    held_bytes: u64,
    resident_bytes: u64,
    /// Resident bytes that no file has.
    private_bytes: u64,
}

impl Accounts {
    /// Stores an account of a process that has this many resident bytes that no file has. Returns
    /// false if there is no room for it.
    pub fn write(
        &mut self,
        p: &Store,
        account: &Account,
        private_bytes: u64,
        ranges: &mut [AccountRange],
    ) -> bool {
        let number = self.count + 1;
        let bytes = size_of::<Account>() + size_of_val(ranges);
        let at = if self.used < SLOTS { self.used } else { self.least_needed() };
        let Some(extent) = extent_for(p, self.slots[at].extent, bytes) else {
            return false;
        };
        ranges.iter_mut().for_each(|range| range.account = number as u32);
        let first = profile::first_record(extent);
        // SAFETY: the extent has that many bytes, and only the holder of the accounts writes them;
        // readers of a live file check both numbers.
        unsafe {
            (first as *mut Account).write(Account { number, number_again: number, ..*account });
            let to = first.add(size_of::<Account>()) as *mut AccountRange;
            core::ptr::copy_nonoverlapping(ranges.as_ptr(), to, ranges.len());
        }
        extent.committed.store(bytes as u64, Release);
        let (time_ns, held_bytes) = (account.time_ns, account.live_bytes + account.mapped_bytes);
        let resident_bytes = account.resident_bytes;
        let extent = Some(extent);
        self.slots[at] = Slot { extent, time_ns, held_bytes, resident_bytes, private_bytes };
        self.used = self.used.max(at + 1);
        self.count = number;
        true
    }

    /// Returns the live and mapped bytes of the account with the highest sum.
    pub fn highest_bytes(&self) -> u64 {
        self.slots[self.highest()].held_bytes
    }

    /// Returns the latest of the accounts with the highest sum of live and mapped bytes.
    fn highest(&self) -> usize {
        let slots = self.slots[..self.used].iter().enumerate();
        slots.max_by_key(|(_, slot)| (slot.held_bytes, slot.time_ns)).map_or(0, |(at, _)| at)
    }

    /// Returns the private bytes of the account with the most resident bytes of those that are
    /// about as high as the highest.
    pub fn fullest_bytes(&self) -> u64 {
        self.slots[self.fullest()].private_bytes
    }

    /// Returns the latest of the accounts with the most resident bytes that are about as high as
    /// the highest.
    fn fullest(&self) -> usize {
        let highest = self.highest_bytes();
        let slots = self.slots[..self.used].iter().enumerate();
        let near = slots.filter(|(_, slot)| is_about(slot.held_bytes, highest));
        near.max_by_key(|(_, slot)| (slot.resident_bytes, slot.time_ns)).map_or(0, |(at, _)| at)
    }

    /// Returns the account whose neighbours in time are closest to each other. The highest, the
    /// fullest, the first and the last account are never chosen.
    fn least_needed(&self) -> usize {
        let needed = [self.highest(), self.fullest()];
        let gap = |slot: &Slot| {
            let times = self.slots.iter().map(|other| other.time_ns);
            let before = times.clone().filter(|&time| time < slot.time_ns).max();
            let after = times.filter(|&time| time > slot.time_ns).min();
            before.zip(after).map_or(u64::MAX, |(before, after)| after - before)
        };
        let mut chosen = (0, u64::MAX);
        for (at, slot) in self.slots.iter().enumerate() {
            if !needed.contains(&at) && gap(slot) < chosen.1 {
                chosen = (at, gap(slot));
            }
        }
        chosen.0
    }

    /// Returns the string of a mapping's name; none for an empty name, or if there is no room.
    pub fn name(&mut self, name: &[u8]) -> StringId {
        if name.is_empty() { StringId::NONE } else { self.names.get(name) }
    }
}

/// Returns whether `held` live and mapped bytes are about as many as those of the highest account.
pub fn is_about(held: u64, highest: u64) -> bool {
    held >= highest - highest / ACCOUNT_HELD_PART
}

/// Returns `old`, emptied, if it has room, or a new extent that is a quarter larger than needed.
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

/// Names that already have a string, in a table with open addressing.
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
        // SAFETY: the table has that many entries, all zero at first, and only the holder of the
        // accounts uses it.
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

/// Returns the FNV-1a hash.
fn hash_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns whether the mapping at `address` is the profile's.
pub fn is_profile(p: &Store, address: u64) -> bool {
    address.wrapping_sub(p.base.load(Relaxed) as u64) < p.reserved.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_between_the_closest_neighbours_goes_first() {
        // SAFETY: all zeros is a valid, empty value.
        let mut accounts: Accounts = unsafe { core::mem::zeroed() };
        for (i, slot) in accounts.slots.iter_mut().enumerate() {
            (slot.time_ns, slot.held_bytes) = (100 * i as u64, 7);
        }
        accounts.used = SLOTS;
        accounts.slots[20].held_bytes = 8;
        accounts.slots[20].time_ns = 1950;
        accounts.slots[40].time_ns = 3950;
        // Slot 20 is the highest. Its neighbours are 200 apart, like most, but those of slot 19 are
        // only 150 apart.
        assert_eq!(accounts.least_needed(), 19);
        accounts.slots[19].held_bytes = 9;
        accounts.slots[20].held_bytes = 7;
        assert_eq!(accounts.highest_bytes(), 9);
        // Slot 19 is the highest now, and the next closest neighbours are those of slot 39.
        assert_eq!(accounts.least_needed(), 39);
    }
}
