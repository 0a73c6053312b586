//! Names of scopes, labels and pools: each pair of attribute and value is stored once and has a
//! number.
//!
//! A program keeps the numbers for good, also in forked children. So they are positions in a list
//! that children inherit, and each process maps them to the ids in its own profile. Lookups take no
//! lock and use a table with open addressing that only grows; insertions take a lock.

use crate::store::budgets::NAMES_MAX;
use crate::store::ids::{NameId, StringId};
use crate::store::profile::{self, Cursor};
use crate::store::shared::store;
use crate::sys::locked::{Guarded, Locked};
use crate::sys::memory::{self, InChild};
use crate::sys::wiped::Wiped;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use heaptide_format::{Kind, Loss, Name, STRING_MAX};

/// The default attribute of a scope.
pub const REGION: &[u8] = b"region";
/// The attributes of labels and pools.
pub const LABEL: &[u8] = b"label";
pub const POOL: &[u8] = b"pool";

/// A value as the program passes it.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Text(&'a [u8]),
    Number(i64),
}

/// Slots of the first table; each further one has twice as many.
const SLOTS_FIRST: usize = 1024;
/// Bytes in front of a table; their last word holds its length.
const HEAD: usize = 64;
/// The lower half of a slot is a name's number, the upper half a part of its hash.
const HASH_SHIFT: u32 = 32;
/// Size of the pieces of memory that hold texts, in bytes.
const PIECE: usize = 256 << 10;

/// A name as all processes of a family share it.
struct Known {
    hash: u64,
    attribute: &'static [u8],
    value: Value<'static>,
}

/// The list, its table and the texts. Written under the lock. A forked child finds them complete,
/// since a name that is being added is not counted yet.
struct List {
    /// The names; position 0 is unused.
    names: AtomicPtr<Known>,
    count: AtomicU32,
    table: AtomicPtr<AtomicU64>,
    /// Where the next text goes, and the bytes left in its piece.
    next: Guarded<(*mut u8, usize)>,
}

static LIST: List = List {
    names: AtomicPtr::new(core::ptr::null_mut()),
    count: AtomicU32::new(0),
    table: AtomicPtr::new(core::ptr::null_mut()),
    next: Guarded(UnsafeCell::new((core::ptr::null_mut(), 0))),
};

/// The names that this process's profile contains. All zeros: none.
struct Names {
    /// The id of each name in the profile, by the name's number.
    ids: AtomicPtr<AtomicU32>,
    /// The strings of attributes that were stored.
    attributes: [AtomicU32; ATTRIBUTES],
    records: Locked<Cursor>,
}

/// Maximum number of attributes whose strings are stored only once.
const ATTRIBUTES: usize = 32;

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static NAMES: Wiped<Names> = unsafe { Wiped::new() };

/// Makes forked children start without names in their profile.
pub fn wipe_in_children() {
    NAMES.wipe_in_children();
}

/// Returns the number of a name, or 0 if there is no room for it.
#[inline(always)]
pub fn intern(attribute: &[u8], value: Value<'_>) -> u32 {
    let cut = |text: &[u8]| text.len().min(STRING_MAX);
    let attribute = &attribute[..cut(attribute)];
    let value = match value {
        Value::Text(text) => Value::Text(&text[..cut(text)]),
        number => number,
    };
    let hash = hash_of(attribute, value);
    match find(hash, attribute, value) {
        0 => store_new(hash, attribute, value),
        name => name,
    }
}

/// Returns the id of a name in this process's profile; none for no name, or if there is no room.
#[inline(always)]
pub fn id(name: u32) -> NameId {
    let ids = NAMES.get().ids.load(Acquire);
    if ids.is_null() || name == 0 || name > LIST.count.load(Relaxed) {
        return id_made(name);
    }
    // SAFETY: the array has a word for each possible name.
    match unsafe { (*ids.wrapping_add(name as usize)).load(Acquire) } {
        0 => id_made(name),
        id => NameId::new(id),
    }
}

/// Returns the id of a label; none for no label, and, counted as lost, if there is no room.
pub fn label(label: &[u8]) -> NameId {
    if label.is_empty() {
        return NameId::NONE;
    }
    let name = id(intern(LABEL, Value::Text(label)));
    if name.is_none() {
        store().lost(Loss::NoRegion);
    }
    name
}

/// Returns the id of a pool's name; none if there is no room.
pub fn pool(name: &[u8]) -> NameId {
    id(intern(POOL, Value::Text(name)))
}

/// Returns whether an id of the profile has this attribute and value.
#[inline(always)]
pub fn is(id: NameId, attribute: &[u8], value: Value<'_>) -> bool {
    let record = id.record();
    let same = match value {
        Value::Text(wanted) => record.kind == 0 && is_same(text_of(record), wanted),
        Value::Number(wanted) => record.kind == 1 && record.value as i64 == wanted,
    };
    same && is_same(StringId::new(record.attribute).bytes(), attribute)
}

/// Returns whether an id of the profile has this attribute.
pub fn has_attribute(id: NameId, attribute: &[u8]) -> bool {
    !id.is_none() && is_same(StringId::new(id.record().attribute).bytes(), attribute)
}

/// Returns the value of a name whose value is a text.
#[inline(always)]
pub fn text_of(name: &Name) -> &'static [u8] {
    StringId::new(name.value as u32).bytes()
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

/// Hashes eight bytes per step; only as strong as a table of names needs.
#[inline(always)]
pub fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = mix(seed, bytes.len() as u64 ^ 0xa076_1d64_78bd_642f);
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    mix(hash, last_word(rest))
}

/// Compares without a call, since names are short.
#[inline(always)]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let ((words, rest), (others, more)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.len() == b.len()
        && words.iter().zip(others).all(|(a, b)| u64::from_le_bytes(*a) == u64::from_le_bytes(*b))
        && last_word(rest) == last_word(more)
}

/// Returns fewer than eight bytes as a number.
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

#[inline(always)]
fn slots() -> &'static [AtomicU64] {
    let table = LIST.table.load(Acquire);
    if table.is_null() {
        return &[];
    }
    // SAFETY: tables are never unmapped; their length is stored in front of them.
    unsafe { core::slice::from_raw_parts(table, *(table as *const usize).sub(1)) }
}

fn known(name: u32) -> &'static Known {
    // SAFETY: an entry of the list, filled before it was counted or put into the table.
    unsafe { &*LIST.names.load(Acquire).wrapping_add(name as usize) }
}

#[inline(always)]
fn find(hash: u64, attribute: &[u8], value: Value<'_>) -> u32 {
    let slots = slots();
    if slots.is_empty() {
        return 0;
    }
    let mut i = hash as usize;
    loop {
        let slot = slots[i & (slots.len() - 1)].load(Acquire);
        if slot == 0 {
            return 0;
        }
        let same = slot >> HASH_SHIFT == hash >> HASH_SHIFT;
        if same && known(slot as u32).is(attribute, value) {
            return slot as u32;
        }
        i += 1;
    }
}

impl Known {
    #[inline(always)]
    fn is(&self, attribute: &[u8], value: Value<'_>) -> bool {
        let same = match (self.value, value) {
            (Value::Text(a), Value::Text(b)) => is_same(a, b),
            (Value::Number(a), Value::Number(b)) => a == b,
            _ => false,
        };
        same && is_same(self.attribute, attribute)
    }
}

#[cold]
#[inline(never)]
fn store_new(hash: u64, attribute: &[u8], value: Value<'_>) -> u32 {
    let Some(_held) = NAMES.get().records.acquire_patiently() else {
        return 0;
    };
    match find(hash, attribute, value) {
        0 => add(hash, attribute, value).unwrap_or(0),
        known => known,
    }
}

/// Adds a name. The caller holds the lock.
fn add(hash: u64, attribute: &[u8], value: Value<'_>) -> Option<u32> {
    let name = LIST.count.load(Relaxed) + 1;
    if name as usize >= NAMES_MAX {
        return None;
    }
    if LIST.names.load(Relaxed).is_null() {
        let names = memory::take(NAMES_MAX * size_of::<Known>(), InChild::Copy) as *mut Known;
        if names.is_null() {
            return None;
        }
        LIST.names.store(names, Release);
    }
    if name as usize * 2 > slots().len() && !enlarge() {
        return None;
    }
    let attribute = keep(attribute)?;
    let value = match value {
        Value::Text(text) => Value::Text(keep(text)?),
        Value::Number(number) => Value::Number(number),
    };
    // SAFETY: an entry of the list that no thread reads yet.
    unsafe {
        LIST.names.load(Relaxed).wrapping_add(name as usize).write(Known { hash, attribute, value })
    };
    LIST.count.store(name, Release);
    insert(slots(), hash, name);
    Some(name)
}

/// Copies a text to memory that children inherit. The attributes that most names have are not
/// copied.
fn keep(text: &[u8]) -> Option<&'static [u8]> {
    if let Some(same) = [REGION, LABEL, POOL].into_iter().find(|known| *known == text) {
        return Some(same);
    }
    // SAFETY: the caller holds the lock.
    let (next, left) = unsafe { &mut *LIST.next.0.get() };
    if *left < text.len() {
        let bytes = PIECE.max(text.len());
        let piece = memory::take(bytes, InChild::Copy);
        if piece.is_null() {
            return None;
        }
        (*next, *left) = (piece, bytes);
    }
    // SAFETY: `left` bytes from `next` on are free, and never released.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr(), *next, text.len());
        let kept = core::slice::from_raw_parts(*next, text.len());
        (*next, *left) = (next.add(text.len()), *left - text.len());
        Some(kept)
    }
}

fn insert(slots: &[AtomicU64], hash: u64, name: u32) {
    let entry = hash >> HASH_SHIFT << HASH_SHIFT | name as u64;
    let mut i = hash as usize;
    while slots[i & (slots.len() - 1)].load(Relaxed) != 0 {
        i += 1;
    }
    slots[i & (slots.len() - 1)].store(entry, Release);
}

fn enlarge() -> bool {
    let old = slots();
    let length = (old.len() * 2).max(SLOTS_FIRST);
    let memory = memory::take(length * size_of::<AtomicU64>() + HEAD, InChild::Copy);
    if memory.is_null() {
        return false;
    }
    let table = memory.wrapping_add(HEAD) as *mut AtomicU64;
    // SAFETY: fresh zeroed memory: a length in front, then empty slots.
    let new = unsafe {
        *(table as *mut usize).sub(1) = length;
        core::slice::from_raw_parts(table, length)
    };
    for name in 1..=LIST.count.load(Relaxed) {
        insert(new, known(name).hash, name);
    }
    LIST.table.store(table, Release);
    true
}

/// Writes a name into the profile if it is not there, and returns its id.
#[cold]
#[inline(never)]
fn id_made(name: u32) -> NameId {
    if name == 0 || name > LIST.count.load(Acquire) || !store().has_profile() {
        return NameId::NONE;
    }
    let Some(mut records) = NAMES.get().records.acquire_patiently() else {
        return NameId::NONE;
    };
    let Some(ids) = ids() else {
        return NameId::NONE;
    };
    // SAFETY: the array has a word for each possible name.
    let slot = unsafe { &*ids.wrapping_add(name as usize) };
    if slot.load(Acquire) == 0 {
        let id = record(&mut records, known(name));
        slot.store(id.number(), Release);
    }
    NameId::new(slot.load(Acquire))
}

fn ids() -> Option<*const AtomicU32> {
    let known = NAMES.get().ids.load(Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let bytes = NAMES_MAX * size_of::<AtomicU32>();
    let ids = memory::take(bytes, InChild::Nothing);
    if ids.is_null() {
        return None;
    }
    NAMES.get().ids.store(ids as *mut AtomicU32, Release);
    Some(ids as *const AtomicU32)
}

/// Writes the record of a name.
fn record(records: &mut Cursor, name: &Known) -> NameId {
    let attribute = attribute_string(name.attribute).number();
    let (kind, value) = match name.value {
        Value::Text(text) => (0, profile::string(text).number() as u64),
        Value::Number(number) => (1, number as u64),
    };
    if attribute == 0 || (kind == 0 && value == 0) {
        return NameId::NONE;
    }
    let name = Name { attribute, kind, value, hash: name.hash, reserved: 0 };
    records.write(Kind::Names, 0, name).map_or(NameId::NONE, NameId::of)
}

/// Returns the string of an attribute. Attributes are few, so their strings are stored once, as
/// long as there is room to remember them.
fn attribute_string(attribute: &[u8]) -> StringId {
    for known in &NAMES.get().attributes {
        let string = StringId::new(known.load(Relaxed));
        if string.is_none() {
            let stored = profile::string(attribute);
            known.store(stored.number(), Relaxed);
            return stored;
        }
        if string.bytes() == attribute {
            return string;
        }
    }
    profile::string(attribute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_name_has_one_number() {
        let text = |text| Value::Text(text);
        let first = intern(REGION, text(b"tests: load"));
        assert_ne!(first, 0);
        assert_eq!(intern(REGION, text(b"tests: load")), first);
        let others = [
            intern(LABEL, text(b"tests: load")),
            intern(REGION, text(b"tests: loaD")),
            intern(b"tests: iteration", Value::Number(7)),
            intern(b"tests: iteration", Value::Number(-7)),
            intern(b"tests: iteration", text(b"7")),
        ];
        for (i, other) in others.iter().enumerate() {
            assert!(*other != 0 && *other != first && !others[..i].contains(other));
        }
    }

    #[test]
    fn texts_of_every_length_are_told_apart() {
        let text: Vec<u8> = (0..if cfg!(miri) { 20 } else { 40 }).collect();
        for length in 0..text.len() {
            let same = text[..length].to_vec();
            assert!(is_same(&text[..length], &same));
            assert!(!is_same(&text[..length], &text[..length + 1]));
            for at in 0..length {
                let mut other = text[..length].to_vec();
                other[at] ^= 0x80;
                assert!(!is_same(&text[..length], &other));
                assert_ne!(hash_bytes(&text[..length], 1), hash_bytes(&other, 1));
            }
        }
    }
}
