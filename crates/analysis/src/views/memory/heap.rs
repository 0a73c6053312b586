//! What of the allocator's memory is resident, and as what.
//!
//! The allocator's memory is its arenas and, with glibc, blocks that are mappings of their own; of
//! an allocator beside or instead of glibc's, what it was recorded to map.
//! Sizes of the rows are what allocator and recorder count: live bytes, free bytes, the rest.
//! Resident bytes are the kernel's. Where less is resident than the sizes add up to, some pages
//! were never touched, or were given back: in arenas these are taken for free memory first, for
//! what programs allocate they mostly write, and then for live memory.

use super::mappings::{Class, Sorted};
use super::row::Row;
use crate::model::{Account, AccountRange, AllocatorSource, AllocatorState};

/// Sizes of the allocator's memory, and what is resident.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Heap {
    /// Usable bytes live.
    live: u64,
    /// Bytes free.
    free: u64,
    /// Bytes that are neither: headers, caches, blocks that were not recorded. Where the allocator
    /// has no numbers they are among `free`.
    rest: u64,
    /// Resident bytes of free memory.
    free_resident: u64,
    /// Resident bytes in all.
    resident: u64,
    swap: u64,
    /// Memory without a name that is not the allocator's.
    others: Extent,
}

/// Sums over mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Extent {
    size: u64,
    resident: u64,
    swap: u64,
}

impl Extent {
    fn plus(self, other: Extent) -> Extent {
        Extent {
            size: self.size.saturating_add(other.size),
            resident: self.resident.saturating_add(other.resident),
            swap: self.swap.saturating_add(other.swap),
        }
    }

    fn of<'a>(ranges: impl Iterator<Item = &'a AccountRange>) -> Extent {
        ranges.fold(Extent::default(), |sum, range| Extent {
            size: sum.size.saturating_add(range.length),
            resident: sum.resident.saturating_add(range.resident_bytes),
            swap: sum.swap.saturating_add(range.swap_bytes),
        })
    }
}

/// Bytes of the allocator's memory, of which `all` are mapped: mimalloc knows how many of them it
/// may use.
fn committed(account: &Account, all: u64) -> u64 {
    match account.allocator {
        Some(state) if state.source == AllocatorSource::Mimalloc => {
            all.min(state.arena_bytes.max(account.live_bytes))
        }
        _ => all,
    }
}

/// What is neither live nor free of an allocator other than glibc's: its tables, and blocks that
/// were not recorded.
fn overhead(account: &Account, state: AllocatorState) -> u64 {
    if state.used_bytes == 0 {
        return 0; // not known
    }
    let tables =
        state.arena_bytes.saturating_sub(state.used_bytes.saturating_add(state.free_bytes));
    tables.saturating_add(state.used_bytes.saturating_sub(account.live_bytes))
}

impl Heap {
    pub(super) fn of(account: &Account, sorted: &Sorted) -> Heap {
        let arenas = Extent::of(sorted.of(Class::Arena));
        let blocks = Extent::of(sorted.of(Class::Blocks));
        let taken = Extent::of(sorted.of(Class::Taken));
        let anonymous = Extent::of(sorted.of(Class::Anonymous));
        let outside = match account.glibc() {
            Some(state) => state.mapped_bytes,
            None if blocks.size == 0 && taken.size == 0 => {
                account.live_bytes.saturating_sub(arenas.size)
            }
            None => blocks.size,
        };
        // Of a large mapping, only the first part is searched for blocks, and none without stacks.
        let elsewhere = if outside > blocks.size { anonymous.resident } else { 0 };
        let outside_resident = outside.min(blocks.resident.saturating_add(elsewhere));
        let known = arenas.plus(taken);
        let all = committed(account, known.size.saturating_add(outside));
        let resident = known.resident.saturating_add(outside_resident);
        let unused = all.saturating_sub(account.live_bytes);
        let (free, untouched, free_most) = match account.glibc() {
            Some(state) => {
                // Of another allocator beside glibc, what is not live is free.
                let free = state.free_bytes.min(arenas.size).saturating_add(taken.size);
                (free.min(unused), known.size.saturating_sub(known.resident), known.resident)
            }
            None => {
                let tables = account.allocator.map_or(0, |state| overhead(account, state));
                let free = unused.saturating_sub(tables);
                (free, all.saturating_sub(resident), resident)
            }
        };
        let others = |of: fn(&Extent) -> u64, taken: u64| {
            of(&anonymous).saturating_add(of(&blocks)).saturating_sub(taken)
        };
        Heap {
            live: account.live_bytes,
            free,
            rest: unused - free,
            free_resident: free.saturating_sub(untouched).min(free_most),
            resident,
            swap: known.swap.saturating_add(blocks.swap),
            others: Extent {
                size: others(|extent| extent.size, outside),
                resident: others(|extent| extent.resident, outside_resident),
                swap: anonymous.swap,
            },
        }
    }

    /// Returns the row of the heap; `slack` is the part of live bytes that nobody requested.
    pub(super) fn row(&self, slack: f64) -> Row {
        let used_resident = self.resident.saturating_sub(self.free_resident);
        let rest_resident = self.rest.min(used_resident);
        let live_resident = (used_resident - rest_resident).min(self.live);
        // More than there can be: memory of others, beside that of the allocator.
        let rest_resident = used_resident - live_resident;
        let of = |bytes: u64| (bytes as f64 * slack) as u64;
        let row = |name: &str, resident_bytes, size_bytes| Row {
            name: name.to_owned(),
            resident_bytes,
            size_bytes,
            ..Row::default()
        };
        let (slack_size, slack_resident) = (of(self.live), of(live_resident));
        let children = vec![
            row("live requested", live_resident - slack_resident, self.live - slack_size),
            row("live slack", slack_resident, slack_size),
            row("free", self.free_resident, self.free),
            row("overhead", rest_resident, self.rest),
        ];
        let size = self.live.saturating_add(self.free).saturating_add(self.rest);
        let mut heap = row("heap", self.resident, size);
        heap.swap_bytes = self.swap;
        heap.children = children;
        heap.children.retain(|child| child.resident_bytes > 0 || child.size_bytes > 0);
        heap
    }

    /// Mappings without a name, as far as they are not the heap's.
    pub(super) fn other_anonymous(&self) -> Row {
        let Extent { size, resident, swap } = self.others;
        let mut row = Row { name: "anonymous".to_owned(), ..Row::default() };
        row.add(resident, size, swap);
        row
    }
}
