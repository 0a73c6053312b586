//! Texts about accounts of resident memory.

use heaptide_analysis::model::{Account, AccountMissing, AllocatorSource, Process};
use heaptide_analysis::views::memory::{At, Memory};

use crate::shared::quantity::{bytes, duration};

/// The highest resident memory is stated if it exceeds an account by more than one part in this:
/// smaller differences are memory that came and went between accounts.
const HIGHER_PART: u64 = 4;

/// Returns why there are no accounts after some time.
pub(crate) fn missing_says(missing: AccountMissing) -> &'static str {
    match missing {
        AccountMissing::Confined => {
            "the program confined itself with seccomp, so the recorder may not read \
             /proc/self/smaps"
        }
        AccountMissing::NoProc => "the recorder could not read /proc/self/smaps",
    }
}

/// Returns why a process has no account to show.
pub fn absence(process: &Process) -> &'static str {
    match process.time.accounts.iter().find_map(|account| account.missing) {
        Some(missing) => missing_says(missing),
        None if process.identity.images > 1 => {
            "joined processes have none; select one with --process PID"
        }
        None => {
            "recorded with --no-accounts or by an older version, \
             or the process was killed or called exec before the first one was due"
        }
    }
}

/// Returns the resident bytes of the account nearest to peak usage, and a text with its time and
/// its largest parts.
pub(crate) fn summary(process: &Process) -> Option<(u64, String)> {
    let memory = Memory::of(process, At::Peak)?;
    let mut parts: Vec<(&str, u64)> = Vec::new();
    for row in &memory.rows {
        let free = row.children.iter().find(|child| row.name == "heap" && child.name == "free");
        let free = free.map_or(0, |child| child.resident_bytes);
        parts.push((&row.name, row.resident_bytes - free.min(row.resident_bytes)));
        parts.push(("free in allocator", free));
    }
    parts.push(("unexplained", memory.unexplained_bytes));
    parts.retain(|part| part.1 > 0);
    let parts: Vec<String> =
        parts.iter().map(|(name, n)| format!("{name} {}", bytes(*n))).collect();
    let after = duration(memory.account.time_ns);
    let resident = memory.account.resident_bytes;
    let most = highest_note(resident, highest(process)).unwrap_or_default();
    Some((resident, format!("after {after}{most}: {}", parts.join(", "))))
}

/// Returns the highest resident memory that any account or sample reports: accounts may end early,
/// for lack of memory.
pub(crate) fn highest(process: &Process) -> u64 {
    let accounts = process.time.accounts.iter().map(|account| account.most_resident_bytes);
    accounts.chain(process.time.samples.iter().map(|s| s.resident_bytes)).max().unwrap_or(0)
}

/// Returns a note if the account is far below the highest resident memory: it was taken before the
/// program wrote to blocks that it had allocated.
fn highest_note(resident: u64, highest: u64) -> Option<String> {
    (highest > resident.saturating_add(resident / HIGHER_PART))
        .then(|| format!(", {} at its highest", bytes(highest)))
}

/// Returns how the free memory of the heap was determined.
pub(crate) fn free_from(account: &Account) -> &'static str {
    match account.allocator.map(|state| state.source) {
        Some(AllocatorSource::Glibc) => "by the free lists of glibc",
        Some(AllocatorSource::Jemalloc) => "mapped by jemalloc minus live and its stats.metadata",
        Some(AllocatorSource::Mimalloc) => "committed by mimalloc minus live",
        None => "mapped by the allocator minus live",
    }
}

/// Returns what the allocator reported about its memory at the time of an account, if available.
pub(crate) fn allocator_says(account: &Account) -> Option<String> {
    let state = account.allocator?;
    let [arena, used, free, mapped] =
        [state.arena_bytes, state.used_bytes, state.free_bytes, state.mapped_bytes].map(bytes);
    Some(match state.source {
        AllocatorSource::Glibc => format!(
            "glibc: arenas {arena}, of which {used} in use and {free} free; separately mapped \
             blocks {mapped}"
        ),
        AllocatorSource::Jemalloc => {
            format!("jemalloc: resident {arena}, of which {used} in use and {free} free")
        }
        AllocatorSource::Mimalloc => format!("mimalloc: committed {arena}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program filled its blocks after the last allocation; the line had 11.2 of 19.3 MiB.
    #[test]
    fn a_much_higher_resident_memory_is_stated() {
        let mib = |n: u64| n << 20;
        let note = highest_note(mib(11), mib(19));
        assert_eq!(note.as_deref(), Some(", 19.0 MiB at its highest"));
        assert_eq!(highest_note(mib(16), mib(20)), None);
        assert_eq!(highest_note(mib(16), 0), None);
        assert_eq!(highest_note(u64::MAX, u64::MAX), None);
    }
}
