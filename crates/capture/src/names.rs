//! Names of scopes, labels and pools: each attribute and value is stored once and then is a number.
//!
//! Looked up without a lock, in a table of open addressing that only grows; stored under one.

use crate::process::{Process, process};
use crate::{profile, sys};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heaptide_format::{Kind, NAME_GRANULE, Name, STRING_GRANULE, STRING_MAX, StringHeader};

/// What a scope's attribute is if none is given.
pub const REGION: &[u8] = b"region";
/// The attributes of labels and pools.
pub const LABEL: &[u8] = b"label";
pub const POOL: &[u8] = b"pool";

/// A value as it is given.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Text(&'a [u8]),
    Number(i64),
}

/// Slots of the first table; later ones are twice as large.
const SLOTS_FIRST: usize = 1024;
/// Bytes in front of a table; the last word there is its length.
const HEAD: usize = 64;
/// The lower half of a slot is a name, the upper half a part of its hash.
const HASH_SHIFT: u32 = 32;

/// The number of a name; 0 if there is no room for it.
#[inline(always)]
pub fn intern(attribute: &[u8], value: Value<'_>) -> u32 {
    let value = match value {
        Value::Text(text) => Value::Text(&text[..text.len().min(STRING_MAX)]),
        number => number,
    };
    let hash = hash_of(attribute, value);
    let p = process();
    match find(p, hash, attribute, value) {
        0 => store(p, hash, attribute, value),
        name => name,
    }
}

/// The record of a name.
pub fn at(name: u32) -> *const Name {
    let base = process().base.load(Relaxed);
    base.wrapping_add(name as usize * NAME_GRANULE as usize) as *const Name
}

/// The bytes of a stored string; a zero byte follows them.
pub fn text(string: u32) -> &'static [u8] {
    let base = process().base.load(Relaxed);
    let at = base.wrapping_add(string as usize * STRING_GRANULE as usize);
    // SAFETY: a reference that `profile::string` gave: strings stay mapped and unchanged.
    unsafe {
        let length = (*(at as *const StringHeader)).length as usize;
        core::slice::from_raw_parts(at.add(size_of::<StringHeader>()), length)
    }
}

#[inline(always)]
fn hash_of(attribute: &[u8], value: Value<'_>) -> u64 {
    let seed = if attribute == REGION { 1 } else { hash_bytes(attribute, 2) };
    match value {
        Value::Text(text) => hash_bytes(text, seed),
        Value::Number(number) => mix(seed ^ 3, number as u64),
    }
}

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word) as u128 * 0x9e37_79b9_7f4a_7c15_u128;
    (product as u64) ^ (product >> 64) as u64
}

/// Eight bytes a step; only as good as a table of names needs.
#[inline(always)]
fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = mix(seed, bytes.len() as u64 ^ 0xa076_1d64_78bd_642f);
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    mix(hash, last_word(rest))
}

#[inline(always)]
fn slots(p: &Process) -> &'static [AtomicU64] {
    let table = p.names.load(Acquire);
    if table.is_null() {
        return &[];
    }
    // SAFETY: tables are never unmapped; their length stands in front of them.
    unsafe { core::slice::from_raw_parts(table, *(table as *const usize).sub(1)) }
}

#[inline(always)]
fn find(p: &Process, hash: u64, attribute: &[u8], value: Value<'_>) -> u32 {
    let slots = slots(p);
    if slots.is_empty() {
        return 0;
    }
    let mut i = hash as usize;
    loop {
        let slot = slots[i & (slots.len() - 1)].load(Acquire);
        if slot == 0 {
            return 0;
        }
        if slot >> HASH_SHIFT == hash >> HASH_SHIFT && is(slot as u32, attribute, value) {
            return slot as u32;
        }
        i += 1;
    }
}

/// Whether a name is this one.
#[inline(always)]
pub fn is(name: u32, attribute: &[u8], value: Value<'_>) -> bool {
    // SAFETY: names in the table are complete and stay mapped.
    let record = unsafe { &*at(name) };
    let same = match value {
        Value::Text(wanted) => record.kind == 0 && is_same(text(record.value as u32), wanted),
        Value::Number(wanted) => record.kind == 1 && record.value as i64 == wanted,
    };
    same && is_same(text(record.attribute), attribute)
}

/// Equality without a call, as names are short.
#[inline(always)]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let ((words, rest), (others, more)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.len() == b.len()
        && words.iter().zip(others).all(|(a, b)| u64::from_le_bytes(*a) == u64::from_le_bytes(*b))
        && last_word(rest) == last_word(more)
}

/// Fewer than eight bytes as a number.
#[inline(always)]
fn last_word(rest: &[u8]) -> u64 {
    let n = rest.len();
    if n >= 4 {
        let low = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as u64;
        let high = [rest[n - 4], rest[n - 3], rest[n - 2], rest[n - 1]];
        return low | (u32::from_le_bytes(high) as u64) << ((n - 4) * 8);
    }
    match n {
        0 => 0,
        _ => {
            rest[0] as u64
                | (rest[n / 2] as u64) << (n / 2 * 8)
                | (rest[n - 1] as u64) << ((n - 1) * 8)
        }
    }
}

#[cold]
#[inline(never)]
fn store(p: &Process, hash: u64, attribute: &[u8], value: Value<'_>) -> u32 {
    let Some(_held) = p.name_lock.acquire() else {
        return 0;
    };
    let known = find(p, hash, attribute, value);
    if known != 0 {
        return known;
    }
    let used = p.name_count.load(Relaxed) as usize;
    if used * 2 >= slots(p).len() && !enlarge(p) {
        return 0;
    }
    let name = record(p, hash, attribute, value);
    if name != 0 {
        insert(slots(p), hash, name);
        p.name_count.store(used as u32 + 1, Relaxed);
    }
    name
}

/// Writes the record, under the lock.
fn record(p: &Process, hash: u64, attribute: &[u8], value: Value<'_>) -> u32 {
    let attribute = attribute_string(p, attribute);
    let (kind, value) = match value {
        Value::Text(text) => (0, profile::string(p, text) as u64),
        Value::Number(number) => (1, number as u64),
    };
    if attribute == 0 || (kind == 0 && value == 0) {
        return 0;
    }
    // SAFETY: the cursor is used under the lock; `take` gives room for a name.
    unsafe {
        let cursor = &mut *p.name_records.0.get();
        let at = cursor.take(Kind::Names, 0, size_of::<Name>()) as *mut Name;
        if at.is_null() {
            return 0;
        }
        *at = Name { attribute, kind, value, hash, reserved: 0 };
        cursor.commit(size_of::<Name>());
        ((at as u64 - p.base.load(Relaxed) as u64) / NAME_GRANULE) as u32
    }
}

/// Attributes are few: their strings are stored once, as far as there is room to remember them.
fn attribute_string(p: &Process, attribute: &[u8]) -> u32 {
    for known in &p.attributes {
        let string = known.load(Relaxed);
        if string == 0 {
            let stored = profile::string(p, attribute);
            known.store(stored, Relaxed);
            return stored;
        }
        if text(string) == attribute {
            return string;
        }
    }
    profile::string(p, attribute)
}

fn insert(slots: &[AtomicU64], hash: u64, name: u32) {
    let entry = hash >> HASH_SHIFT << HASH_SHIFT | name as u64;
    let mut i = hash as usize;
    while slots[i & (slots.len() - 1)].load(Relaxed) != 0 {
        i += 1;
    }
    slots[i & (slots.len() - 1)].store(entry, Release);
}

fn enlarge(p: &Process) -> bool {
    let old = slots(p);
    let length = (old.len() * 2).max(SLOTS_FIRST);
    let bytes = length * size_of::<AtomicU64>() + HEAD;
    if !p.may_map() {
        return false;
    }
    let memory = sys::map_private(bytes);
    if memory.is_null() {
        return false;
    }
    // SAFETY: fresh zeroed memory: a length in front, then empty slots.
    let new = unsafe {
        let _ = sys::advise(memory, bytes, sys::MADV_DONTFORK);
        let table = memory.add(HEAD) as *mut AtomicU64;
        *(table as *mut usize).sub(1) = length;
        core::slice::from_raw_parts(table, length)
    };
    for slot in old {
        let name = slot.load(Relaxed) as u32;
        if name != 0 {
            // SAFETY: names in the table are complete.
            insert(new, unsafe { (*at(name)).hash }, name);
        }
    }
    p.names.store(new.as_ptr() as *mut AtomicU64, Release);
    true
}
