//! Searches an object for allocators other than the one that the program uses: under names with a
//! known prefix; under any prefix, if functions prove which allocator it is; and under the names of
//! the C library.

use super::aliases;
use super::instance::{FAMILIES_MAX, Found, Instance, Prefix};
use super::patch::Function;
use super::shapes::Shapes;
use super::symbol_table::each_function;
use crate::family::{FAMILIES, Family, STANDARD};
use heaptide_recorder::sys::kernel::Path;
use heaptide_recorder::sys::loader::{LinkMap, each_code};

/// The most prefixes of an object that are examined.
const CANDIDATES_MAX: usize = 16;

/// A prefix that may be one of a family.
#[derive(Clone, Copy)]
struct Candidate {
    family: &'static Family,
    prefix: Prefix,
    /// Whether no proof is needed.
    is_known: bool,
    /// A bit per name of the proof that was found.
    proof: u32,
}

struct Candidates([Option<Candidate>; CANDIDATES_MAX]);

/// The allocators of an object.
pub struct Search {
    pub found: [Option<Instance>; FAMILIES_MAX],
    /// The inode of the file that was read, if any.
    pub inode: Option<u64>,
    /// Prefixes of allocators of no known family.
    pub unknown: Shapes,
}

/// Searches the symbol table of an object's file.
pub fn named(map: &LinkMap) -> Search {
    let found = [const { None }; FAMILIES_MAX];
    let mut search = Search { found, inode: None, unknown: Shapes::NONE };
    let mut name = [0u8; 4096];
    let Some(path) = path_of(map, &mut name) else { return search };
    let mut candidates = Candidates([None; CANDIDATES_MAX]);
    search.inode = each_function(path, |name, address, _| {
        candidates.note(name);
        search.unknown.note(name, address);
    });
    if candidates.0[0].is_none() || search.inode.is_none() {
        return search;
    }
    each_function(path, |name, _, _| candidates.prove(name));
    for candidate in candidates.0.iter().flatten().filter(|candidate| candidate.is_proven()) {
        if let Some(place) = search.found.iter_mut().find(|place| place.is_none()) {
            *place = Some(Instance::new(candidate.family, candidate.prefix));
        }
    }
    each_function(path, |name, address, size| {
        let code = Function { address: map.address().wrapping_add(address), size };
        search.found.iter_mut().flatten().for_each(|instance| note(instance, name, code));
    });
    search
}

/// Searches the object of the process's allocator for functions with other names, once those with
/// the names of the C library are intercepted.
pub fn of_process(map: &LinkMap) -> Search {
    let mut search = named(map);
    for place in &mut search.found {
        // The sizes of blocks of another allocator would be asked from that of the process.
        if place.as_ref().is_some_and(|instance| !instance.is_of_process) {
            *place = None;
        }
        // Calls within an executable cannot be known.
        if let Some(instance) = place
            && !map.path().is_empty()
        {
            instance.needed = [false; _];
            let prefix = instance.prefix;
            aliases::each_own_name(map, prefix.text(), |address| instance.need(address));
        }
    }
    Search { unknown: Shapes::NONE, ..search }
}

/// Searches the exported functions of an object for an allocator with the C library's names, and
/// its file for names of its own beside them.
pub fn standard(map: &LinkMap) -> Search {
    let mut search = named(map);
    let first = &mut search.found[0];
    let instance = first.get_or_insert_with(|| Instance::new(&STANDARD, Prefix::NONE));
    let mut note_all = |name: &'static str| {
        let mut terminated = [0u8; 64];
        let Some(room) = terminated.get_mut(..name.len()) else { return };
        room.copy_from_slice(name.as_bytes());
        each_code(map, &terminated[..=name.len()], |address, size| {
            let code = Function { address, size };
            match STANDARD.shape(name.as_bytes()) {
                Some((name, shape)) => instance.add(Found { name, code, shape }),
                None if instance.usable == 0 => instance.usable = address, // the only other name
                None => {}
            }
        });
    };
    STANDARD.names().for_each(&mut note_all);
    Search { unknown: Shapes::NONE, ..search }
}

/// Copies the path of an object's file; `None` for the kernel's vDSO.
fn path_of<'a>(map: &LinkMap, name: &'a mut [u8]) -> Option<Path<'a>> {
    let path = map.path();
    let path: &[u8] = if path.is_empty() { b"/proc/self/exe" } else { path };
    if !path.contains(&b'/') || path.len() >= name.len() {
        return None;
    }
    name.get_mut(..path.len())?.copy_from_slice(path);
    Path::new(name)
}

/// Adds a function to a family, if it belongs to it.
fn note(instance: &mut Instance, name: &[u8], code: Function) {
    let family = instance.family;
    let inlining = family.inlining;
    let caller = inlining.and_then(|inlining| inlining.caller(instance.prefix.text(), name));
    if let Some((name, shape)) = caller {
        return instance.add(Found { name, code, shape });
    }
    let Some(rest) = name.strip_prefix(instance.prefix.text().as_bytes()) else { return };
    let statistics = family.statistics.filter(|(name, _)| name.as_bytes() == rest);
    let slow_path = || inlining.and_then(|inlining| inlining.slow_path(rest));
    match (family.shape(rest).or_else(slow_path), statistics) {
        (Some((name, shape)), _) => instance.add(Found { name, code, shape }),
        (None, Some((_, which))) => instance.statistics = Some((which, code.address)),
        (None, None) if family.usable.iter().any(|name| name.as_bytes() == rest) => {
            instance.usable = code.address;
        }
        (None, None) if family.visit.is_some_and(|name| name.as_bytes() == rest) => {
            instance.visit = code.address;
        }
        (None, None) => {}
    }
}

impl Candidates {
    /// Adds the prefix of a function's name, if it may be one of a family.
    fn note(&mut self, name: &[u8]) {
        for family in &FAMILIES {
            let known = family.prefixes.iter().filter(|prefix| {
                let rest = name.strip_prefix(prefix.as_bytes());
                rest.is_some_and(|rest| family.shape(rest).is_some())
            });
            known.for_each(|prefix| self.add(family, prefix.as_bytes(), true));
            let first = family.proof.first();
            if let Some(prefix) = first.and_then(|first| name.strip_suffix(first.as_bytes())) {
                self.add(family, prefix, false);
            }
        }
    }

    fn add(&mut self, family: &'static Family, prefix: &[u8], is_known: bool) {
        let Some(prefix) = Prefix::new(prefix) else { return };
        let is_it = |place: &&mut Option<Candidate>| {
            place.as_ref().is_none_or(|other| {
                core::ptr::eq(other.family, family) && other.prefix.text() == prefix.text()
            })
        };
        if let Some(place) = self.0.iter_mut().find(is_it) {
            let new = Candidate { family, prefix, is_known, proof: 0 };
            place.get_or_insert(new).is_known |= is_known;
        }
    }

    /// Notes a function that proves what a prefix stands for.
    fn prove(&mut self, name: &[u8]) {
        for candidate in self.0.iter_mut().flatten() {
            let prefix = candidate.prefix;
            let Some(rest) = name.strip_prefix(prefix.text().as_bytes()) else { continue };
            let at = candidate.family.proof.iter().position(|proof| proof.as_bytes() == rest);
            if let Some(at) = at {
                candidate.proof |= 1 << at;
            }
        }
    }
}

impl Candidate {
    fn is_proven(&self) -> bool {
        self.is_known || self.proof == (1 << self.family.proof.len()) - 1
    }
}
