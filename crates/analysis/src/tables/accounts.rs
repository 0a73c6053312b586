//! Accounts of resident memory with the names of threads.

use std::sync::Arc;

use heaptide_format as format;

use crate::model::{Account, AccountCause, AccountMissing, AccountRange, AllocatorState};
use crate::profile::accounts;
use crate::profile::parsed::Profile;
use crate::text;

/// The accounts of a profile.
pub(crate) fn accounts(profile: &Profile) -> Vec<Account> {
    let names: Vec<(u32, Arc<str>)> = profile
        .lanes
        .iter()
        .map(|lane| (lane.index, Arc::from(text::from_bytes(until_zero(&lane.name)))))
        .collect();
    profile.accounts.iter().map(|account| of(account, &names)).collect()
}

fn until_zero(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn of(account: &accounts::Account, names: &[(u32, Arc<str>)]) -> Account {
    let record = &account.record;
    let state = AllocatorState {
        arena_bytes: record.arena_bytes,
        used_bytes: record.arena_used_bytes,
        free_bytes: record.arena_free_bytes,
        mapped_bytes: record.mapped_block_bytes,
    };
    Account {
        time_ns: record.time_ns,
        cause: match record.cause {
            format::ACCOUNT_PEAK => AccountCause::Peak,
            format::ACCOUNT_END => AccountCause::End,
            _ => AccountCause::Sample,
        },
        missing: match record.missing {
            0 => None,
            format::ACCOUNT_CONFINED => Some(AccountMissing::Confined),
            _ => Some(AccountMissing::NoProc),
        },
        resident_bytes: record.resident_bytes,
        left_out_bytes: record.left_out_bytes,
        left_out_ranges: record.ranges_left_out,
        swap_bytes: record.swap_bytes,
        absent_bytes: record.absent_bytes,
        page_table_bytes: record.page_table_bytes,
        most_resident_bytes: record.most_resident_bytes,
        live_bytes: record.live_bytes,
        peak_bytes: record.peak_bytes,
        requested_bytes: record.requested_bytes,
        usable_bytes: record.usable_bytes,
        allocator: (state != AllocatorState::default()).then_some(state),
        ranges: account.ranges.iter().map(|range| range_of(range, names)).collect(),
    }
}

fn range_of(range: &accounts::Range, names: &[(u32, Arc<str>)]) -> AccountRange {
    let record = &range.record;
    let is_stack = record.flags & format::RANGE_STACK != 0;
    let lane = names.binary_search_by_key(&record.lane, |(index, _)| *index).ok();
    let thread = lane.filter(|_| is_stack).map(|at| names[at].1.clone());
    AccountRange {
        start: record.start,
        length: record.length,
        resident_bytes: u64::from(record.resident_kib) << 10,
        swap_bytes: u64::from(record.swap_kib) << 10,
        flags: record.flags,
        name: range.name.clone(),
        thread,
    }
}
