//! The size limit of the profile: which records it holds back, so that the file stays small while
//! all totals stay exact.

use crate::store::shared::Store;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::Word;
use heaptide_format::{Kind, PAGE};

/// Kinds that the limit does not hold back: the totals need lanes, timelines grow ever more slowly,
/// and events have a limit of their own.
const FREE: [Kind; 7] = [
    Kind::Lanes,
    Kind::MappedLanes,
    Kind::Timeline,
    Kind::Spans,
    Kind::MappedTimeline,
    Kind::FormerThreads,
    Kind::Events,
];

/// Returns the bytes left below the limit, in whole pages.
pub fn room(p: &Store) -> u64 {
    let header = p.header();
    within(p, u64::MAX).saturating_sub(header.file_end.get()) & !(PAGE - 1)
}

/// Returns `bytes`, capped at the size that the file may have.
pub fn within(p: &Store, bytes: u64) -> u64 {
    match p.header().profile_limit.get() {
        0 => bytes,
        limit => bytes.min(limit.saturating_add(p.header().trace_bytes.get())),
    }
}

/// Returns whether the limit holds back an extent of this length. Notes the time when that first
/// happens.
pub fn holds_back(p: &Store, kind: Kind, length: u64) -> bool {
    let is_free = FREE.contains(&kind) || p.beyond_limit.load(Relaxed) > 0;
    if is_free || length <= room(p) {
        return false;
    }
    let full_ns = &p.header().profile_full_ns;
    if full_ns.get() == 0 {
        full_ns.set(p.now().max(1));
    }
    true
}

/// Runs `make` with the limit suspended, for the few records that exact totals need.
pub fn beyond<R>(p: &Store, make: impl FnOnce() -> R) -> R {
    p.beyond_limit.fetch_add(1, Relaxed);
    let made = make();
    p.beyond_limit.fetch_sub(1, Relaxed);
    made
}
