//! Properties of ELF files that determine whether a program can be recorded and a library loaded.

use std::fs::File;
use std::io;
use std::path::Path;

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadRef};

use crate::unseen::{Contents, contents};

/// The longest table of names to search, in bytes: the largest in real programs have about 50 MB.
const NAMES_BYTES_MAX: u64 = 256 << 20;

/// The machine of this command and its recorder.
#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: u16 = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: u16 = elf::EM_AARCH64;

/// An ELF file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elf {
    bits: u32,
    machine: u16,
    has_interpreter: bool,
    kind: Kind,
    /// Zero-terminated names; see [`Elf::names`].
    names: Vec<u8>,
    contents: Contents,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Program,
    Library,
    Other,
}

impl Elf {
    /// Reads the headers of a file; `None` if it is no loadable ELF file.
    ///
    /// Errors: the file cannot be read.
    pub fn read(path: &Path) -> io::Result<Option<Elf>> {
        let data = ReadCache::new(File::open(path)?);
        let class = (&data).read_at::<[u8; 5]>(0).map(|head| head[4]);
        Ok(match class {
            Ok(elf::ELFCLASS64) => Elf::parse::<FileHeader64<Endianness>>(&data, 64),
            Ok(elf::ELFCLASS32) => Elf::parse::<FileHeader32<Endianness>>(&data, 32),
            _ => None,
        })
    }

    /// Returns `None` if a header is damaged.
    fn parse<Header: FileHeader<Endian = Endianness>>(
        data: &ReadCache<File>,
        bits: u32,
    ) -> Option<Elf> {
        let header = Header::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let dynamic = segments.iter().find_map(|s| s.dynamic(endian, data).ok().flatten());
        let value = |tag: i64| {
            let mut entries = dynamic.unwrap_or_default().iter();
            entries.find(|entry| entry.tag(endian) == tag).map(|entry| entry.val(endian))
        };
        let is_marked_program = value(elf::DT_FLAGS_1).is_some_and(|f| f & DF_1_PIE != 0);
        let kind = match header.e_type(endian) {
            elf::ET_EXEC => Kind::Program,
            elf::ET_DYN if is_marked_program => Kind::Program,
            elf::ET_DYN => Kind::Library,
            _ => Kind::Other,
        };
        let names = || -> Option<&[u8]> {
            let (address, size) = (value(elf::DT_STRTAB)?, value(elf::DT_STRSZ)?);
            let offset = segments.iter().find_map(|segment| {
                let (begin, length) = segment.file_range(endian);
                let inside = address.checked_sub(segment.p_vaddr(endian).into())?;
                let is_in = segment.p_type(endian) == elf::PT_LOAD && inside < length;
                is_in.then(|| begin.checked_add(inside))?
            })?;
            data.read_bytes_at(offset, size.min(NAMES_BYTES_MAX)).ok()
        };
        let mut names = names().unwrap_or_default().to_vec();
        if contains(&names, STATIC_SANITIZER) {
            names.extend_from_slice(local_names(header, endian, data).unwrap_or_default());
        }
        Some(Elf {
            bits,
            machine: header.e_machine(endian),
            has_interpreter: segments.iter().any(|s| s.p_type(endian) == elf::PT_INTERP),
            kind,
            names,
            contents: contents(header, endian, data),
        })
    }

    /// Returns whether this machine's loader would load it as a shared object.
    pub fn is_library(&self) -> bool {
        self.kind == Kind::Library && self.is_of_this_machine() && !self.names.is_empty()
    }

    /// Returns whether it is a program, which the loader does not load as a shared object.
    pub fn is_program(&self) -> bool {
        self.kind == Kind::Program
    }

    /// Returns whether it is a program that cannot load libraries.
    pub fn is_static_program(&self) -> bool {
        self.is_program() && !self.has_interpreter
    }

    /// Returns the contents that determine how much can be recorded.
    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// Returns whether the recorder is built for the same machine.
    pub fn is_of_this_machine(&self) -> bool {
        (self.bits, self.machine) == (64, OWN_MACHINE)
    }

    /// Returns the machine that it is for.
    pub fn machine(&self) -> String {
        name_of(self.bits, self.machine)
    }

    /// Returns names of needed libraries and of exported and imported functions, and of all its
    /// functions if a sanitizer is linked into it, because only some linkers export the sanitizer's
    /// name.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.split(|&byte| byte == 0)
    }
}

/// An import of programs with a statically linked sanitizer, whose runtime calls this function if
/// it exists.
pub const STATIC_SANITIZER: &[u8] = b"__sanitizer_symbolize_code";

fn contains(names: &[u8], name: &[u8]) -> bool {
    names.split(|&byte| byte == 0).any(|other| other == name)
}

/// Returns the names of the debug symbol table; none if it was stripped.
fn local_names<'data, Header: FileHeader>(
    header: &Header,
    endian: Header::Endian,
    data: &'data ReadCache<File>,
) -> Option<&'data [u8]> {
    let sections = header.sections(endian, data).ok()?;
    let symbols = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_SYMTAB)?;
    let strings = sections.section(symbols.link(endian)).ok()?;
    let (begin, length) = strings.file_range(endian)?;
    data.read_bytes_at(begin, length.min(NAMES_BYTES_MAX)).ok()
}

/// The flag of position-independent programs, in the dynamic entry of flags.
const DF_1_PIE: u64 = elf::DF_1_PIE as u64;

/// Returns the machine that the recorder is built for.
pub fn own_machine() -> String {
    name_of(64, OWN_MACHINE)
}

fn name_of(bits: u32, machine: u16) -> String {
    let known = [
        (elf::EM_386, "x86"),
        (elf::EM_X86_64, "x86-64"),
        (elf::EM_ARM, "ARM"),
        (elf::EM_AARCH64, "AArch64"),
        (elf::EM_RISCV, "RISC-V"),
        (elf::EM_PPC64, "PowerPC"),
        (elf::EM_S390, "S/390"),
    ];
    let name = known.iter().find(|(known, _)| *known == machine);
    let name = name.map_or(format!("machine {machine}"), |(_, name)| (*name).to_owned());
    format!("{bits}-bit {name}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fixtures::build;
    use heaptide_fixtures::{Random, Scratch};

    fn read(path: &Path) -> Elf {
        Elf::read(path).expect("a file").expect("an ELF file")
    }

    #[test]
    fn programs_and_libraries_are_distinguished() {
        let place = Scratch::new("kinds");
        let dynamic = read(&build(&place, "dynamic", &[]));
        assert!(dynamic.is_program() && !dynamic.is_static_program() && !dynamic.is_library());
        assert!(dynamic.is_of_this_machine());
        assert!(dynamic.names().any(|name| name == b"libc.so.6"));
        let fixed = read(&build(&place, "fixed", &["-no-pie"]));
        assert!(fixed.is_program() && !fixed.is_static_program());
        for (name, flags) in [("static", "-static"), ("static-pie", "-static-pie")] {
            let program = read(&build(&place, name, &[flags]));
            assert!(program.is_static_program() && !program.is_library(), "{name}");
        }
        let library = read(&build(&place, "library.so", &["-shared", "-fPIC"]));
        assert!(library.is_library() && !library.is_program());
        assert!(library.names().any(|name| name == b"main"));
    }

    #[test]
    fn the_loader_is_not_a_static_program() {
        let loader = match OWN_MACHINE {
            elf::EM_X86_64 => "/lib64/ld-linux-x86-64.so.2",
            _ => "/lib/ld-linux-aarch64.so.1",
        };
        let loader = read(Path::new(loader));
        assert!(!loader.is_static_program());
    }

    #[test]
    fn other_architectures_are_named() {
        let place = Scratch::new("machines");
        let mut bytes = fs::read(build(&place, "program", &[])).expect("a program");
        bytes[18] = elf::EM_RISCV as u8;
        fs::write(place.join("other"), &bytes).expect("a file");
        let other = read(&place.join("other"));
        assert!(!other.is_of_this_machine());
        assert_eq!(other.machine(), "64-bit RISC-V");
    }

    #[test]
    fn other_files_and_damaged_elf_files_are_rejected() {
        let place = Scratch::new("damaged");
        let bytes = fs::read(build(&place, "program", &[])).expect("a program");
        for (name, bytes) in [("empty", &b""[..]), ("text", b"#!/bin/sh\n"), ("cut", &bytes[..40])]
        {
            fs::write(place.join(name), bytes).expect("a file");
            assert_eq!(Elf::read(&place.join(name)).expect("a file"), None, "{name}");
        }
        let mut random = Random::new(1);
        for _ in 0..200 {
            let mut bytes = bytes.clone();
            for _ in 0..20 {
                bytes[random.index(4096)] = random.byte();
            }
            fs::write(place.join("mutated"), &bytes).expect("a file");
            if let Some(elf) = Elf::read(&place.join("mutated")).expect("a file") {
                let _ = (elf.machine(), elf.names().count());
            }
        }
        assert!(Elf::read(&place.join("missing")).is_err());
    }
}
