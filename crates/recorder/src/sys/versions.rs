//! Versions of symbols: which definition of an object a reference takes, by the rules of glibc
//! (`check_match` of its `dl-lookup.c`). The loader of musl knows only default versions.

use crate::sys::object::{LinkMap, Tables};
use core::ffi::CStr;

/// In the table of versions: only a reference to this version takes the definition.
const HIDDEN: u16 = 0x8000;
/// Versions below this one are no names: the symbol is local or global.
const NAMED: u16 = 2;

/// A reference to a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// By `dlsym`: takes the default version.
    Newest,
    /// Of an object that was linked with a definition without versions: takes the oldest one.
    Unversioned,
    /// Of an object that was linked with this version.
    Version(&'static CStr),
}

/// Returns the index of the definition of a name (ended by a zero byte) that a reference takes.
/// `reference` is called only if the result depends on it.
pub fn definition(
    map: &LinkMap,
    tables: &Tables,
    name: &[u8],
    reference: &mut dyn FnMut() -> Reference,
) -> Option<usize> {
    let mut taken = None;
    let mut defaults = (0, None);
    tables.each_definition(name, |index| {
        // SAFETY: an index of the object's table.
        let version = unsafe { tables.version(index) };
        let fits = match version {
            None => Fit::Taken,
            Some(version) if version < NAMED => Fit::Taken,
            Some(version) => fit(map, tables, version, reference()),
        };
        match fits {
            Fit::Taken => taken = taken.or(Some(index)),
            Fit::IfAlone => defaults = (defaults.0 + 1, Some(index)),
            Fit::Other => {}
        }
    });
    taken.or(defaults.1.filter(|_| defaults.0 == 1))
}

/// Whether a reference takes a definition.
enum Fit {
    Taken,
    /// If there is no other one of this kind.
    IfAlone,
    Other,
}

fn fit(map: &LinkMap, tables: &Tables, version: u16, reference: Reference) -> Fit {
    /// The first version of an object: 1 is the object itself.
    const OLDEST: u16 = 2;
    let (index, is_default) = (version & !HIDDEN, version & HIDDEN == 0);
    let takes = |takes| if takes { Fit::Taken } else { Fit::Other };
    match reference {
        Reference::Newest => takes(is_default),
        Reference::Unversioned if index <= OLDEST => Fit::Taken,
        Reference::Unversioned if is_default => Fit::IfAlone,
        Reference::Unversioned => Fit::Other,
        Reference::Version(wanted) => {
            // A copy of another object's variable has the version that was needed (`environ` in an
            // executable).
            let name = defined_name(map, tables, index);
            takes(name.or_else(|| needed_name(map, tables, index)) == Some(wanted))
        }
    }
}

/// Returns the reference of an object that imports the symbol with this index.
///
/// # Safety
/// The object's tables contain the index.
pub unsafe fn reference(map: &LinkMap, tables: &Tables, index: usize) -> Reference {
    // SAFETY: the caller's contract.
    let version = unsafe { tables.version(index) }.map_or(0, |version| version & !HIDDEN);
    if version < NAMED {
        return Reference::Unversioned;
    }
    needed_name(map, tables, version).map_or(Reference::Unversioned, Reference::Version)
}

/// Returns the reference of objects that are linked with the definition with this index; `None` if
/// it has no version.
pub fn reference_to_definition(map: &LinkMap, tables: &Tables, index: usize) -> Option<Reference> {
    // SAFETY: an index of the object's table.
    let version = unsafe { tables.version(index) }? & !HIDDEN;
    let name = if version < NAMED { None } else { defined_name(map, tables, version) };
    name.map(Reference::Version)
}

/// The most versions of an object; the C library has fewer than a hundred.
const VERSIONS_MAX: u64 = 4096;

/// A version that an object defines (`Elf64_Verdef`).
#[repr(C)]
struct Defined {
    _revision: u16,
    _flags: u16,
    index: u16,
    _count: u16,
    _hash: u32,
    /// Bytes to the offset of its name.
    names: u32,
    /// Bytes to the next one.
    next: u32,
}

fn defined_name(map: &LinkMap, tables: &Tables, index: u16) -> Option<&'static CStr> {
    const DT_VERDEF: i64 = 0x6fff_fffc;
    const DT_VERDEFNUM: i64 = 0x6fff_fffd;
    let (mut at, count) = (map.address_entry(DT_VERDEF)?, map.entry(DT_VERDEFNUM)?);
    for _ in 0..count.min(VERSIONS_MAX) {
        // SAFETY: the dynamic section of a loaded object gives the place and number of these.
        let defined = unsafe { &*(at as *const Defined) };
        if defined.index & !HIDDEN == index {
            // SAFETY: the first name of a version is its own.
            return Some(unsafe {
                tables.string(*((at + u64::from(defined.names)) as *const u32))
            });
        }
        at += u64::from(defined.next);
    }
    None
}

/// A file that an object needs versions of (`Elf64_Verneed`).
#[repr(C)]
struct Needed {
    _revision: u16,
    count: u16,
    _file: u32,
    /// Bytes to its first version.
    versions: u32,
    /// Bytes to the next one.
    next: u32,
}

/// A version that an object needs (`Elf64_Vernaux`).
#[repr(C)]
struct NeededVersion {
    _hash: u32,
    _flags: u16,
    index: u16,
    name: u32,
    /// Bytes to the next one.
    next: u32,
}

fn needed_name(map: &LinkMap, tables: &Tables, index: u16) -> Option<&'static CStr> {
    const DT_VERNEED: i64 = 0x6fff_fffe;
    const DT_VERNEEDNUM: i64 = 0x6fff_ffff;
    let (mut at, count) = (map.address_entry(DT_VERNEED)?, map.entry(DT_VERNEEDNUM)?);
    for _ in 0..count.min(VERSIONS_MAX) {
        // SAFETY: the dynamic section of a loaded object gives the place and number of these.
        let needed = unsafe { &*(at as *const Needed) };
        let mut version_at = at + u64::from(needed.versions);
        for _ in 0..needed.count {
            // SAFETY: as many as the file's entry counts.
            let version = unsafe { &*(version_at as *const NeededVersion) };
            if version.index & !HIDDEN == index {
                // SAFETY: its name is a string of the object.
                return Some(unsafe { tables.string(version.name) });
            }
            version_at += u64::from(version.next);
        }
        at += u64::from(needed.next);
    }
    None
}
