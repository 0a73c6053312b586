//! The resident memory of processes, as JSON.

use std::io::{self, Write};

use heaptide_analysis::model::{Account, AccountCause, AllocatorState, Process, Recording};
use heaptide_analysis::views::memory::{At, Memory, Row};

use crate::json::document;
use crate::shared::accounts::{absence, free_from};
use crate::shared::quantity::seconds;

/// Writes the resident memory of each selected process as JSON.
///
/// Errors: those of `out`.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    pid: Option<u32>,
    at: At,
) -> io::Result<()> {
    document::write(out, recording, pid, |process| {
        let account = Memory::of(process, at).map(|memory| AccountEntry::of(&memory));
        let missing = account.is_none().then(|| absence(process));
        MemoryEntry {
            peak_time_s: seconds(process.peak_time_ns),
            peak_bytes: process.totals.peak_bytes,
            account,
            missing,
        }
    })
}

#[derive(serde::Serialize)]
struct MemoryEntry {
    peak_time_s: f64,
    peak_bytes: u64,
    account: Option<AccountEntry>,
    missing: Option<&'static str>,
}

/// An account and its rows.
#[derive(serde::Serialize)]
pub(crate) struct AccountEntry {
    time_s: f64,
    cause: &'static str,
    resident_bytes: u64,
    accounted_bytes: u64,
    unexplained_bytes: u64,
    swap_bytes: u64,
    absent_bytes: u64,
    page_table_bytes: u64,
    most_resident_bytes: u64,
    live_bytes: u64,
    mapped_bytes: u64,
    free_from: &'static str,
    allocator: Option<AllocatorEntry>,
    rows: Vec<RowEntry>,
}

#[derive(serde::Serialize)]
struct AllocatorEntry {
    source: &'static str,
    arena_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    mapped_bytes: u64,
}

#[derive(serde::Serialize)]
struct RowEntry {
    name: String,
    resident_bytes: u64,
    size_bytes: u64,
    swap_bytes: u64,
    children: Vec<RowEntry>,
}

impl AccountEntry {
    pub(crate) fn of(memory: &Memory) -> AccountEntry {
        let Account { time_ns, cause, resident_bytes, swap_bytes, .. } = *memory.account;
        AccountEntry {
            time_s: seconds(time_ns),
            cause: match cause {
                AccountCause::Sample => "sample",
                AccountCause::Peak => "peak",
                AccountCause::End => "end",
                AccountCause::Now => "now",
            },
            resident_bytes,
            accounted_bytes: memory.accounted_bytes(),
            unexplained_bytes: memory.unexplained_bytes,
            swap_bytes,
            absent_bytes: memory.account.absent_bytes,
            page_table_bytes: memory.account.page_table_bytes,
            most_resident_bytes: memory.account.most_resident_bytes,
            live_bytes: memory.account.live_bytes,
            mapped_bytes: memory.account.mapped_bytes,
            free_from: free_from(memory.account),
            allocator: memory.account.allocator.map(AllocatorEntry::of),
            rows: memory.rows.iter().map(RowEntry::of).collect(),
        }
    }

    /// Returns the accounts of a process in order of time, without the children of rows.
    pub(crate) fn over_time(process: &Process) -> Vec<AccountEntry> {
        let entry = |memory: Memory| {
            let mut entry = AccountEntry::of(&memory);
            entry.rows.iter_mut().for_each(|row| row.children.clear());
            entry
        };
        Memory::over_time(process).map(entry).collect()
    }
}

impl AllocatorEntry {
    fn of(state: AllocatorState) -> AllocatorEntry {
        let AllocatorState { source, arena_bytes, used_bytes, free_bytes, mapped_bytes } = state;
        let source = source.name();
        AllocatorEntry { source, arena_bytes, used_bytes, free_bytes, mapped_bytes }
    }
}

impl RowEntry {
    fn of(row: &Row) -> RowEntry {
        RowEntry {
            name: row.name.clone(),
            resident_bytes: row.resident_bytes,
            size_bytes: row.size_bytes,
            swap_bytes: row.swap_bytes,
            children: row.children.iter().map(RowEntry::of).collect(),
        }
    }
}
