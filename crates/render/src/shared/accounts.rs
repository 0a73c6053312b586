//! Texts about accounts of resident memory.

use heaptide_analysis::model::{Account, AccountMissing, AllocatorSource, Process};
use heaptide_analysis::views::memory::{At, Memory};

use crate::shared::quantity::{bytes, duration};

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
    Some((memory.account.resident_bytes, format!("after {after}: {}", parts.join(", "))))
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
