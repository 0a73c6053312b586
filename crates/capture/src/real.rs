//! The functions behind the hooks: the next definition of a symbol after this library, in load
//! order.
//!
//! Found by walking the loader's list of objects and their hash tables, not by dlsym: nothing here
//! allocates, locks or fails half-way, it works in every libc, before it is initialised, and it
//! also finds libraries that were opened with RTLD_LOCAL.

use core::arch::{asm, global_asm};
use core::ffi::c_char;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

global_asm!(".weak _r_debug", ".weak _dl_debug_addr", ".hidden _DYNAMIC");

/// An entry of the loader's list (`struct link_map` in link.h; the same in glibc and musl).
#[repr(C)]
pub struct LinkMap {
    address: u64,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
}

#[repr(C)]
struct Dynamic {
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

/// A function found, and whether the library that has it is a C++ runtime, whose operators call
/// malloc and free.
#[derive(Clone, Copy)]
pub struct Found {
    pub address: usize,
    pub runtime: bool,
    pub object: *const LinkMap,
    /// Bytes of its code, 0 if the symbol does not say.
    pub size: usize,
}

/// Looks `name` (ended by a zero byte) up behind this library.
pub fn find(name: &[u8]) -> Option<Found> {
    let me = own_dynamic();
    let mut behind = false;
    let mut object = first_object();
    // SAFETY: the list is the loader's; entries live as long as their object, and whoever unloads
    // an object while its functions are being resolved has lost already.
    while let Some(map) = unsafe { object.as_ref() } {
        if behind && let Some((address, size)) = look_up(map, name) {
            return Some(Found { address, runtime: is_runtime(map), object, size });
        }
        behind |= map.dynamic == me;
        object = map.next;
    }
    None
}

fn first_object() -> *const LinkMap {
    let glibc: *const usize;
    let musl: *const *const usize;
    // SAFETY: reads two weak GOT entries, null where the symbol does not exist.
    unsafe {
        asm!("mov {0}, qword ptr [rip + _r_debug@GOTPCREL]",
            "mov {1}, qword ptr [rip + _dl_debug_addr@GOTPCREL]",
            out(reg) glibc, out(reg) musl, options(pure, readonly, nostack));
    }
    let debug = if !glibc.is_null() {
        glibc
    } else if !musl.is_null() {
        // SAFETY: musl's `_dl_debug_addr` points at its `struct r_debug`.
        unsafe { *musl }
    } else {
        return core::ptr::null();
    };
    // SAFETY: `struct r_debug` has the list's head as its second word.
    unsafe { *debug.add(1) as *const LinkMap }
}

fn own_dynamic() -> *const Dynamic {
    let p: *const Dynamic;
    // SAFETY: the address of this library's own dynamic section.
    unsafe { asm!("lea {0}, [rip + _DYNAMIC]", out(reg) p, options(pure, nomem, nostack)) };
    p
}

/// The file name of an object, without its directory.
fn file_name(map: &LinkMap) -> &[u8] {
    if map.name.is_null() {
        return b"";
    }
    // SAFETY: the loader's name is a C string.
    let name = unsafe { core::ffi::CStr::from_ptr(map.name) }.to_bytes();
    name.rsplit(|&b| b == b'/').next().unwrap_or(name)
}

fn is_runtime(map: &LinkMap) -> bool {
    let file = file_name(map);
    file.starts_with(b"libstdc++.so") || file.starts_with(b"libc++.so")
}

impl Found {
    /// Whether the function is in the object of this file name.
    pub fn is_in(&self, file: &[u8]) -> bool {
        // SAFETY: an entry of the loader's list.
        unsafe { self.object.as_ref() }.is_some_and(|map| file_name(map) == file)
    }
}

/// The tables of one object that a look-up needs.
struct Tables {
    symbols: *const Symbol,
    strings: *const c_char,
    versions: *const u16,
    gnu_hash: *const u32,
    hash: *const u32,
    base: u64,
}

fn look_up(map: &LinkMap, name: &[u8]) -> Option<(usize, usize)> {
    let tables = tables(map)?;
    // SAFETY: the tables are those of a loaded object, laid out as the ELF and GNU hash
    // specifications say.
    unsafe {
        let index = if !tables.gnu_hash.is_null() {
            gnu_hash_find(&tables, name)?
        } else {
            sysv_hash_find(&tables, name)?
        };
        let symbol = &*tables.symbols.add(index);
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

/// Whether symbol `i` is a defined, default-version function of this name.
///
/// # Safety
/// `i` is within the symbol table of `t`.
unsafe fn matches(t: &Tables, i: usize, name: &[u8]) -> bool {
    const VERSION_HIDDEN: u16 = 0x8000;
    // SAFETY: as promised; strings end with a zero byte, as `name` does.
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

/// A function to be found on first use; a later load may still bring it.
#[repr(C)]
pub struct Real {
    /// First, for entries jump through it.
    address: AtomicUsize,
    size: AtomicUsize,
    runtime: AtomicBool,
    name: &'static [u8],
}

impl Real {
    /// `name` ends with a zero byte.
    pub const fn new(name: &'static [u8]) -> Real {
        Real {
            address: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            runtime: AtomicBool::new(false),
            name,
        }
    }

    /// Its address; 0 if nothing loaded defines it.
    #[inline(always)]
    pub fn get(&self) -> usize {
        let address = self.address.load(Relaxed);
        if address != 0 { address } else { self.resolve() }
    }

    /// The same for one that was looked up before, as the allocator's are before the first event.
    #[inline(always)]
    pub fn known(&self) -> usize {
        self.address.load(Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn resolve(&self) -> usize {
        let Some(found) = find(self.name) else {
            return 0;
        };
        self.runtime.store(found.runtime, Relaxed);
        self.size.store(found.size, Relaxed);
        self.address.store(found.address, Relaxed);
        found.address
    }

    /// Whether a return address is inside the function.
    pub fn holds(&self, pc: u64) -> bool {
        let start = self.get();
        start != 0 && (pc as usize).wrapping_sub(start) <= self.size.load(Relaxed)
    }

    /// Whether it is a C++ runtime's own: its operators new and delete are malloc and free.
    #[inline(always)]
    pub fn is_runtime(&self) -> bool {
        self.get() != 0 && self.runtime.load(Relaxed)
    }
}
