//! A loaded object: its entry in the loader's list, its dynamic section, and the symbols that it
//! defines, by its hash table.

use core::ffi::{CStr, c_char};

/// An entry of the loader's list (`struct link_map` in link.h; equal in glibc and musl).
#[repr(C)]
pub struct LinkMap {
    address: u64,
    name: *const c_char,
    dynamic: *const Dynamic,
    pub(super) next: *const LinkMap,
}

#[repr(C)]
pub struct Dynamic {
    tag: i64,
    value: u64,
}

/// A symbol (`Elf64_Sym`).
#[repr(C)]
pub struct Symbol {
    name: u32,
    pub info: u8,
    pub other: u8,
    pub section: u16,
    pub value: u64,
    pub size: u64,
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;

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
        unsafe { CStr::from_ptr(self.name) }.to_bytes()
    }

    /// Returns the address of its table of symbols; 0 without one.
    pub fn symbols_address(&self) -> u64 {
        self.address_entry(DT_SYMTAB).unwrap_or(0)
    }

    /// Returns the string at this offset of its table of strings.
    ///
    /// # Safety
    /// The object's dynamic section contains the offset.
    pub unsafe fn string(&self, offset: u64) -> Option<&'static CStr> {
        let strings = self.address_entry(DT_STRTAB)?;
        // SAFETY: the caller's contract.
        Some(unsafe { CStr::from_ptr((strings + offset) as *const c_char) })
    }

    /// Returns whether its dynamic section is `dynamic`.
    pub fn has_dynamic(&self, dynamic: *const Dynamic) -> bool {
        self.dynamic == dynamic
    }

    /// Returns an entry of its dynamic section.
    pub fn entry(&self, tag: i64) -> Option<u64> {
        let mut found = None;
        self.each_entry(|entry, value| {
            if entry == tag && found.is_none() {
                found = Some(value);
            }
        });
        found
    }

    /// Returns the address that an entry of its dynamic section contains.
    pub fn address_entry(&self, tag: i64) -> Option<u64> {
        self.entry(tag).map(|value| self.relocated(value))
    }

    /// glibc relocates some of these addresses, musl and the vDSO leave them relative. Those of a
    /// static program, which a command made, may be below it, at a negative offset.
    fn relocated(&self, value: u64) -> u64 {
        let is_relative = value < self.address || value > i64::MAX as u64;
        if is_relative { value.wrapping_add(self.address) } else { value }
    }

    /// Calls `visit` with tag and value of each entry of its dynamic section.
    pub fn each_entry(&self, mut visit: impl FnMut(i64, u64)) {
        let mut entry = self.dynamic;
        // SAFETY: the dynamic section ends with tag 0.
        while let Some(d) = unsafe { entry.as_ref() }.filter(|d| d.tag != 0) {
            visit(d.tag, d.value);
            // SAFETY: not the last entry.
            entry = unsafe { entry.add(1) };
        }
    }
}

/// Returns the file name of an object, without its directory.
pub fn file_name(map: &LinkMap) -> &[u8] {
    let name = map.path();
    name.rsplit(|&b| b == b'/').next().unwrap_or(name)
}

/// The tables of one object that a lookup needs.
pub struct Tables {
    symbols: *const Symbol,
    strings: *const c_char,
    versions: *const u16,
    gnu_hash: *const u32,
    hash: *const u32,
    base: u64,
}

impl Tables {
    /// Returns the tables of an object, which may have just been mapped.
    pub fn of(map: &LinkMap) -> Option<Tables> {
        const DT_HASH: i64 = 4;
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
        map.each_entry(|tag, value| {
            let at = map.relocated(value);
            match tag {
                DT_HASH => t.hash = at as *const u32,
                DT_STRTAB => t.strings = at as *const c_char,
                DT_SYMTAB => t.symbols = at as *const Symbol,
                DT_GNU_HASH => t.gnu_hash = at as *const u32,
                DT_VERSYM => t.versions = at as *const u16,
                _ => {}
            }
        });
        let usable = !t.symbols.is_null()
            && !t.strings.is_null()
            && (!t.gnu_hash.is_null() || !t.hash.is_null());
        usable.then_some(t)
    }

    /// Returns the difference between addresses in memory and in the file.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the number of symbols by the System V hash table; 0 without one.
    pub fn count(&self) -> usize {
        // SAFETY: null, or two counts, the second of which is that of chains, one per symbol.
        unsafe { self.hash.cast::<[u32; 2]>().as_ref() }.map_or(0, |counts| counts[1] as usize)
    }

    /// Returns the symbol with an index.
    ///
    /// # Safety
    /// The object's tables contain the index.
    pub unsafe fn symbol(&self, index: usize) -> &'static Symbol {
        // SAFETY: the caller's contract.
        unsafe { &*self.symbols.add(index) }
    }

    /// Returns the name of a symbol.
    ///
    /// # Safety
    /// The object's tables contain the index.
    pub unsafe fn name(&self, index: usize) -> &'static CStr {
        // SAFETY: the caller's contract; names are strings of the object.
        unsafe { CStr::from_ptr(self.strings.add(self.symbol(index).name as usize)) }
    }

    /// Returns a string of the object.
    ///
    /// # Safety
    /// The object's tables contain the offset.
    pub unsafe fn string(&self, offset: u32) -> &'static CStr {
        // SAFETY: the caller's contract.
        unsafe { CStr::from_ptr(self.strings.add(offset as usize)) }
    }

    /// Returns the entry of a symbol in the table of versions; `None` without such a table.
    ///
    /// # Safety
    /// The object's tables contain the index.
    pub unsafe fn version(&self, index: usize) -> Option<u16> {
        // SAFETY: the caller's contract; the table has an entry per symbol.
        (!self.versions.is_null()).then(|| unsafe { *self.versions.add(index) })
    }

    /// Calls `visit` with the index of each definition of a name (ended by a zero byte): there are
    /// several if the symbol has versions.
    pub fn each_definition(&self, name: &[u8], visit: impl FnMut(usize)) {
        // SAFETY: the tables are those of a loaded object, with the layout in the ELF and GNU hash
        // specifications.
        unsafe {
            if !self.gnu_hash.is_null() {
                self.each_in_gnu_hash(name, visit);
            } else {
                self.each_in_sysv_hash(name, visit);
            }
        }
    }

    /// Visits the definitions of a name in the GNU hash table.
    ///
    /// # Safety
    /// The object is loaded and has a GNU hash table.
    unsafe fn each_in_gnu_hash(&self, name: &[u8], mut visit: impl FnMut(usize)) {
        let text = &name[..name.len() - 1];
        let hash = text.iter().fold(5381u32, |h, &b| h.wrapping_mul(33).wrapping_add(b as u32));
        // SAFETY: header (buckets, first symbol, bloom words, shift), bloom words, buckets, chains.
        unsafe {
            let [buckets, first, words, _] = *(self.gnu_hash as *const [u32; 4]);
            if buckets == 0 {
                return;
            }
            let bucket_table = self.gnu_hash.add(4 + 2 * words as usize);
            let chains = bucket_table.add(buckets as usize);
            let mut i = *bucket_table.add((hash % buckets) as usize);
            if i < first {
                return;
            }
            loop {
                let chained = *chains.add((i - first) as usize);
                if (chained ^ hash) < 2 && self.defines(i as usize, name) {
                    visit(i as usize);
                }
                if chained & 1 != 0 {
                    return;
                }
                i += 1;
            }
        }
    }

    /// Visits the definitions of a name in the System V hash table.
    ///
    /// # Safety
    /// The object is loaded and has a System V hash table.
    unsafe fn each_in_sysv_hash(&self, name: &[u8], mut visit: impl FnMut(usize)) {
        let hash = name[..name.len() - 1].iter().fold(0u32, |h, &b| {
            let h = (h << 4).wrapping_add(b as u32);
            let high = h & 0xf000_0000;
            (h ^ (high >> 24)) & !high
        });
        // SAFETY: two counts, buckets, chains.
        unsafe {
            let [buckets, _] = *(self.hash as *const [u32; 2]);
            if buckets == 0 {
                return;
            }
            let mut i = *self.hash.add(2 + (hash % buckets) as usize);
            while i != 0 {
                if self.defines(i as usize, name) {
                    visit(i as usize);
                }
                i = *self.hash.add(2 + (buckets + i) as usize);
            }
        }
    }

    /// Returns whether symbol `i` is a definition of this name.
    ///
    /// # Safety
    /// `i` is within the symbol table.
    unsafe fn defines(&self, i: usize, name: &[u8]) -> bool {
        // SAFETY: promised by the caller; strings end with a zero byte, as `name` does.
        unsafe {
            let symbol = self.symbol(i);
            if symbol.section == 0 || symbol.value == 0 {
                return false;
            }
            let text = self.strings.add(symbol.name as usize);
            name.iter().enumerate().all(|(k, &b)| *text.add(k) as u8 == b)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::loader::objects;

    #[test]
    #[cfg_attr(miri, ignore = "there is no loader")]
    fn both_kinds_of_tables_find_the_same() {
        let has_both = |map: &&LinkMap| {
            let tables = Tables::of(map);
            tables.is_some_and(|t| !t.hash.is_null() && !t.gnu_hash.is_null())
        };
        for map in objects().filter(has_both) {
            let tables = Tables::of(map).expect("as filtered");
            for name in [&b"__vdso_clock_gettime\0"[..], b"malloc\0", b"no_such_function\0"] {
                let mut found = [None, None];
                // SAFETY: the object has both tables.
                unsafe {
                    tables.each_in_gnu_hash(name, |index| found[0] = Some(index));
                    tables.each_in_sysv_hash(name, |index| found[1] = Some(index));
                }
                assert_eq!(found[0], found[1]);
                assert!(found[0].is_none_or(|index| index < tables.count()));
            }
        }
    }
}
