//! Other names of the functions of the process's allocator, such as `mi_malloc` and `tc_malloc`, by
//! which a program may call them: the loader does not give these calls to our hooks.

use super::outcome::{self, Note};
use crate::family::{FAMILIES, Family};
use crate::next_symbol::{self, is_libc};
use crate::own_allocator;
use heaptide_format::NotIntercepted;
use heaptide_recorder::sys::loader::{
    LinkMap, defines, each_unbound_import, look_up_as_imported, objects,
};

/// The longest name with its zero byte.
const NAME_BYTES: usize = 64;

/// The other names of an allocator's functions.
#[derive(Clone, Copy)]
struct Aliases {
    family: &'static Family,
    prefix: &'static str,
}

impl Aliases {
    /// Returns those of an allocator; `None` if its `free` has no other name.
    fn of(allocator: &LinkMap) -> Option<Aliases> {
        let free = look_up_as_imported(allocator, b"free\0")?.0;
        let is_alias = |prefix: &str| {
            let mut name = [0u8; NAME_BYTES];
            let parts = prefix.bytes().chain(*b"free");
            name.iter_mut().zip(parts).for_each(|(to, byte)| *to = byte);
            let end = prefix.len() + b"free\0".len();
            let found = name.get(..end).and_then(|name| look_up_as_imported(allocator, name));
            found.is_some_and(|(address, _)| address == free)
        };
        FAMILIES.iter().find_map(|family| {
            let prefix = family.prefixes.iter().find(|prefix| is_alias(prefix))?;
            Some(Aliases { family, prefix })
        })
    }

    /// Returns whether an object imports one of these names, which the allocator defines.
    fn are_imported_by(self, map: &LinkMap, allocator: &LinkMap) -> bool {
        let mut is_imported = false;
        // Pointers to functions in data are no imports of code.
        each_unbound_import(map, |import| {
            let name = import.name();
            let rest = name.strip_prefix(self.prefix.as_bytes());
            let rest = rest.and_then(|rest| rest.strip_suffix(b"\0"));
            let is_known = rest.is_some_and(|rest| self.family.shape(rest).is_some());
            is_imported |= is_known && defines(allocator, name);
        });
        is_imported
    }
}

/// Returns the object whose `malloc` the hooks call.
fn behind() -> Option<&'static LinkMap> {
    let found = next_symbol::find_behind(b"malloc\0")?.object;
    objects().find(|map| core::ptr::eq(*map, found))
}

/// Returns the process's allocator, if an object of the program calls it by other names than those
/// of the C library.
pub fn called_object() -> Option<&'static LinkMap> {
    let allocator = behind().filter(|object| !is_libc(object))?;
    let aliases = Aliases::of(allocator)?;
    let mut others = objects().filter(|map| !core::ptr::eq(*map, allocator));
    others.any(|map| aliases.are_imported_by(map, allocator)).then_some(allocator)
}

/// Calls `visit` with the address of each function of an allocator that another object imports by a
/// name with this prefix.
pub fn each_own_name(allocator: &LinkMap, prefix: &str, mut visit: impl FnMut(u64)) {
    for map in objects().filter(|map| !core::ptr::eq(*map, allocator)) {
        each_unbound_import(map, |import| {
            let name = Some(import.name()).filter(|name| name.starts_with(prefix.as_bytes()));
            if let Some((address, _)) = name.and_then(|name| look_up_as_imported(allocator, name)) {
                visit(address as u64);
            }
        });
    }
}

/// Records that an object was loaded too late that calls the process's allocator by such names.
pub fn note_late(map: &LinkMap) {
    let Some(allocator) = behind().filter(|object| !is_libc(object)) else { return };
    if own_allocator::object().is_some() {
        return; // all its functions are intercepted
    }
    let aliases = Aliases::of(allocator).filter(|aliases| aliases.are_imported_by(map, allocator));
    if let Some(Aliases { prefix, .. }) = aliases {
        let malloc = look_up_as_imported(allocator, b"malloc\0").map_or(0, |found| found.0);
        let mut note = Note::new(malloc as u64);
        note.add(prefix);
        outcome::note_family(Err(NotIntercepted::Renamed), note);
    }
}

/// Records the interception of such an allocator.
pub fn note(outcome: Result<(), NotIntercepted>, note: Note) {
    match outcome {
        Ok(()) => outcome::note_malloc(outcome, note),
        Err(_) => outcome::note_left(NotIntercepted::Renamed, note),
    }
}
