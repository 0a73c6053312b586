//! Which imports a function of an object reaches by direct calls and jumps. Calls through pointers
//! are not followed.

use crate::arch::{Target, each_target, slot_of_linkage};
use heaptide_recorder::store::modules::{Code, Sections, function_at, modules};
use heaptide_recorder::sys::loader::{LinkMap, each_code, each_import};

/// The most functions that are examined: some allocators have more, of which nothing is known then.
const FUNCTIONS_MAX: usize = 96;
/// The most imports that are noted.
const SLOTS_MAX: usize = 96;
/// The most bytes of a function, which are more than that of the largest `malloc` in use.
const CODE_MAX: u64 = 64 << 10;

/// A set of addresses, in the order of their addition.
struct Set<const N: usize> {
    items: [u64; N],
    count: usize,
    /// Set if there was no room.
    is_full: bool,
}

impl<const N: usize> Set<N> {
    const NONE: Set<N> = Set { items: [0; N], count: 0, is_full: false };

    fn items(&self) -> &[u64] {
        self.items.get(..self.count).unwrap_or_default()
    }

    fn add(&mut self, item: u64) {
        if self.items().contains(&item) {
            return;
        }
        match self.items.get_mut(self.count) {
            Some(place) => {
                *place = item;
                self.count += 1;
            }
            None => self.is_full = true,
        }
    }
}

/// The imports that a function reaches, by the words that contain their addresses.
pub struct Reached(Set<SLOTS_MAX>);

impl Reached {
    /// Follows the calls of the function at `start`. `None` if the object has no search table of
    /// functions, or too many are reached.
    pub fn from(map: &LinkMap, start: u64) -> Option<Reached> {
        // As long as the longest line of maps that matters, a path.
        let mut buffer = [0u8; 6 << 10];
        let Code::Module(_, sections) = modules().code_at(start, &mut buffer) else { return None };
        let (mut functions, mut slots) = (Set::<FUNCTIONS_MAX>::NONE, Set::<SLOTS_MAX>::NONE);
        functions.add(start);
        let mut next = 0;
        while let Some(&function) = functions.items().get(next) {
            follow(map, &sections, function, &mut functions, &mut slots);
            next += 1;
        }
        (!functions.is_full && !slots.is_full).then_some(Reached(slots))
    }

    /// Returns whether one of the imports has one of these names, which end with a zero byte.
    pub fn has_any(&self, map: &LinkMap, names: &[&[u8]]) -> bool {
        let mut found = false;
        each_import(map, |import| {
            found |= self.0.items().contains(&import.slot)
                && names.iter().any(|name| import.is_of(name));
        });
        found
    }
}

/// Adds what one function calls.
fn follow(
    map: &LinkMap,
    sections: &Sections<'_>,
    function: u64,
    functions: &mut Set<FUNCTIONS_MAX>,
    slots: &mut Set<SLOTS_MAX>,
) {
    let Some((start, end)) = function_at(sections, function) else { return };
    if start != function || end - start > CODE_MAX {
        return;
    }
    let Some(own) = code(start, end) else { return };
    each_target(own, start, |target| match target {
        Target::Slot(slot) => add_import(map, slot, functions, slots),
        Target::Code(at) => match function_at(sections, at) {
            Some((first, _)) if first == at => functions.add(at),
            // The table of linkage is one function, if it is any.
            Some((_, end)) if at < start || at >= end => {
                let linkage = code(at, end).and_then(|bytes| bytes.first_chunk::<16>());
                if let Some(slot) = linkage.and_then(|bytes| slot_of_linkage(bytes, at)) {
                    add_import(map, slot, functions, slots);
                }
            }
            _ => {}
        },
    });
}

/// Adds an import. A function that the object itself defines may be called as an import, too.
fn add_import(
    map: &LinkMap,
    slot: u64,
    functions: &mut Set<FUNCTIONS_MAX>,
    slots: &mut Set<SLOTS_MAX>,
) {
    each_import(map, |import| {
        if import.slot == slot {
            slots.add(slot);
            each_code(map, import.name(), |address, _| {
                if address != map.address() {
                    functions.add(address);
                }
            });
        }
    });
}

/// Returns the code of a part of a function; none if that is not within its module.
fn code(start: u64, end: u64) -> Option<&'static [u8]> {
    let is_inside = modules().end_at(start).is_some_and(|limit| start < end && end <= limit);
    // SAFETY: a range that the unwind table of a loaded object covers, within the object, is in its
    // code, which is readable.
    is_inside
        .then(|| unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) })
}
