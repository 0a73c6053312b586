//! Unwind rules by code address: a table without locks that only grows.

use crate::store::budgets::RULES_MAX;
use crate::store::shared::Store;
use crate::sys::memory::{self, InChild};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heaptide_unwind::cache::{self, Inserted, Slot};
use heaptide_unwind::rule::Rule;

/// Number of slots of the first table; each further one has twice as many.
const RULES_FIRST: usize = 4096;

/// Returns the newest table of rules.
#[inline(always)]
pub fn newest(p: &Store) -> &'static [Slot] {
    let slots = p.rules.load(Acquire);
    if slots.is_null() {
        return &[];
    }
    // SAFETY: tables are never unmapped. Each table's length is stored in front of it, since a
    // length stored elsewhere could be that of a newer table than `slots`.
    unsafe {
        let length = *(slots as *const usize).sub(1);
        core::slice::from_raw_parts(slots, length)
    }
}

/// Stores a rule under its key, if there is room.
pub fn keep_rule(p: &Store, key: u64, rule: Rule) {
    let slots = newest(p);
    let done = if p.rules_used.load(Relaxed) >= slots.len() / 8 * 5 {
        Inserted::Full
    } else {
        cache::insert(slots, key, rule)
    };
    match done {
        Inserted::New => {
            p.rules_used.fetch_add(1, Relaxed);
        }
        Inserted::Again => {}
        Inserted::Full => {
            if enlarge_rules(p) {
                cache::insert(newest(p), key, rule);
            }
        }
    }
}

fn enlarge_rules(p: &Store) -> bool {
    const HEAD: usize = 64;
    let old = p.rules.load(Acquire);
    let length = (newest(p).len() * 2).max(RULES_FIRST);
    if length > RULES_MAX {
        return false;
    }
    let bytes = length * size_of::<Slot>() + HEAD;
    let memory = memory::take(bytes, InChild::Nothing);
    if memory.is_null() {
        return false;
    }
    // SAFETY: fresh zeroed memory: a length in front, then empty slots.
    unsafe {
        let slots = memory.add(HEAD) as *mut Slot;
        *(slots as *mut usize).sub(1) = length;
        let new = core::slice::from_raw_parts(slots, length);
        let used = cache::copy(newest(p), new);
        if p.rules.compare_exchange(old, slots, Release, Relaxed).is_err() {
            memory::release(memory, bytes, InChild::Nothing);
            return true;
        }
        p.rules_used.store(used, Relaxed);
    }
    true
}
