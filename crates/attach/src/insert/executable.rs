//! A static program, as the kernel has mapped it and as its file describes it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use nix::unistd::Pid;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader, SectionTable};
use object::{Endianness, ReadCache};

use super::symbols::{DAMAGED, Symbols, damaged, stops, unreadable};
use super::tables::Symbol;
use super::thread_local::Segment;
use crate::error::Error;
use crate::memory::Memory;

/// Bytes of a program header.
pub const HEADER_BYTES: usize = 56;

/// A static program that has executed no instruction.
#[derive(Debug)]
pub struct Executable {
    /// The difference between addresses in memory and in the file.
    pub bias: u64,
    /// Its functions and data, apart from those of C++ and Rust.
    pub symbols: Arc<Vec<Symbol>>,
    /// Its program headers, as they are in memory.
    pub headers: Headers,
    /// The initial values of its thread-local segment, as its relocations will leave them.
    pub values: Vec<u8>,
    /// The address of the kernel's library in the process.
    pub vdso: Option<u64>,
}

/// Program headers in memory.
#[derive(Clone, Debug)]
pub struct Headers {
    /// Their address.
    pub address: u64,
    /// All of them.
    pub bytes: Vec<u8>,
    /// Where the program finds the address, and the number.
    pub named_at: (u64, u64),
}

impl Executable {
    /// Reads the program of a process that has executed no instruction, and whose stack pointer is
    /// known.
    ///
    /// Errors: it is not static, or [`Symbols::of`] fails.
    pub fn of(pid: Pid, memory: &Memory, sp: u64, symbols: &Symbols) -> Result<Executable, Error> {
        let unreadable = |error: io::Error| unreadable(&error);
        let vector = Vector::at(memory, sp).map_err(unreadable)?;
        let file = File::open(format!("/proc/{pid}/exe")).map_err(unreadable)?;
        let cache = ReadCache::new(&file);
        let header = FileHeader64::<Endianness>::parse(&cache).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let bias = vector.value(AT_ENTRY)?.wrapping_sub(header.e_entry(endian));
        let sections = header.sections(endian, &cache).map_err(damaged)?;
        let symbols = symbols.of(&file)?;
        let count = vector.value(AT_PHNUM)? as usize;
        let address = vector.value(AT_PHDR)?;
        let mut bytes = vec![0; count.min(HEADERS_MAX) * HEADER_BYTES];
        memory.read(address, &mut bytes).map_err(unreadable)?;
        let named_at = (vector.place(AT_PHDR)?, vector.place(AT_PHNUM)?);
        let headers = Headers { address, bytes, named_at };
        if headers.find(elf::PT_INTERP).is_some() {
            return Err(Error::new("it is a dynamic program now"));
        }
        let mut values = Vec::new();
        if let Some(segment) = headers.thread_local() {
            values.resize(segment.file_bytes as usize, 0);
            let at = segment.address.wrapping_add(bias);
            memory.read(at, &mut values).map_err(unreadable)?;
            let places = segment.address..segment.address + segment.file_bytes;
            for (place, value) in relocations(endian, &cache, &sections, &places)? {
                let at = (place - segment.address) as usize;
                let word = values.get_mut(at..at + 8).ok_or_else(|| Error::new(DAMAGED))?;
                let addend = value.unwrap_or_else(|| word_of(word));
                word.copy_from_slice(&addend.wrapping_add(bias).to_ne_bytes());
            }
        }
        let vdso = vector.value(AT_SYSINFO_EHDR).ok();
        Ok(Executable { bias, symbols, headers, values, vdso })
    }

    /// Returns the addresses of the functions at which the program can be stopped once it has a
    /// first thread.
    pub fn stops(&self) -> Vec<u64> {
        let mut stops: Vec<u64> =
            stops(&self.symbols).map(|address| address.wrapping_add(self.bias)).collect();
        stops.sort_unstable();
        stops.dedup();
        stops
    }
}

type Sections<'data> = SectionTable<'data, FileHeader64<Endianness>, &'data ReadCache<&'data File>>;

/// Returns the relocations of a program at some addresses in its file: where, and the address in
/// the file to store there; `None` if that is stored there already.
///
/// Errors: a relocation has another value than the address of something in the program.
fn relocations(
    endian: Endianness,
    data: &ReadCache<&File>,
    sections: &Sections<'_>,
    places: &Range<u64>,
) -> Result<Vec<(u64, Option<u64>)>, Error> {
    let mut found = Vec::new();
    for section in sections.iter() {
        if let Some((entries, _)) = section.rela(endian, data).map_err(damaged)? {
            for entry in entries.iter().filter(|entry| places.contains(&entry.r_offset(endian))) {
                if entry.r_type(endian, false) != elf::R_X86_64_RELATIVE {
                    return Err(Error::new("a thread-local variable has an unknown relocation"));
                }
                found.push((entry.r_offset(endian), Some(entry.r_addend(endian) as u64)));
            }
        }
        if let Some(words) = section.relr(endian, data).map_err(damaged)? {
            found.extend(words.filter(|place| places.contains(place)).map(|place| (place, None)));
        }
    }
    Ok(found)
}

/// The most program headers that are read.
const HEADERS_MAX: usize = 256;

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_ENTRY: u64 = 9;
const AT_SYSINFO_EHDR: u64 = 33;

/// The auxiliary vector at the start of a program.
struct Vector {
    /// Where it is.
    start: u64,
    /// Types and values.
    entries: Vec<(u64, u64)>,
}

impl Vector {
    /// Reads the vector above the stack pointer: it follows the number of arguments, the arguments
    /// and the environment, which both end with a null pointer.
    fn at(memory: &Memory, sp: u64) -> io::Result<Vector> {
        let count = memory.word(sp)?;
        let mut at = sp + 8 * (count + 2);
        while memory.word(at)? != 0 {
            at += 8;
        }
        let start = at + 8;
        let mut entries = Vec::new();
        loop {
            let at = start + 16 * entries.len() as u64;
            match memory.word(at)? {
                0 => return Ok(Vector { start, entries }),
                kind => entries.push((kind, memory.word(at + 8)?)),
            }
        }
    }

    fn index(&self, kind: u64) -> Result<usize, Error> {
        let index = self.entries.iter().position(|entry| entry.0 == kind);
        index.ok_or_else(|| Error::new(format!("the kernel gave it no entry {kind} in AT_*")))
    }

    fn value(&self, kind: u64) -> Result<u64, Error> {
        Ok(self.entries[self.index(kind)?].1)
    }

    /// Returns the address of a value.
    fn place(&self, kind: u64) -> Result<u64, Error> {
        Ok(self.start + 16 * self.index(kind)? as u64 + 8)
    }
}

/// Returns the word in 8 bytes; 0 if there are fewer.
fn word_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

impl Headers {
    fn word(&self, at: usize) -> u64 {
        self.bytes.get(at..at + 8).map_or(0, word_of)
    }

    /// Returns the offset of the first header of a kind.
    fn find(&self, kind: u32) -> Option<usize> {
        let starts = (0..self.bytes.len()).step_by(HEADER_BYTES);
        starts.into_iter().find(|&at| self.word(at) as u32 == kind)
    }

    /// Returns the thread-local segment.
    pub fn thread_local(&self) -> Option<Segment> {
        let at = self.find(elf::PT_TLS)?;
        Some(Segment {
            address: self.word(at + 16),
            file_bytes: self.word(at + 32),
            memory_bytes: self.word(at + 40),
            alignment: self.word(at + 48).max(1),
        })
    }

    /// Returns the headers with another thread-local segment. If there was none before, there is
    /// one header more, and they are for another address, where `bias` is that of the program.
    pub fn with_thread_local(&self, segment: &Segment, address: u64, bias: u64) -> Vec<u8> {
        const READABLE: u64 = 4;
        let mut bytes = self.bytes.clone();
        let at = self.find(elf::PT_TLS).unwrap_or_else(|| {
            bytes.extend([0; HEADER_BYTES]);
            if let Some(own) = self.find(elf::PT_PHDR) {
                let own_address = address.wrapping_sub(bias).to_ne_bytes();
                bytes[own + 16..own + 24].copy_from_slice(&own_address);
            }
            self.bytes.len()
        });
        let kind = u64::from(elf::PT_TLS) | READABLE << 32;
        let Segment { address, file_bytes, memory_bytes, alignment } = *segment;
        let words = [kind, 0, address, address, file_bytes, memory_bytes, alignment];
        let header: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        bytes[at..at + HEADER_BYTES].copy_from_slice(&header);
        bytes
    }
}
