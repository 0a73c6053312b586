//! Accounts of resident memory with the names of threads.

use std::sync::Arc;

use heaptide_format as format;
use heaptide_format::MappingKey;

use rustc_hash::{FxHashMap, FxHashSet};

use super::mapped::Stacks;
use super::mapping_class;
use crate::model::{
    Account, AccountCause, AccountMissing, AccountRange, AllocatorSource, AllocatorState,
    RangeMapping,
};
use crate::profile::accounts;
use crate::profile::parsed::Profile;
use crate::text;

/// Names of threads, and callers of recorded mappings.
struct Names {
    /// Names by index of the lane, sorted.
    threads: Vec<(u32, Arc<str>)>,
    /// Recorded mappings by id of the site.
    mappings: FxHashMap<u32, RangeMapping>,
}

/// Returns the accounts of a profile.
pub(super) fn accounts(profile: &Profile, stacks: &Stacks) -> Vec<Account> {
    let threads = profile
        .lanes
        .iter()
        .map(|lane| (lane.index, Arc::from(text::from_bytes(until_zero(&lane.name)))))
        .collect();
    let names = Names { threads, mappings: mappings(profile, stacks) };
    profile.accounts.iter().map(|account| of(account, &names)).collect()
}

/// Returns the recorded mappings that occur in a range of any account, by site.
fn mappings(profile: &Profile, stacks: &Stacks) -> FxHashMap<u32, RangeMapping> {
    let ranges = profile.accounts.iter().flat_map(|account| &account.ranges);
    let wanted: FxHashSet<u32> = ranges.map(|range| range.record.site).collect();
    let Some(mapped) = profile.mapped.as_deref() else {
        return FxHashMap::default();
    };
    let sites = mapped.sites.iter().filter(|site| wanted.contains(&site.id));
    let known = sites.map(|site| {
        let counters = &site.counters;
        let stack = stacks.of_node[site.node.slot()];
        let bytes = counters.usable_bytes.checked_div(counters.allocations).unwrap_or_default();
        let class = stacks.class(mapped, MappingKey::unpack(site.size), bytes, stack);
        (site.id, RangeMapping { class, caller: mapping_class::caller(stacks.frames(stack)) })
    });
    known.collect()
}

fn until_zero(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn of(account: &accounts::Account, names: &Names) -> Account {
    let record = &account.record;
    let source = match record.source {
        format::HEAP_GLIBC => Some(AllocatorSource::Glibc),
        format::HEAP_JEMALLOC => Some(AllocatorSource::Jemalloc),
        format::HEAP_MIMALLOC => Some(AllocatorSource::Mimalloc),
        _ => None,
    };
    let allocator = source.map(|source| AllocatorState {
        source,
        arena_bytes: record.arena_bytes,
        used_bytes: record.arena_used_bytes,
        free_bytes: record.arena_free_bytes,
        mapped_bytes: record.mapped_block_bytes,
    });
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
        mapped_bytes: record.mapped_bytes,
        requested_bytes: record.requested_bytes,
        usable_bytes: record.usable_bytes,
        allocator,
        ranges: account.ranges.iter().map(|range| range_of(range, names)).collect(),
    }
}

fn range_of(range: &accounts::Range, names: &Names) -> AccountRange {
    let record = &range.record;
    let is_stack = record.flags & format::RANGE_STACK != 0;
    let lane = names.threads.binary_search_by_key(&record.lane, |(index, _)| *index).ok();
    let thread = lane.filter(|_| is_stack).map(|at| names.threads[at].1.clone());
    AccountRange {
        start: record.start,
        length: record.length,
        resident_bytes: u64::from(record.resident_kib) << 10,
        swap_bytes: u64::from(record.swap_kib) << 10,
        flags: record.flags,
        name: range.name.clone(),
        thread,
        mapping: names.mappings.get(&record.site).cloned(),
    }
}
