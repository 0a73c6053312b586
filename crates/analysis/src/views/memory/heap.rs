//! Computes the resident part of the allocator's memory, divided into rows.
//!
//! The allocator's memory consists of its arenas and, with glibc, blocks that are mappings of their
//! own; for another allocator, of its recorded mappings. Sizes of the rows are those of allocator
//! and recorder: live bytes, free bytes, the rest. Resident bytes are those of the kernel. If less
//! is resident than the sum of the sizes, some pages were never touched, or were returned to the
//! kernel. In arenas these pages are attributed to free memory first, because programs write most
//! memory that they allocate, and then to live memory.

use super::mappings::{Class, Sorted};
use super::row::Row;
use crate::model::{Account, AccountRange, AllocatorSource, AllocatorState};

/// Sizes of the allocator's memory, and its resident part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Heap {
    /// Usable bytes live.
    live: u64,
    /// Bytes free.
    free: u64,
    /// Other bytes: headers, caches, blocks that were not recorded. Included in `free` if the
    /// allocator provides no numbers.
    rest: u64,
    /// Resident bytes of free memory.
    free_resident: u64,
    /// Resident bytes of all the allocator's memory.
    resident: u64,
    swap: u64,
    /// Memory without a name that does not belong to the allocator.
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

/// Returns the bytes of the allocator's memory, of which `all` are mapped: mimalloc knows how many
/// of them are committed.
fn committed(account: &Account, all: u64) -> u64 {
    match account.allocator {
        Some(state) if state.source == AllocatorSource::Mimalloc => {
            all.min(state.arena_bytes.max(account.live_bytes))
        }
        _ => all,
    }
}

/// Returns the bytes of an allocator other than glibc's that are neither live nor free: its tables,
/// and blocks that were not recorded.
fn overhead(account: &Account, state: AllocatorState) -> u64 {
    if state.used_bytes == 0 {
        return 0; // not known
    }
    let tables =
        state.arena_bytes.saturating_sub(state.used_bytes.saturating_add(state.free_bytes));
    tables.saturating_add(state.used_bytes.saturating_sub(account.live_bytes))
}

/// Returns the live bytes of another allocator beside glibc's, such as that of a second C library,
/// whose recorded mappings have `taken` bytes. A small part is no evidence of one: the numbers are
/// read one after another.
fn beyond_glibc(account: &Account, taken: u64) -> u64 {
    let used = account.glibc().map_or(0, |state| state.used_bytes);
    let beyond = account.live_bytes.saturating_sub(used.saturating_add(taken));
    if used > 0 && beyond > account.live_bytes / 2 { beyond } else { 0 }
}

impl Heap {
    pub(super) fn of(account: &Account, sorted: &Sorted) -> Heap {
        let arenas = Extent::of(sorted.of(Class::Arena));
        let blocks = Extent::of(sorted.of(Class::Blocks));
        let taken = Extent::of(sorted.of(Class::Taken));
        let anonymous = Extent::of(sorted.of(Class::Anonymous));
        let beyond = beyond_glibc(account, taken.size);
        let outside = match account.glibc() {
            Some(state) => state.mapped_bytes.max(beyond),
            None if blocks.size == 0 && taken.size == 0 => {
                account.live_bytes.saturating_sub(arenas.size)
            }
            None => blocks.size,
        };
        // Large mappings are searched for blocks only in part, and not at all without stacks.
        let may_miss = outside > blocks.size || beyond > 0;
        let elsewhere = if may_miss { anonymous.resident } else { 0 };
        let outside_resident = outside.min(blocks.resident.saturating_add(elsewhere));
        let known = arenas.plus(taken);
        let all = committed(account, known.size.saturating_add(outside));
        let resident = known.resident.saturating_add(outside_resident);
        let unused = all.saturating_sub(account.live_bytes);
        let (free, untouched, free_most) = match account.glibc() {
            Some(state) => {
                // Memory of another allocator beside glibc that is not live counts as free.
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

    /// Returns the row of the heap; `slack` is the part of live bytes that was not requested.
    pub(super) fn row(&self, slack: f64) -> Row {
        let used_resident = self.resident.saturating_sub(self.free_resident);
        let rest_resident = self.rest.min(used_resident);
        let live_resident = (used_resident - rest_resident).min(self.live);
        // The excess over the sizes is memory of others beside that of the allocator.
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

    /// Returns a row for mappings without a name that do not belong to the heap.
    pub(super) fn other_anonymous(&self) -> Row {
        let Extent { size, resident, swap } = self.others;
        let mut row = Row { name: "anonymous".to_owned(), ..Row::default() };
        row.add(resident, size, swap);
        row
    }
}
