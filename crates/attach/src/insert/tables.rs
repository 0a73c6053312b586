//! A list of loaded objects as a loader has it (`struct r_debug` and `struct link_map` in link.h),
//! with a dynamic section and a table of symbols for a program that has none.

/// A symbol (`Elf64_Sym`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: Vec<u8>,
    /// Its type and binding.
    pub info: u8,
    /// Its address in the file.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// It is the one that its name means.
    pub is_unique: bool,
}

/// An object other than the program.
#[derive(Clone, Debug)]
pub struct Object {
    /// The difference between addresses in memory and in its file.
    pub bias: u64,
    /// The name for the list.
    pub name: Vec<u8>,
    /// The address of its dynamic section.
    pub dynamic: u64,
}

/// What the tables describe.
#[derive(Debug)]
pub struct Contents<'a> {
    /// The difference between addresses in memory and in the file of the program.
    pub bias: u64,
    /// The functions and data of the program.
    pub symbols: &'a [Symbol],
    /// The other objects, in the order of the list.
    pub objects: &'a [Object],
}

/// Bytes of `struct r_debug`.
const DEBUG_BYTES: u64 = 40;
/// Bytes of `struct link_map`.
const MAP_BYTES: u64 = 40;
/// Bytes of the dynamic section: four entries.
const DYNAMIC_BYTES: u64 = 64;
/// The section number of symbols with addresses.
const SHN_ABS: u16 = 0xfff1;
/// The section number of symbols that no lookup of a name finds.
const SHN_UNDEF: u16 = 0;

impl Contents<'_> {
    /// Returns the tables for an address in memory, which is a multiple of 8. Their start is the
    /// `struct r_debug`. Their length does not depend on the address.
    pub fn at(&self, start: u64) -> Vec<u8> {
        let maps = start + DEBUG_BYTES;
        let dynamic = maps + MAP_BYTES * (self.objects.len() as u64 + 1);
        let symbols_at = dynamic + DYNAMIC_BYTES;
        let mut strings = vec![0];
        let symbols = self.symbols(&mut strings);
        let hash_at = symbols_at + symbols.len() as u64;
        let hash = self.hash();
        let strings_at = hash_at + hash.len() as u64;
        let mut words: Vec<u64> = vec![VERSION, maps, 0, CONSISTENT, 0];
        let program = Object { bias: self.bias, name: Vec::new(), dynamic };
        let count = self.objects.len() + 1;
        for (index, object) in [&program].into_iter().chain(self.objects).enumerate() {
            let map = |index: usize| maps + MAP_BYTES * index as u64;
            let next = if index + 1 < count { map(index + 1) } else { 0 };
            let previous = if index > 0 { map(index - 1) } else { 0 };
            let name = strings_at + add(&mut strings, &object.name);
            words.extend([object.bias, name, object.dynamic, next, previous]);
        }
        for (tag, address) in [(DT_HASH, hash_at), (DT_SYMTAB, symbols_at), (DT_STRTAB, strings_at)]
        {
            words.extend([tag, self.relative(address)]);
        }
        words.extend([0, 0]);
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        bytes.extend(symbols);
        bytes.extend(hash);
        bytes.extend(strings);
        bytes
    }

    /// Returns an address as it is in a dynamic section: readers take one below the object as an
    /// offset.
    fn relative(&self, address: u64) -> u64 {
        if address < self.bias { address.wrapping_sub(self.bias) } else { address }
    }

    /// Returns the table of symbols, the first of which is empty.
    fn symbols(&self, strings: &mut Vec<u8>) -> Vec<u8> {
        let mut table = vec![0; 24];
        for symbol in self.symbols {
            table.extend((add(strings, &symbol.name) as u32).to_ne_bytes());
            table.extend([symbol.info, 0]);
            let section = if symbol.is_unique { SHN_ABS } else { SHN_UNDEF };
            table.extend(section.to_ne_bytes());
            table.extend(symbol.address.to_ne_bytes());
            table.extend(symbol.bytes.to_ne_bytes());
        }
        table
    }

    /// Returns the hash table of the System V ABI: two counts, buckets, chains.
    fn hash(&self) -> Vec<u8> {
        let count = self.symbols.len() + 1;
        let mut buckets = vec![0u32; count.div_ceil(2)];
        let mut chains = vec![0u32; count.next_multiple_of(2)];
        for (index, symbol) in self.symbols.iter().enumerate() {
            let bucket = hash_of(&symbol.name) as usize % buckets.len();
            chains[index + 1] = buckets[bucket];
            buckets[bucket] = index as u32 + 1;
        }
        let counts = [buckets.len() as u32, count as u32];
        counts.into_iter().chain(buckets).chain(chains).flat_map(u32::to_ne_bytes).collect()
    }
}

/// `r_debug::r_version`: without further namespaces.
const VERSION: u64 = 1;
/// `RT_CONSISTENT`
const CONSISTENT: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;

/// Adds a string, and returns its offset.
fn add(strings: &mut Vec<u8>, text: &[u8]) -> u64 {
    let at = strings.len() as u64;
    strings.extend(text);
    strings.push(0);
    at
}

/// Returns the hash of a name, as the System V ABI defines it.
fn hash_of(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |hash, &byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x10_0000;

    struct Reader(Vec<u8>);

    impl Reader {
        fn bytes(&self, at: u64, count: usize) -> &[u8] {
            &self.0[(at - START) as usize..][..count]
        }

        fn word(&self, at: u64) -> u64 {
            u64::from_ne_bytes(self.bytes(at, 8).try_into().expect("a word"))
        }

        fn half(&self, at: u64) -> u64 {
            u32::from_ne_bytes(self.bytes(at, 4).try_into().expect("half a word")).into()
        }

        fn text(&self, at: u64) -> &[u8] {
            let rest = &self.0[(at - START) as usize..];
            rest.split(|&byte| byte == 0).next().expect("a string")
        }

        /// Looks up a name by the hash table of a dynamic section, and returns the symbol.
        fn find(&self, dynamic: u64, bias: u64, name: &[u8]) -> Option<(u64, u64)> {
            let entry = |tag: u64| {
                let entries = (0..3).map(|index| dynamic + 16 * index);
                let mut of_tag = entries.filter(|at| self.word(*at) == tag);
                let value = self.word(of_tag.next().expect("an entry") + 8);
                if value < bias || value >> 63 == 1 { value.wrapping_add(bias) } else { value }
            };
            let (hash, symbols, strings) = (entry(DT_HASH), entry(DT_SYMTAB), entry(DT_STRTAB));
            let buckets = self.half(hash);
            let mut index = self.half(hash + 8 + 4 * (u64::from(hash_of(name)) % buckets));
            while index != 0 {
                let symbol = symbols + 24 * index;
                if self.text(strings + self.half(symbol)) == name {
                    let address = self.word(symbol + 8).wrapping_add(bias);
                    return Some((address, self.word(symbol + 16)));
                }
                index = self.half(hash + 8 + 4 * (buckets + index));
            }
            None
        }
    }

    fn symbol(name: &str, address: u64) -> Symbol {
        Symbol { name: name.into(), info: 0x12, address, bytes: 16, is_unique: true }
    }

    #[test]
    fn every_symbol_is_found_above_and_below_the_program() {
        let names: Vec<String> = (0..100).map(|n| format!("function_{n}")).collect();
        for bias in [0, START / 2, START * 4] {
            let symbols: Vec<Symbol> =
                names.iter().zip(0..).map(|(name, n)| symbol(name, 16 * n)).collect();
            let contents = Contents { bias, symbols: &symbols, objects: &[] };
            let reader = Reader(contents.at(START));
            assert_eq!(reader.0.len(), contents.at(0).len());
            let map = reader.word(START + 8);
            assert_eq!(reader.word(map), bias);
            assert_eq!(reader.text(reader.word(map + 8)), b"");
            let dynamic = reader.word(map + 16);
            for symbol in &symbols {
                let found = reader.find(dynamic, bias, &symbol.name);
                assert_eq!(found, Some((bias + symbol.address, 16)), "{bias:x}");
            }
            assert_eq!(reader.find(dynamic, bias, b"other"), None);
        }
    }

    #[test]
    fn the_list_has_all_objects_in_their_order() {
        let object = |name: &str, at| Object { bias: at, name: name.into(), dynamic: at + 0x10 };
        let objects = [object("first", 0x1000), object("second", 0x2000)];
        let reader = Reader(Contents { bias: 0, symbols: &[], objects: &objects }.at(START));
        let mut map = reader.word(START + 8);
        let mut found = Vec::new();
        while map != 0 {
            found.push((reader.text(reader.word(map + 8)), reader.word(map)));
            map = reader.word(map + 24);
        }
        assert_eq!(found, [(&b""[..], 0), (b"first", 0x1000), (b"second", 0x2000)]);
    }
}
