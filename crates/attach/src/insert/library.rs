//! The library, mapped and relocated in a stopped process. It needs no other library.

use std::fs;
use std::io;
use std::mem::offset_of;
use std::path::Path;

use heaptide_format::attachment::{
    ATTACHMENT_SYMBOL, Attachment, LINK_INSERTED, MEMORY_FUNCTIONS, MEMORY_FUNCTIONS_SYMBOL,
};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, Sym};

use super::remote::Remote;
use super::thread_local::{self, Segment};
use crate::error::Error;

const PAGE: u64 = 4096;

/// The library's file.
#[derive(Debug)]
pub struct Library {
    bytes: Vec<u8>,
    /// The segments to map.
    segments: Vec<Loaded>,
    /// The part that is read-only after relocation: address and bytes.
    read_only: (u64, u64),
    /// Its thread-local block.
    pub thread_local: Segment,
    relocations: Vec<Relocation>,
    /// The address of its dynamic section.
    dynamic: u64,
    /// Address and bytes of the addresses of functions that a loader calls.
    initialisers: (u64, u64),
    /// The address of its [`Attachment`].
    attachment: u64,
    /// The address of the addresses of its [`MEMORY_FUNCTIONS`].
    memory_functions: u64,
}

/// A segment.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
    protection: u64,
}

/// A word to write.
#[derive(Clone, Debug)]
struct Relocation {
    address: u64,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    /// An address in the library.
    Own(u64),
    /// An offset in its thread-local block.
    ThreadLocal(u64),
    /// An import.
    Import(String),
}

/// The library in a process.
#[derive(Debug)]
pub struct Placed {
    /// The difference between addresses in memory and in the file.
    pub bias: u64,
    /// The address of its dynamic section.
    pub dynamic: u64,
    /// The functions that a loader calls.
    pub initialisers: Vec<u64>,
}

/// What its relocations refer to.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The address of the `struct r_debug`.
    pub debug: u64,
    /// The distance of its thread-local block from the thread pointer.
    pub below_thread_pointer: u64,
}

impl Library {
    /// Reads the library.
    ///
    /// Errors: the file cannot be read, or is not the recorder's library.
    pub fn read(path: &Path) -> Result<Library, Error> {
        let bytes = fs::read(path);
        let bytes = bytes.map_err(|error| Error::new(format!("{}: {error}", path.display())))?;
        Library::parse(bytes).ok().flatten().ok_or_else(|| {
            Error::new(format!("{}: not the library of this version", path.display()))
        })
    }

    fn parse(bytes: Vec<u8>) -> object::read::Result<Option<Library>> {
        let data = &*bytes;
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let headers = header.program_headers(endian, data)?;
        let sections = header.sections(endian, data)?;
        let mut library = Library {
            bytes: Vec::new(),
            segments: Vec::new(),
            read_only: (0, 0),
            thread_local: thread_local::NONE,
            relocations: Vec::new(),
            dynamic: 0,
            initialisers: (0, 0),
            attachment: 0,
            memory_functions: 0,
        };
        for segment in headers {
            let (address, memory_bytes) = (segment.p_vaddr(endian), segment.p_memsz(endian));
            let (file_bytes, flags) = (segment.p_filesz(endian), segment.p_flags(endian));
            match segment.p_type(endian) {
                elf::PT_LOAD => library.segments.push(Loaded {
                    offset: segment.p_offset(endian),
                    address,
                    file_bytes,
                    memory_bytes,
                    protection: protection(flags),
                }),
                elf::PT_TLS => {
                    let alignment = segment.p_align(endian);
                    library.thread_local = Segment { address, file_bytes, memory_bytes, alignment };
                }
                elf::PT_GNU_RELRO => library.read_only = (address, memory_bytes),
                elf::PT_DYNAMIC => {
                    library.dynamic = address;
                    for entry in segment.dynamic(endian, data)?.unwrap_or_default() {
                        let value = entry.d_val(endian);
                        match entry.d_tag(endian) {
                            elf::DT_INIT_ARRAY => library.initialisers.0 = value,
                            elf::DT_INIT_ARRAYSZ => library.initialisers.1 = value,
                            // The recorder is linked without them.
                            elf::DT_NEEDED | elf::DT_RELR | elf::DT_INIT => return Ok(None),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        for symbol in symbols.iter() {
            let name = symbol.name(endian, symbols.strings())?;
            if name == ATTACHMENT_SYMBOL.as_bytes() {
                library.attachment = symbol.st_value(endian);
            } else if name == MEMORY_FUNCTIONS_SYMBOL.as_bytes() {
                library.memory_functions = symbol.st_value(endian);
            }
        }
        for section in sections.iter() {
            let Some((entries, _)) = object::read::elf::SectionHeader::rela(section, endian, data)?
            else {
                continue;
            };
            for entry in entries {
                let symbol = entry.symbol(endian, false);
                let addend = entry.r_addend(endian) as u64;
                let (defined, name) = match symbol {
                    None => (Some(0), ""),
                    Some(index) => {
                        let symbol = symbols.symbol(index)?;
                        let name = symbol.name(endian, symbols.strings())?;
                        let is_defined = !symbol.is_undefined(endian);
                        let name = std::str::from_utf8(name).unwrap_or_default();
                        (is_defined.then(|| symbol.st_value(endian)), name)
                    }
                };
                let value = match (entry.r_type(endian, false), defined) {
                    (elf::R_X86_64_RELATIVE, _) => Value::Own(addend),
                    (elf::R_X86_64_64, Some(address)) => Value::Own(address.wrapping_add(addend)),
                    (elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT, Some(address)) => {
                        Value::Own(address)
                    }
                    (elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT, None) => {
                        Value::Import(name.to_owned())
                    }
                    (elf::R_X86_64_TPOFF64, Some(offset)) => {
                        Value::ThreadLocal(offset.wrapping_add(addend))
                    }
                    _ => return Ok(None),
                };
                library.relocations.push(Relocation { address: entry.r_offset(endian), value });
            }
        }
        let is_whole = ![library.attachment, library.memory_functions].contains(&0);
        library.bytes = bytes;
        Ok(is_whole.then_some(library))
    }

    /// Maps the library in a process, from the file with a path that is already in its memory
    /// (zero-terminated), and relocates it.
    ///
    /// Errors: the kernel's.
    pub fn place(
        &self,
        remote: &mut Remote<'_>,
        path_at: u64,
        around: impl FnOnce(&Placed) -> io::Result<Surroundings>,
    ) -> io::Result<Placed> {
        let end = self.segments.iter().map(|segment| segment.address + segment.memory_bytes).max();
        let bytes = end.unwrap_or_default().next_multiple_of(PAGE);
        let bias = remote.map(bytes)?;
        let file = remote.open(path_at)?;
        for segment in &self.segments {
            self.map(remote, file, bias, segment)?;
        }
        remote.close(file)?;
        let initialisers = (0..self.initialisers.1 / 8).map(|index| {
            let at = self.initialisers.0 + 8 * index;
            let of_it = self.relocations.iter().find(|relocation| relocation.address == at);
            match of_it.map(|relocation| &relocation.value) {
                Some(Value::Own(address)) => bias + address,
                _ => 0,
            }
        });
        let initialisers = initialisers.filter(|&address| address != 0).collect();
        let placed = Placed { bias, dynamic: bias + self.dynamic, initialisers };
        let around = around(&placed)?;
        self.relocate(remote, bias, around)?;
        let (start, bytes) = self.read_only;
        let (low, high) = (start & !(PAGE - 1), (start + bytes) & !(PAGE - 1));
        remote.protect(bias + low, high.saturating_sub(low), PROT_READ)?;
        Ok(placed)
    }

    fn map(
        &self,
        remote: &mut Remote<'_>,
        file: u64,
        bias: u64,
        segment: &Loaded,
    ) -> io::Result<()> {
        let skipped = segment.address & (PAGE - 1);
        let start = bias + segment.address - skipped;
        let in_file = skipped + segment.file_bytes;
        let offset = segment.offset - skipped;
        if segment.file_bytes > 0 {
            remote.map_file(start, in_file, segment.protection, file, offset)?;
        }
        let mapped = if segment.file_bytes > 0 { in_file.next_multiple_of(PAGE) } else { 0 };
        let whole = (skipped + segment.memory_bytes).next_multiple_of(PAGE);
        if segment.memory_bytes > segment.file_bytes && mapped > in_file {
            let zeros = vec![0; (mapped - in_file) as usize];
            remote.memory().write(start + in_file, &zeros)?;
        }
        if whole > mapped {
            remote.protect(start + mapped, whole - mapped, segment.protection)?;
        }
        Ok(())
    }

    fn relocate(&self, remote: &Remote<'_>, bias: u64, around: Surroundings) -> io::Result<()> {
        let memory = remote.memory();
        let write = |address: u64, value: u64| memory.write(bias + address, &value.to_ne_bytes());
        let mut imports = Vec::new();
        for Relocation { address, value } in &self.relocations {
            match value {
                Value::Own(own) => write(*address, bias.wrapping_add(*own))?,
                Value::ThreadLocal(offset) => {
                    write(*address, offset.wrapping_sub(around.below_thread_pointer))?;
                }
                Value::Import(name) => imports.push((*address, name)),
            }
        }
        let functions_at = bias + self.memory_functions;
        for (address, name) in imports {
            let own = MEMORY_FUNCTIONS.iter().position(|known| known == name);
            let value = match own {
                Some(index) => memory.word(functions_at + 8 * index as u64)?,
                None if name == "_r_debug" => around.debug,
                None => 0, // it does without
            };
            write(address, value)?;
        }
        let link = bias + self.attachment + offset_of!(Attachment, link) as u64;
        memory.write(link, &LINK_INSERTED.to_ne_bytes())
    }
}

const PROT_READ: u64 = 1;

/// Converts the flags of a segment to protection bits of mmap.
fn protection(flags: u32) -> u64 {
    let bits = [(elf::PF_R, 1), (elf::PF_W, 2), (elf::PF_X, 4)];
    bits.into_iter().filter(|(flag, _)| flags & flag != 0).map(|(_, bit)| bit).sum()
}
