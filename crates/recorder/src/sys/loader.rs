//! The loader's list of objects, and lookups of their symbols.
//!
//! This replaces dlsym: nothing here allocates, locks or fails half-way. It works with every libc,
//! before that is initialised, and also finds libraries that were opened with RTLD_LOCAL.

use crate::sys::arch::{R_GLOB_DAT, R_JUMP_SLOT, debug_symbols};
use crate::sys::object::{Symbol, Tables};
use crate::sys::versions;
use core::ffi::CStr;

pub use crate::sys::object::{Dynamic, LinkMap, file_name};
pub use crate::sys::versions::Reference;

/// Returns the loaded objects of the program's namespace, in load order; none in a static program.
pub fn objects() -> impl Iterator<Item = &'static LinkMap> {
    objects_from(first_object())
}

/// Returns the loaded objects of all namespaces.
pub fn objects_of_all_namespaces() -> impl Iterator<Item = &'static LinkMap> {
    objects().chain(namespaces().flat_map(|namespace| namespace.objects()))
}

fn objects_from(mut object: *const LinkMap) -> impl Iterator<Item = &'static LinkMap> {
    core::iter::from_fn(move || {
        // SAFETY: the list is the loader's; entries live as long as their objects. A program that
        // unloads an object while its functions are being resolved is broken anyway.
        let map = unsafe { object.as_ref() }?;
        object = map.next;
        Some(map)
    })
}

/// A namespace of the loader other than the program's (`struct r_debug_extended` in link.h):
/// libraries of `dlmopen` and `LD_AUDIT`, with a C library of their own.
#[repr(C)]
pub struct Namespace {
    version: i32,
    first: *const LinkMap,
    _notify: usize,
    state: u32,
    _loader: usize,
    /// If the version of the program's namespace is at least [`WITH_NAMESPACES`].
    next: *const Namespace,
}

/// The version from which on the loader lists its namespaces, which it sets as soon as there are
/// several: glibc 2.35.
const WITH_NAMESPACES: i32 = 2;

impl Namespace {
    /// Returns its objects; none while the loader changes the list.
    pub fn objects(&self) -> impl Iterator<Item = &'static LinkMap> + use<> {
        objects_from(if self.is_consistent() { self.first } else { core::ptr::null() })
    }

    /// Returns whether its list is complete now: it is not while objects are loaded or unloaded.
    pub fn is_consistent(&self) -> bool {
        const RT_CONSISTENT: u32 = 0;
        self.state == RT_CONSISTENT
    }
}

/// Returns the program's namespace; none in a static program.
fn base() -> Option<&'static Namespace> {
    // SAFETY: the loader's structure, whose last field is read only if it exists.
    unsafe { debug().cast::<Namespace>().as_ref() }
}

/// Returns the other namespaces that the loader lists.
pub fn namespaces() -> impl Iterator<Item = &'static Namespace> {
    let listed = base().filter(|base| base.version >= WITH_NAMESPACES);
    // SAFETY: the loader's list, from which it removes nothing.
    let mut next = listed.and_then(|base| unsafe { base.next.as_ref() });
    core::iter::from_fn(move || {
        let namespace = next?;
        // SAFETY: as above.
        next = unsafe { namespace.next.as_ref() };
        Some(namespace)
    })
}

/// Returns whether the loader is removing objects from a list: after their destructors have run,
/// and before it unmaps them.
pub fn is_unloading() -> bool {
    const RT_DELETE: u32 = 2;
    base().into_iter().chain(namespaces()).any(|namespace| namespace.state == RT_DELETE)
}

/// Returns whether the list of the program's objects is complete now: it is not while objects are
/// loaded or unloaded.
pub fn is_consistent() -> bool {
    base().is_some_and(Namespace::is_consistent)
}

fn first_object() -> *const LinkMap {
    base().map_or(core::ptr::null(), |base| base.first)
}

fn is_musl() -> bool {
    let (glibc, musl) = debug_symbols();
    glibc.is_null() && !musl.is_null()
}

/// Returns the loader's `struct r_debug`; null in a static program.
fn debug() -> *const usize {
    let (glibc, musl) = debug_symbols();
    if glibc.is_null() && !musl.is_null() {
        // SAFETY: musl's `_dl_debug_addr` points to its `struct r_debug`.
        return unsafe { *musl };
    }
    glibc
}

/// A relocation of an object (`Elf64_Rela`).
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    _addend: i64,
}

impl Relocation {
    /// Returns the index of its symbol; 0: none.
    fn symbol(&self) -> usize {
        (self.info >> 32) as usize
    }
}

/// A word of an object that holds the address of a function of another object.
pub struct Import<'a> {
    /// The word's address.
    pub slot: u64,
    /// Whether it may be bound only when it is first used.
    pub is_lazy: bool,
    name: &'a core::ffi::CStr,
}

impl Import<'_> {
    /// Returns the name with a zero byte at its end.
    pub fn name(&self) -> &[u8] {
        self.name.to_bytes_with_nul()
    }

    /// Returns whether the function has this name, which ends with a zero byte.
    pub fn is_of(&self, name: &[u8]) -> bool {
        self.name.to_bytes_with_nul() == name
    }
}

/// Calls `visit` with the imports of a loaded object. None of them is bound by that.
pub fn each_import(map: &LinkMap, mut visit: impl FnMut(Import<'_>)) {
    each_relocation(map, |tables, relocation| {
        let kind = relocation.info as u32;
        let slot = map.address().wrapping_add(relocation.offset);
        if ![R_GLOB_DAT, R_JUMP_SLOT].contains(&kind) || !slot.is_multiple_of(8) {
            return;
        }
        // SAFETY: relocations contain indices of the object's symbols.
        let name = unsafe { tables.name(relocation.symbol()) };
        visit(Import { slot, is_lazy: kind == R_JUMP_SLOT, name });
    });
}

/// An import of an object that the loader has mapped and not bound yet.
pub struct UnboundImport {
    name: &'static CStr,
    symbol: *mut Symbol,
    base: u64,
}

impl UnboundImport {
    /// Returns the name with a zero byte at its end.
    pub fn name(&self) -> &'static [u8] {
        self.name.to_bytes_with_nul()
    }

    /// Returns whether the function has this name, which ends with a zero byte.
    pub fn is_of(&self, name: &[u8]) -> bool {
        self.name.to_bytes_with_nul() == name
    }

    /// Returns start and end of the entry in the object's table of symbols.
    pub fn symbol(&self) -> (u64, u64) {
        let start = self.symbol as u64;
        (start, start + size_of::<Symbol>() as u64)
    }

    /// Makes the loader bind the import to an address: a hidden symbol is that of its object.
    ///
    /// # Safety
    /// The entry is writable, and an address of a function of this type.
    pub unsafe fn bind(&self, address: u64) {
        const STV_HIDDEN: u8 = 2;
        // SAFETY: the caller's contract.
        unsafe {
            (*self.symbol).value = address.wrapping_sub(self.base);
            (*self.symbol).other = STV_HIDDEN;
        }
    }
}

/// Calls `visit` with the imports of an object, some of them more than once.
pub fn each_unbound_import(map: &LinkMap, mut visit: impl FnMut(UnboundImport)) {
    each_relocation(map, |tables, relocation| {
        let index = relocation.symbol();
        // SAFETY: relocations contain indices of the object's symbols.
        let (symbol, name) = unsafe { (tables.symbol(index), tables.name(index)) };
        if index != 0 && symbol.section == 0 && symbol.other == 0 {
            let symbol = core::ptr::from_ref(symbol).cast_mut();
            visit(UnboundImport { name, symbol, base: tables.base() });
        }
    });
}

/// Returns whether an object depends on another one directly.
pub fn needs(map: &LinkMap, other: &LinkMap) -> bool {
    const DT_NEEDED: i64 = 1;
    const DT_SONAME: i64 = 14;
    // SAFETY: these entries of dynamic sections are offsets of strings.
    let text = |map: &LinkMap, offset| unsafe { map.string(offset) }.unwrap_or(c"").to_bytes();
    let own_name = other.entry(DT_SONAME).map_or(&b""[..], |offset| text(other, offset));
    let mut is_needed = false;
    map.each_entry(|tag, value| {
        if tag == DT_NEEDED {
            let name = text(map, value);
            is_needed |= name == own_name || name == file_name(other) || name == other.path();
        }
    });
    is_needed
}

fn each_relocation(map: &LinkMap, mut visit: impl FnMut(&Tables, &Relocation)) {
    const DT_PLTRELSZ: i64 = 2;
    const DT_RELA: i64 = 7;
    const DT_RELASZ: i64 = 8;
    const DT_JMPREL: i64 = 23;
    let Some(tables) = Tables::of(map) else { return };
    for (start, bytes) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
        let (Some(start), Some(bytes)) = (map.address_entry(start), map.entry(bytes)) else {
            continue;
        };
        let count = bytes as usize / size_of::<Relocation>();
        // SAFETY: the table of a loaded object, as described by its dynamic section.
        let relocations = unsafe { core::slice::from_raw_parts(start as *const Relocation, count) };
        relocations.iter().for_each(|relocation| visit(&tables, relocation));
    }
}

/// Returns how the program refers to a name (ended by a zero byte): the reference of the first
/// object that imports it, or else of one that would be linked now: with the default version.
pub fn reference_to(name: &[u8]) -> Reference {
    if is_musl() {
        return Reference::Newest;
    }
    let linked = || objects().find_map(|map| default_reference(map, name));
    let imported = objects().find_map(|map| reference_of(map, name));
    imported.or_else(linked).unwrap_or(Reference::Newest)
}

/// Returns how an object refers to a name (ended by a zero byte); `None` if it does not import it.
fn reference_of(map: &LinkMap, name: &[u8]) -> Option<Reference> {
    let mut found = None;
    each_relocation(map, |tables, relocation| {
        let index = relocation.symbol();
        if index == 0 || found.is_some() {
            return;
        }
        // SAFETY: relocations contain indices of the object's symbols.
        unsafe {
            let is_import = tables.symbol(index).section == 0;
            if is_import && tables.name(index).to_bytes_with_nul() == name {
                found = Some(versions::reference(map, tables, index));
            }
        }
    });
    found
}

/// Returns the reference of objects that are linked with this one's default version of a name;
/// `None` if it has no version.
fn default_reference(map: &LinkMap, name: &[u8]) -> Option<Reference> {
    let tables = Tables::of(map)?;
    let index = versions::definition(map, &tables, name, &mut || Reference::Newest)?;
    versions::reference_to_definition(map, &tables, index)
}

/// Returns the number of definitions of a name (ended by a zero byte) in an object: one for each
/// version.
pub fn count_definitions(map: &LinkMap, name: &[u8]) -> usize {
    let mut count = 0;
    if let Some(tables) = Tables::of(map) {
        tables.each_definition(name, |_| count += 1);
    }
    count
}

/// Returns whether an object, which may have just been mapped, defines a name (ended by a zero
/// byte), as a default version if it has versions.
pub fn defines(map: &LinkMap, name: &[u8]) -> bool {
    Tables::of(map).is_some_and(|tables| {
        versions::definition(map, &tables, name, &mut || Reference::Newest).is_some()
    })
}

/// Returns address and size of the definition of a name (ended by a zero byte) in an object that
/// `dlsym` finds.
pub fn look_up(map: &LinkMap, name: &[u8]) -> Option<(usize, usize)> {
    look_up_for(map, name, &mut || Reference::Newest)
}

/// A function that a resolver chooses.
const STT_GNU_IFUNC: u8 = 10;

/// Returns address and size of each version of a function (its name is ended by a zero byte) of an
/// object that may not be relocated yet. Omits functions that a resolver chooses.
pub fn each_code(map: &LinkMap, name: &[u8], mut visit: impl FnMut(u64, usize)) {
    let Some(tables) = Tables::of(map) else { return };
    tables.each_definition(name, |index| {
        // SAFETY: an index of the object's table.
        let symbol = unsafe { tables.symbol(index) };
        if symbol.info & 15 != STT_GNU_IFUNC {
            visit(tables.base().wrapping_add(symbol.value), symbol.size as usize);
        }
    });
}

/// Calls `visit` with name, address and size of each function in the table of symbols of an object
/// that has a System V hash table.
pub fn each_listed_function(map: &LinkMap, mut visit: impl FnMut(&[u8], u64, usize)) {
    const STT_FUNC: u8 = 2;
    let Some(tables) = Tables::of(map) else { return };
    for index in 0..tables.count() {
        // SAFETY: one of the object's symbols.
        let (symbol, name) = unsafe { (tables.symbol(index), tables.name(index)) };
        if symbol.info & 15 == STT_FUNC {
            visit(name.to_bytes(), tables.base().wrapping_add(symbol.value), symbol.size as usize);
        }
    }
}

/// Returns address and size of the definition of a name (ended by a zero byte) in an object that
/// the program's references take.
pub fn look_up_as_imported(map: &LinkMap, name: &[u8]) -> Option<(usize, usize)> {
    look_up_for(map, name, &mut || reference_to(name))
}

/// Returns address and size of the definition of a name (ended by a zero byte) in an object that a
/// reference takes. `reference` is called only if the object has several versions.
pub fn look_up_for(
    map: &LinkMap,
    name: &[u8],
    reference: &mut dyn FnMut() -> Reference,
) -> Option<(usize, usize)> {
    let tables = Tables::of(map)?;
    let index = versions::definition(map, &tables, name, reference)?;
    // SAFETY: an index of the object's table.
    let symbol = unsafe { tables.symbol(index) };
    let address = tables.base().wrapping_add(symbol.value) as usize;
    if symbol.info & 15 == STT_GNU_IFUNC {
        // SAFETY: a resolver of a loaded and relocated object, of this type.
        let resolver: extern "C" fn() -> usize = unsafe { core::mem::transmute(address) };
        return Some((resolver(), 0));
    }
    Some((address, symbol.size as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: a function of libc, whose address is taken.
    unsafe extern "C" {
        fn getauxval();
    }

    fn libc() -> &'static LinkMap {
        objects().find(|map| file_name(map) == b"libc.so.6").expect("glibc is loaded")
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no loader")]
    fn a_function_of_libc_is_where_the_loader_says() {
        let (address, size) = look_up(libc(), b"getauxval\0").expect("libc has it");
        assert_eq!(address, getauxval as *const () as usize);
        assert!(size > 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no loader")]
    fn what_an_object_only_uses_or_does_not_know_is_not_found() {
        assert!(look_up(libc(), b"heaptide_interface\0").is_none());
        assert!(look_up(libc(), b"getauxva\0").is_none());
        let this = objects().next().expect("the program");
        assert!(look_up(this, b"getauxval\0").is_none());
    }

    /// The C library of x86-64 has two versions of `quick_exit`.
    #[test]
    #[cfg_attr(miri, ignore = "there is no loader")]
    fn a_reference_takes_its_own_version() {
        let find = |reference| look_up_for(libc(), b"quick_exit\0", &mut || reference);
        let newest = find(Reference::Newest).expect("a default version");
        let version = |name| find(Reference::Version(name));
        if let Some(old) = version(c"GLIBC_2.10") {
            assert_ne!(old, newest);
            assert_eq!(version(c"GLIBC_2.24"), Some(newest));
        }
        assert_eq!(version(c"GLIBC_9.99"), None);
        assert!(matches!(reference_to(b"getauxval\0"), Reference::Version(_)));
        assert_eq!(reference_to(b"no_such_function\0"), Reference::Newest);
    }
}
