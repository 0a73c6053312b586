//! The resident part of what a program mapped for its own data.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::{Account, AccountRange, MappingClass, Process};

/// Resident memory of a kind at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resident {
    /// Resident bytes of it.
    pub bytes: u64,
    /// Resident bytes of the process.
    pub of_bytes: u64,
    /// Nanoseconds from the start.
    pub time_ns: u64,
}

/// What a program mapped for its own data, in the account in which most of it is resident.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnMappings {
    /// How much is resident, of how much in the process, and when.
    pub resident: Resident,
    /// The caller that mapped most of it, with its module in brackets, and the resident bytes of
    /// that; `None` without stacks.
    pub most: Option<(Arc<str>, u64)>,
}

impl OwnMappings {
    /// Returns these mappings of a process; `None` without an account, or if nothing is resident.
    pub fn of(process: &Process) -> Option<OwnMappings> {
        let usable = process.time.accounts.iter().filter(|account| account.missing.is_none());
        let account = usable.max_by_key(|account| resident_bytes(account))?;
        let bytes = resident_bytes(account);
        let mut callers: FxHashMap<&Arc<str>, u64> = FxHashMap::default();
        for range in ranges(account) {
            if let Some(caller) = range.mapping.as_ref().and_then(|of| of.caller.as_ref()) {
                *callers.entry(caller).or_default() += range.resident_bytes;
            }
        }
        let most = callers.into_iter().max_by_key(|(caller, bytes)| (*bytes, *caller));
        (bytes > 0).then(|| OwnMappings {
            resident: Resident {
                bytes,
                of_bytes: account.resident_bytes,
                time_ns: account.time_ns,
            },
            most: most.map(|(caller, bytes)| (caller.clone(), bytes)),
        })
    }
}

/// Returns the resident bytes of what a program mapped for its own data.
pub(super) fn resident_bytes(account: &Account) -> u64 {
    ranges(account).map(|range| range.resident_bytes).fold(0, u64::saturating_add)
}

fn ranges(account: &Account) -> impl Iterator<Item = &AccountRange> {
    account.ranges.iter().filter(|range| {
        let class = range.mapping.as_ref().map(|mapping| mapping.class);
        matches!(class, Some(MappingClass::Other | MappingClass::Shared))
    })
}
