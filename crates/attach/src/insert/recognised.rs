//! The functions of a program without symbols that come from a static C library, recognised by
//! their code.
//!
//! A linker copies a section of the library's members into the program as a whole, and changes only
//! the fields of its relocations. A section whose other bytes are all at one place in the program
//! is there. Short ones are known by the functions that they call. (IDA's signatures have the first
//! 32 bytes of a function and a checksum, because they contain no library.)

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use object::elf;
use object::read::archive::ArchiveFile;
use object::read::elf::ElfFile64;
use object::read::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget};
use object::{SymbolFlags, SymbolIndex};

use super::tables::Symbol;

/// The fewest bytes by which a section is recognised if it is at one place only.
const FIXED_MIN: usize = 24;
/// The bytes of a section that are searched for.
const ANCHOR: usize = 8;
/// A section at more places is not recognised.
const PLACES_MAX: usize = 8;
/// The most rounds in which known functions show others.
const ROUNDS_MAX: usize = 8;

/// The code of a static library.
#[derive(Debug)]
pub struct StaticLibrary {
    sections: Vec<Section>,
}

/// A section with code of a member of the library.
#[derive(Debug)]
struct Section {
    /// The number of the member.
    member: usize,
    bytes: Vec<u8>,
    /// Whether a linker leaves each byte as it is.
    is_fixed: Vec<bool>,
    alignment: u64,
    functions: Vec<Function>,
    references: Vec<Reference>,
    /// Whether all changed fields are those of [`Section::references`].
    is_determined: bool,
}

#[derive(Debug)]
struct Function {
    name: Vec<u8>,
    info: u8,
    offset: u64,
    bytes: u64,
}

/// A 4-byte field with the distance of a global symbol from it.
#[derive(Debug)]
struct Reference {
    offset: usize,
    addend: i64,
    name: Vec<u8>,
}

/// A part of a program that is executed.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Its address in the file.
    pub address: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl StaticLibrary {
    /// Reads the sections with code of all members of an archive. Members that cannot be read are
    /// skipped; `None` if it is no archive.
    pub fn parse(archive: &[u8]) -> Option<StaticLibrary> {
        let members = ArchiveFile::parse(archive).ok()?.members().map_while(Result::ok);
        let mut sections = Vec::new();
        for (number, member) in members.enumerate() {
            let file = member.data(archive).ok().and_then(|data| ElfFile64::parse(data).ok());
            sections.extend(file.iter().flat_map(|file| sections_of(file, number)));
        }
        Some(StaticLibrary { sections })
    }

    /// Returns the functions of a program that are recognised, with their addresses in the file.
    /// Short ones are searched only in members with a function that `is_wanted`.
    pub fn recognise(&self, code: &[Code<'_>], is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Symbol> {
        let has_wanted =
            |section: &&Section| section.functions.iter().any(|function| is_wanted(&function.name));
        let wanted = self.sections.iter().filter(has_wanted).map(|section| section.member);
        let mut search = Search {
            sections: &self.sections,
            code,
            wanted: wanted.collect(),
            found: HashMap::new(),
            known: HashMap::new(),
        };
        let mut candidates = self.candidates(code);
        for _ in 0..ROUNDS_MAX {
            let before = search.found.len();
            search.decide(&mut candidates);
            search.find_short();
            if search.found.len() == before {
                break;
            }
        }
        search.symbols()
    }

    /// Returns the places of the sections that are long enough: index of the section, address.
    fn candidates(&self, code: &[Code<'_>]) -> Vec<(usize, u64)> {
        let mut anchors: HashMap<[u8; ANCHOR], Vec<(usize, usize)>> = HashMap::new();
        let mut is_start = vec![false; 1 << 16];
        for (index, section) in self.sections.iter().enumerate() {
            if let Some((offset, anchor)) = section.anchor() {
                is_start[usize::from(u16::from_le_bytes([anchor[0], anchor[1]]))] = true;
                anchors.entry(anchor).or_default().push((index, offset));
            }
        }
        let mut places: HashMap<usize, Vec<u64>> = HashMap::new();
        for part in code {
            for (at, window) in part.bytes.windows(ANCHOR).enumerate() {
                if !is_start[usize::from(u16::from_le_bytes([window[0], window[1]]))] {
                    continue;
                }
                for &(index, offset) in anchors.get(window).into_iter().flatten() {
                    let section = &self.sections[index];
                    let Some(start) = at.checked_sub(offset) else { continue };
                    let address = part.address.wrapping_add(start as u64);
                    if address.is_multiple_of(section.alignment)
                        && section.is_at(&part.bytes[start..])
                    {
                        places.entry(index).or_default().push(address);
                    }
                }
            }
        }
        places.retain(|_, addresses| addresses.len() <= PLACES_MAX);
        let all = places.into_iter();
        all.flat_map(|(index, addresses)| addresses.into_iter().map(move |at| (index, at)))
            .collect()
    }
}

/// Returns the sections with functions of a member.
fn sections_of(file: &ElfFile64<'_>, member: usize) -> Vec<Section> {
    let mut functions: HashMap<usize, Vec<Function>> = HashMap::new();
    for symbol in file.symbols() {
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { continue };
        if let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name_bytes())
            && matches!(st_info & 15, elf::STT_FUNC | elf::STT_GNU_IFUNC)
        {
            functions.entry(section.0).or_default().push(Function {
                name: name.to_vec(),
                info: st_info,
                offset: symbol.address(),
                bytes: symbol.size(),
            });
        }
    }
    let sections = file.sections().filter_map(|section| {
        let functions = functions.remove(&section.index().0)?;
        let bytes = section.data().ok()?.to_vec();
        let mut made = Section {
            member,
            is_fixed: vec![true; bytes.len()],
            alignment: section.align().max(1),
            functions,
            references: Vec::new(),
            is_determined: true,
            bytes,
        };
        for (offset, relocation) in section.relocations() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let at = usize::try_from(offset).ok()?;
            made.is_fixed.get_mut(changed(at, r_type, made.bytes.len()))?.fill(false);
            let name = match relocation.target() {
                RelocationTarget::Symbol(index) => global_name(file, index),
                _ => None,
            };
            match name.filter(|_| matches!(r_type, elf::R_X86_64_PC32 | elf::R_X86_64_PLT32)) {
                Some(name) => {
                    made.references.push(Reference {
                        offset: at,
                        addend: relocation.addend(),
                        name,
                    });
                }
                None => made.is_determined = false,
            }
        }
        Some(made)
    });
    sections.collect()
}

fn global_name(file: &ElfFile64<'_>, index: SymbolIndex) -> Option<Vec<u8>> {
    let symbol = file.symbol_by_index(index).ok().filter(ObjectSymbol::is_global)?;
    Some(symbol.name_bytes().ok()?.to_vec())
}

/// Returns the bytes that a linker can change for a relocation: the field, and the instruction
/// around it where the ABI allows a shorter way (x86-64 psABI, section B.2 and chapter 11).
fn changed(at: usize, kind: u32, bytes: usize) -> Range<usize> {
    let (before, after) = match kind {
        elf::R_X86_64_64 | elf::R_X86_64_DTPOFF64 | elf::R_X86_64_TPOFF64 => (0, 8),
        elf::R_X86_64_GOTPCREL
        | elf::R_X86_64_GOTPCRELX
        | elf::R_X86_64_REX_GOTPCRELX
        | elf::R_X86_64_GOTTPOFF
        | elf::R_X86_64_GOTPC32_TLSDESC => (3, 4),
        elf::R_X86_64_TLSGD => (4, 12),
        elf::R_X86_64_TLSLD => (3, 9),
        elf::R_X86_64_TLSDESC_CALL => (0, 2),
        _ => (0, 4),
    };
    let start = at.saturating_sub(before).min(bytes);
    start..at.saturating_add(after).clamp(start, bytes)
}

impl Section {
    fn fixed_bytes(&self) -> usize {
        self.is_fixed.iter().filter(|&&is_fixed| is_fixed).count()
    }

    /// Returns the offset and the bytes to search for: the middle of the longest unchanged part,
    /// since many functions begin and end alike. `None` if the section is too short.
    fn anchor(&self) -> Option<(usize, [u8; ANCHOR])> {
        let runs = self.is_fixed.chunk_by(|a, b| a == b);
        let starts = runs.scan(0, |at, run| {
            *at += run.len();
            Some((*at - run.len(), run))
        });
        let (start, run) = starts.filter(|(_, run)| run[0]).max_by_key(|(_, run)| run.len())?;
        let offset = start + run.len().checked_sub(ANCHOR)? / 2;
        let anchor = self.bytes[offset..offset + ANCHOR].try_into().ok()?;
        (self.fixed_bytes() >= FIXED_MIN).then_some((offset, anchor))
    }

    /// Returns whether the code begins with the bytes of the section that a linker does not change.
    fn is_at(&self, code: &[u8]) -> bool {
        code.len() >= self.bytes.len()
            && self
                .bytes
                .iter()
                .zip(&self.is_fixed)
                .zip(code)
                .all(|((byte, is_fixed), found)| byte == found || !is_fixed)
    }

    /// Returns how the symbols to which the section at an address refers compare to known ones: how
    /// many are the same and how many are others.
    fn compare(&self, address: u64, code: &[u8], known: &Known<'_>) -> (usize, usize) {
        let mut counts = (0, 0);
        for reference in &self.references {
            let Some(&(_, target)) = known.get(&*reference.name) else { continue };
            let field = code.get(reference.offset..).and_then(|rest| rest.first_chunk());
            let Some(field) = field else { continue };
            let distance = i64::from(i32::from_le_bytes(*field)).wrapping_sub(reference.addend);
            let place = address.wrapping_add(reference.offset as u64);
            let count = if place.wrapping_add_signed(distance) == target {
                &mut counts.0
            } else {
                &mut counts.1
            };
            *count += 1;
        }
        counts
    }
}

/// The addresses of global functions, and whether each is only weak.
type Known<'a> = HashMap<&'a [u8], (bool, u64)>;

/// The state of a search.
struct Search<'a> {
    sections: &'a [Section],
    code: &'a [Code<'a>],
    /// The members whose short sections are searched.
    wanted: HashSet<usize>,
    /// The address of each section that is in the program, by its index.
    found: HashMap<usize, u64>,
    known: Known<'a>,
}

impl<'a> Search<'a> {
    /// Returns the code from an address to the end of its part.
    fn code_at(&self, address: u64) -> &'a [u8] {
        let parts = self.code.iter().filter_map(|part| {
            part.bytes.get(usize::try_from(address.checked_sub(part.address)?).ok()?..)
        });
        parts.into_iter().next().unwrap_or(&[])
    }

    fn add(&mut self, index: usize, address: u64) {
        let section = &self.sections[index];
        self.found.insert(index, address);
        for function in &section.functions {
            let (kind, binding) = (function.info & 15, function.info >> 4);
            // Calls of a function that a resolver chooses reach it by a table.
            if kind != elf::STT_FUNC || binding == elf::STB_LOCAL {
                continue;
            }
            let new = (binding == elf::STB_WEAK, address.wrapping_add(function.offset));
            let known = self.known.entry(&function.name).or_insert(new);
            // A linker ignores weak ones if there is another.
            *known = (*known).min(new);
        }
    }

    /// Removes those candidates that refer to other places than known functions, and adds each that
    /// is left alone with its place. Of several at one place, the one with most references to known
    /// functions is there.
    fn decide(&mut self, candidates: &mut Vec<(usize, u64)>) {
        let mut at_place: HashMap<u64, Vec<(usize, usize)>> = HashMap::new();
        let mut places: HashMap<usize, usize> = HashMap::new();
        candidates.retain(|&(index, address)| {
            let code = self.code_at(address);
            let (same, others) = self.sections[index].compare(address, code, &self.known);
            if others == 0 {
                at_place.entry(address).or_default().push((same, index));
                *places.entry(index).or_default() += 1;
            }
            others == 0
        });
        for (address, mut there) in at_place {
            there.sort_unstable();
            let (Some(best), second) = (there.pop(), there.pop()) else { continue };
            let is_clear = second.is_none_or(|second| second.0 < best.0);
            if is_clear && places.get(&best.1) == Some(&1) {
                self.add(best.1, address);
            }
        }
        candidates.retain(|(index, _)| !self.found.contains_key(index));
    }

    /// Finds sections that are short, and refer to known functions only. Of several with the same
    /// code, each is at one place, in their order, or all are at one place.
    fn find_short(&mut self) {
        let mut by_start: HashMap<u8, Vec<usize>> = HashMap::new();
        for (index, section) in self.sections.iter().enumerate() {
            let is_sought = section.is_determined
                && section.fixed_bytes() < FIXED_MIN
                && section.is_fixed.first() == Some(&true)
                && !self.found.contains_key(&index)
                && !section.references.is_empty()
                && section.references.iter().all(|it| self.known.contains_key(&*it.name))
                && self.wanted.contains(&section.member);
            if is_sought {
                by_start.entry(section.bytes[0]).or_default().push(index);
            }
        }
        let mut places: HashMap<usize, Vec<u64>> = HashMap::new();
        for part in self.code {
            for (at, byte) in part.bytes.iter().enumerate() {
                let address = part.address.wrapping_add(at as u64);
                for &index in by_start.get(byte).into_iter().flatten() {
                    let section = &self.sections[index];
                    let code = &part.bytes[at..];
                    if address.is_multiple_of(section.alignment)
                        && section.is_at(code)
                        && section.compare(address, code, &self.known).1 == 0
                    {
                        places.entry(index).or_default().push(address);
                    }
                }
            }
        }
        let taken: Vec<Range<u64>> = self
            .found
            .iter()
            .map(|(&index, &address)| {
                address..address.wrapping_add(self.sections[index].bytes.len() as u64)
            })
            .collect();
        let mut of_places: HashMap<Vec<u64>, Vec<usize>> = HashMap::new();
        for (index, mut addresses) in places {
            addresses.retain(|address| !taken.iter().any(|range| range.contains(address)));
            of_places.entry(addresses).or_default().push(index);
        }
        for (addresses, mut indexes) in of_places {
            indexes.sort_unstable();
            if addresses.len() == 1 {
                indexes.iter().for_each(|&index| self.add(index, addresses[0]));
            } else if addresses.len() == indexes.len() {
                indexes.iter().zip(addresses).for_each(|(&index, at)| self.add(index, at));
            }
        }
    }

    fn symbols(&self) -> Vec<Symbol> {
        let found = self.found.iter().flat_map(|(&index, &address)| {
            self.sections[index].functions.iter().map(move |function| Symbol {
                name: function.name.clone(),
                info: function.info,
                address: address.wrapping_add(function.offset),
                bytes: function.bytes,
                is_unique: true,
            })
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOBAL: u8 = elf::STB_GLOBAL << 4 | elf::STT_FUNC;
    const START: u64 = 0x40_1000;

    /// Returns a section with one function, in a member; `calls` are offsets of fields, and names.
    fn section(member: usize, name: &str, bytes: &[u8], calls: &[(usize, &str)]) -> Section {
        let mut is_fixed = vec![true; bytes.len()];
        calls.iter().for_each(|&(at, _)| is_fixed[at..at + 4].fill(false));
        let reference =
            |&(offset, name): &(usize, &str)| Reference { offset, addend: -4, name: name.into() };
        let function =
            Function { name: name.into(), info: GLOBAL, offset: 0, bytes: bytes.len() as u64 };
        Section {
            member,
            bytes: bytes.to_vec(),
            is_fixed,
            alignment: 16,
            functions: vec![function],
            references: calls.iter().map(reference).collect(),
            is_determined: true,
        }
    }

    /// The bytes of a part of a program, and its calls: the offset of the field, and the index of
    /// the part that is called.
    type Part<'a> = (&'a [u8], &'a [(usize, usize)]);

    /// Returns code in which these parts are at multiples of 64 bytes.
    fn program(parts: &[Part<'_>]) -> Vec<u8> {
        let mut code = vec![0xcc; 64 * parts.len()];
        for (index, (bytes, calls)) in parts.iter().enumerate() {
            let start = 64 * index;
            code[start..start + bytes.len()].copy_from_slice(bytes);
            for &(at, target) in *calls {
                let distance = 64 * target as i32 - (start + at + 4) as i32;
                code[start + at..start + at + 4].copy_from_slice(&distance.to_le_bytes());
            }
        }
        code
    }

    /// Returns the recognised functions: name, and index of the part.
    fn recognised(sections: Vec<Section>, code: &[u8], wanted: &str) -> Vec<(String, u64)> {
        let library = StaticLibrary { sections };
        let code = [Code { address: START, bytes: code }];
        let found = library.recognise(&code, |name| name == wanted.as_bytes());
        let name = |symbol: &Symbol| String::from_utf8_lossy(&symbol.name).into_owned();
        let mut found: Vec<(String, u64)> =
            found.iter().map(|symbol| (name(symbol), (symbol.address - START) / 64)).collect();
        found.sort();
        found
    }

    fn long(seed: u8) -> Vec<u8> {
        (0..40u8).map(|index| index.wrapping_mul(seed)).collect()
    }

    const JUMP: [u8; 5] = [0xe9, 0, 0, 0, 0];

    #[test]
    fn a_section_is_recognised_at_its_only_place() {
        let library = || {
            vec![
                section(0, "here", &long(3), &[(10, "other")]),
                section(1, "twice", &long(5), &[]),
                section(2, "absent", &long(7), &[]),
            ]
        };
        let (here, twice) = (long(3), long(5));
        let code = program(&[(&twice, &[]), (&here, &[(10, 0)]), (&twice, &[])]);
        assert_eq!(recognised(library(), &code, ""), [("here".to_owned(), 1)]);
        let mut damaged = code;
        damaged[64 + 39] ^= 1;
        assert_eq!(recognised(library(), &damaged, ""), []);
    }

    #[test]
    fn of_equal_sections_the_one_whose_calls_reach_known_functions_is_there() {
        let library = vec![
            section(0, "first", &long(3), &[]),
            section(1, "second", &long(5), &[]),
            section(2, "calls_first", &long(7), &[(20, "first")]),
            section(3, "calls_second", &long(7), &[(20, "second")]),
        ];
        let (first, second, calls) = (long(3), long(5), long(7));
        let code = program(&[(&first, &[]), (&calls, &[(20, 2)]), (&second, &[])]);
        let expected = [("calls_second", 1), ("first", 0), ("second", 2)];
        assert_eq!(
            recognised(library, &code, ""),
            expected.map(|(name, at)| (name.to_owned(), at))
        );
    }

    #[test]
    fn short_sections_are_found_by_what_they_call() {
        let library = |wanted_member| {
            vec![
                section(0, "inner", &long(3), &[]),
                section(1, "other", &long(5), &[]),
                section(2, "public", &JUMP, &[(1, "inner")]),
                section(wanted_member, "twin", &JUMP, &[(1, "inner")]),
            ]
        };
        let (inner, other) = (long(3), long(5));
        let parts: [Part<'_>; 5] = [
            (&inner, &[]),
            (&JUMP, &[(1, 2)]),
            (&other, &[]),
            (&JUMP, &[(1, 0)]),
            (&JUMP, &[(1, 0)]),
        ];
        let known = [("inner".to_owned(), 0), ("other".to_owned(), 2)];
        let with = |more: &[(&str, u64)]| {
            let more = more.iter().map(|&(name, at)| (name.to_owned(), at));
            let mut all: Vec<(String, u64)> = known.iter().cloned().chain(more).collect();
            all.sort();
            all
        };
        let both = program(&parts);
        let one = program(&parts[..4]);
        let in_order = with(&[("public", 3), ("twin", 4)]);
        assert_eq!(recognised(library(2), &both, "public"), in_order);
        assert_eq!(recognised(library(2), &one, "public"), with(&[("public", 3), ("twin", 3)]));
        assert_eq!(recognised(library(3), &one, "public"), with(&[("public", 3)]));
        assert_eq!(recognised(library(3), &both, "public"), with(&[]), "one of two places");
        assert_eq!(recognised(library(2), &both, "inner"), with(&[]), "no member is wanted");
    }

    #[test]
    fn damaged_archives_have_no_sections() {
        assert!(StaticLibrary::parse(b"").is_none());
        assert!(StaticLibrary::parse(b"!<arch>\n").is_some_and(|it| it.sections.is_empty()));
        let mut archive =
            b"!<arch>\nmember.o/       0           0     0     644     8         `\n".to_vec();
        archive.extend(b"\x7fELF\x02\x01\x01\0");
        assert!(StaticLibrary::parse(&archive).is_some_and(|it| it.sections.is_empty()));
        archive.truncate(40);
        assert!(StaticLibrary::parse(&archive).is_none_or(|it| it.sections.is_empty()));
    }
}
