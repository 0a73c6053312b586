//! The loader's list of objects, and lookups in their hash tables.
//!
//! This replaces dlsym: nothing here allocates, locks or fails half-way. It works with every libc,
//! before that is initialised, and also finds libraries that were opened with RTLD_LOCAL.

use crate::sys::arch::{R_GLOB_DAT, R_JUMP_SLOT, debug_symbols};
use crate::sys::range::Range;
use core::ffi::c_char;

/// An entry of the list (`struct link_map` in link.h; equal in glibc and musl).
#[repr(C)]
pub struct LinkMap {
    address: u64,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
}

#[repr(C)]
pub struct Dynamic {
    tag: i64,
    value: u64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

impl LinkMap {
    /// Returns the difference between addresses in memory and in its file.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the address of its dynamic section, which identifies the loaded object.
    pub fn dynamic_address(&self) -> usize {
        self.dynamic as usize
    }

    /// Returns the path of its file; empty for the executable.
    pub fn path(&self) -> &[u8] {
        if self.name.is_null() {
            return b"";
        }
        // SAFETY: the loader's name is a C string.
        unsafe { core::ffi::CStr::from_ptr(self.name) }.to_bytes()
    }

    /// Returns whether its dynamic section is `dynamic`.
    pub fn has_dynamic(&self, dynamic: *const Dynamic) -> bool {
        self.dynamic == dynamic
    }
}

/// Returns the loaded objects, in load order; none in a static program.
pub fn objects() -> impl Iterator<Item = &'static LinkMap> {
    let mut object = first_object();
    core::iter::from_fn(move || {
        // SAFETY: the list is the loader's; entries live as long as their objects. A program that
        // unloads an object while its functions are being resolved is broken anyway.
        let map = unsafe { object.as_ref() }?;
        object = map.next;
        Some(map)
    })
}

/// Returns whether the loader's list is complete now: it is not while objects are loaded or
/// unloaded.
pub fn is_consistent() -> bool {
    const RT_CONSISTENT: u32 = 0;
    // SAFETY: `r_state`, a number of 4 bytes, follows three words.
    !debug().is_null() && unsafe { *debug().wrapping_add(3).cast::<u32>() } == RT_CONSISTENT
}

fn first_object() -> *const LinkMap {
    if debug().is_null() {
        return core::ptr::null();
    }
    // SAFETY: the second word of `struct r_debug` is the list's head.
    unsafe { *debug().wrapping_add(1) as *const LinkMap }
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

/// A word of an object that holds the address of a function of another object.
pub struct Import<'a> {
    /// The word's address.
    pub slot: u64,
    /// Whether it may be bound only when it is first used.
    pub is_lazy: bool,
    name: &'a core::ffi::CStr,
}

impl Import<'_> {
    /// Returns whether the function has this name, which ends with a zero byte.
    pub fn is_of(&self, name: &[u8]) -> bool {
        self.name.to_bytes_with_nul() == name
    }
}

/// Calls `visit` with the imports of a loaded object. None of them is bound by that.
pub fn each_import(map: &LinkMap, mut visit: impl FnMut(Import<'_>)) {
    const DT_PLTRELSZ: i64 = 2;
    const DT_RELA: i64 = 7;
    const DT_RELASZ: i64 = 8;
    const DT_JMPREL: i64 = 23;
    let Some(tables) = tables(map) else { return };
    for (start, bytes) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
        let (Some(start), Some(bytes)) = (dynamic(map, start), dynamic(map, bytes)) else {
            continue;
        };
        let start = if start < map.address { start + map.address } else { start };
        let count = bytes as usize / size_of::<Relocation>();
        // SAFETY: the table of a loaded object, as described by its dynamic section.
        let relocations = unsafe { core::slice::from_raw_parts(start as *const Relocation, count) };
        for relocation in relocations {
            let kind = relocation.info as u32;
            let slot = map.address.wrapping_add(relocation.offset);
            if ![R_GLOB_DAT, R_JUMP_SLOT].contains(&kind) || !slot.is_multiple_of(8) {
                continue;
            }
            // SAFETY: relocations contain indices of the object's symbols, whose names are strings.
            let name = unsafe {
                let symbol = &*tables.symbols.add((relocation.info >> 32) as usize);
                core::ffi::CStr::from_ptr(tables.strings.add(symbol.name as usize))
            };
            visit(Import { slot, is_lazy: kind == R_JUMP_SLOT, name });
        }
    }
}

/// A program header (`Elf64_Phdr`).
#[repr(C)]
pub struct ProgramHeader {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub vaddr: u64,
    pub paddr: u64,
    pub filesz: u64,
    pub memsz: u64,
    pub align: u64,
}

/// The kind of a loaded segment, and its flag for writable memory.
pub const PT_LOAD: u32 = 1;
const PF_W: u32 = 2;

/// Returns the initialised writable data of a loaded library whose file begins with its first
/// segment, as linkers write it.
pub fn writable_data(map: &LinkMap) -> Option<Range> {
    let base = map.address as *const u8;
    // SAFETY: the beginning of a loaded library is its ELF64 header: e_phoff at 32, e_phnum at 56.
    let headers = unsafe {
        if base.is_null() || *base.cast::<[u8; 4]>() != *b"\x7fELF" {
            return None;
        }
        let offset = *base.add(32).cast::<u64>() as usize;
        let count = *base.add(56).cast::<u16>() as usize;
        core::slice::from_raw_parts(base.add(offset).cast::<ProgramHeader>(), count)
    };
    let data = headers.iter().find(|h| h.kind == PT_LOAD && h.flags & PF_W != 0)?;
    let low = map.address + data.vaddr;
    Some(Range { low, high: low + data.filesz })
}

/// Returns an entry of an object's dynamic section.
fn dynamic(map: &LinkMap, tag: i64) -> Option<u64> {
    let mut entry = map.dynamic;
    // SAFETY: the dynamic section ends with tag 0.
    while let Some(d) = unsafe { entry.as_ref() }.filter(|d| d.tag != 0) {
        if d.tag == tag {
            return Some(d.value);
        }
        // SAFETY: not the last entry.
        entry = unsafe { entry.add(1) };
    }
    None
}

/// Returns the file name of an object, without its directory.
pub fn file_name(map: &LinkMap) -> &[u8] {
    let name = map.path();
    name.rsplit(|&b| b == b'/').next().unwrap_or(name)
}

/// The tables of one object that a lookup needs.
struct Tables {
    symbols: *const Symbol,
    strings: *const c_char,
    versions: *const u16,
    gnu_hash: *const u32,
    hash: *const u32,
    base: u64,
}

/// Returns whether an object, which may have just been mapped, defines a name (ended by a zero
/// byte).
pub fn defines(map: &LinkMap, name: &[u8]) -> bool {
    tables(map).is_some_and(|tables| find(&tables, name).is_some())
}

fn find(tables: &Tables, name: &[u8]) -> Option<&'static Symbol> {
    // SAFETY: the tables are those of a loaded object, with the layout in the ELF and GNU hash
    // specifications.
    unsafe {
        let index = if !tables.gnu_hash.is_null() {
            gnu_hash_find(tables, name)?
        } else {
            sysv_hash_find(tables, name)?
        };
        Some(&*tables.symbols.add(index))
    }
}

/// Returns address and size of the definition of a name (ended by a zero byte) in an object.
pub fn look_up(map: &LinkMap, name: &[u8]) -> Option<(usize, usize)> {
    let tables = tables(map)?;
    let symbol = find(&tables, name)?;
    // SAFETY: a resolver of a loaded and relocated object, of this type.
    unsafe {
        let address = tables.base.wrapping_add(symbol.value) as usize;
        const STT_GNU_IFUNC: u8 = 10;
        if symbol.info & 15 == STT_GNU_IFUNC {
            let resolver: extern "C" fn() -> usize = core::mem::transmute(address);
            return Some((resolver(), 0));
        }
        Some((address, symbol.size as usize))
    }
}

fn tables(map: &LinkMap) -> Option<Tables> {
    const DT_HASH: i64 = 4;
    const DT_STRTAB: i64 = 5;
    const DT_SYMTAB: i64 = 6;
    const DT_GNU_HASH: i64 = 0x6fff_fef5;
    const DT_VERSYM: i64 = 0x6fff_fff0;
    let mut t = Tables {
        symbols: core::ptr::null(),
        strings: core::ptr::null(),
        versions: core::ptr::null(),
        gnu_hash: core::ptr::null(),
        hash: core::ptr::null(),
        base: map.address,
    };
    let mut entry = map.dynamic;
    // SAFETY: the dynamic section ends with tag 0.
    while let Some(d) = unsafe { entry.as_ref() }.filter(|d| d.tag != 0) {
        // glibc relocates these pointers, musl and the vDSO leave them relative.
        let at = if d.value < map.address { d.value + map.address } else { d.value };
        match d.tag {
            DT_HASH => t.hash = at as *const u32,
            DT_STRTAB => t.strings = at as *const c_char,
            DT_SYMTAB => t.symbols = at as *const Symbol,
            DT_GNU_HASH => t.gnu_hash = at as *const u32,
            DT_VERSYM => t.versions = at as *const u16,
            _ => {}
        }
        // SAFETY: not the last entry.
        entry = unsafe { entry.add(1) };
    }
    let usable = !t.symbols.is_null()
        && !t.strings.is_null()
        && (!t.gnu_hash.is_null() || !t.hash.is_null());
    usable.then_some(t)
}

/// Finds a name in the GNU hash table.
///
/// # Safety
/// `t` is of a loaded object that has a GNU hash table.
unsafe fn gnu_hash_find(t: &Tables, name: &[u8]) -> Option<usize> {
    let text = &name[..name.len() - 1];
    let hash = text.iter().fold(5381u32, |h, &b| h.wrapping_mul(33).wrapping_add(b as u32));
    // SAFETY: header (buckets, first symbol, bloom words, shift), bloom words, buckets, chains.
    unsafe {
        let [buckets, first, words, _] = *(t.gnu_hash as *const [u32; 4]);
        if buckets == 0 {
            return None;
        }
        let bucket_table = t.gnu_hash.add(4 + 2 * words as usize);
        let chains = bucket_table.add(buckets as usize);
        let mut i = *bucket_table.add((hash % buckets) as usize);
        if i < first {
            return None;
        }
        loop {
            let chained = *chains.add((i - first) as usize);
            if (chained ^ hash) < 2 && matches(t, i as usize, name) {
                return Some(i as usize);
            }
            if chained & 1 != 0 {
                return None;
            }
            i += 1;
        }
    }
}

/// Finds a name in the System V hash table.
///
/// # Safety
/// `t` is of a loaded object that has a System V hash table.
unsafe fn sysv_hash_find(t: &Tables, name: &[u8]) -> Option<usize> {
    let hash = name[..name.len() - 1].iter().fold(0u32, |h, &b| {
        let h = (h << 4).wrapping_add(b as u32);
        let high = h & 0xf000_0000;
        (h ^ (high >> 24)) & !high
    });
    // SAFETY: two counts, buckets, chains.
    unsafe {
        let [buckets, _] = *(t.hash as *const [u32; 2]);
        if buckets == 0 {
            return None;
        }
        let mut i = *t.hash.add(2 + (hash % buckets) as usize);
        while i != 0 {
            if matches(t, i as usize, name) {
                return Some(i as usize);
            }
            i = *t.hash.add(2 + (buckets + i) as usize);
        }
    }
    None
}

/// Returns whether symbol `i` is a defined, default-version function with this name.
///
/// # Safety
/// `i` is within the symbol table of `t`.
unsafe fn matches(t: &Tables, i: usize, name: &[u8]) -> bool {
    const VERSION_HIDDEN: u16 = 0x8000;
    // SAFETY: promised by the caller; strings end with a zero byte, as `name` does.
    unsafe {
        let symbol = &*t.symbols.add(i);
        if symbol.section == 0 || symbol.value == 0 {
            return false;
        }
        if !t.versions.is_null() && *t.versions.add(i) & VERSION_HIDDEN != 0 {
            return false;
        }
        let text = t.strings.add(symbol.name as usize);
        name.iter().enumerate().all(|(k, &b)| *text.add(k) as u8 == b)
    }
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

    #[test]
    #[cfg_attr(miri, ignore = "there is no loader")]
    fn both_kinds_of_tables_find_the_same() {
        let has_both = |map: &&LinkMap| {
            let tables = tables(map);
            tables.is_some_and(|t| !t.hash.is_null() && !t.gnu_hash.is_null())
        };
        for map in objects().filter(has_both) {
            let tables = tables(map).expect("as filtered");
            for name in [&b"__vdso_clock_gettime\0"[..], b"malloc\0", b"no_such_function\0"] {
                // SAFETY: the object has both tables.
                let found =
                    unsafe { [gnu_hash_find(&tables, name), sysv_hash_find(&tables, name)] };
                assert_eq!(found[0], found[1]);
            }
        }
    }
}
