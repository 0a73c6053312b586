//! Reads functions from the symbol table of a file (`.symtab`), which the loader does not map, or
//! from the table of its exported symbols (`.dynsym`) if it has no other.

use crate::family::CALLERS;
use heaptide_recorder::sys::kernel::{self, Fd, Path};

/// The most sections of a file to read.
const SECTIONS_MAX: usize = 128;
const SECTION_BYTES: usize = 64;
const HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// The most symbols of a table to read, which takes a tenth of a second.
const SYMBOLS_MAX: usize = 4 << 20;

/// A part of a file, mapped for reading.
struct Mapped {
    start: *mut u8,
    length: usize,
    skip: usize,
}

impl Mapped {
    /// Maps `bytes` bytes at `offset`; `None` if the file is shorter.
    fn new(fd: Fd, offset: u64, bytes: u64) -> Option<Mapped> {
        let end = offset.checked_add(bytes)?;
        if bytes == 0 || end > kernel::file_size(fd)? {
            return None;
        }
        let first = offset & !(kernel::page_bytes() - 1);
        let length = (end - first) as usize;
        let start = kernel::map_file(fd, first, length)?;
        Some(Mapped { start, length, skip: (offset - first) as usize })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has that many bytes, which the file contains.
        unsafe {
            core::slice::from_raw_parts(self.start.wrapping_add(self.skip), self.length - self.skip)
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: a mapping of this library, whose bytes are borrowed from it.
        unsafe { kernel::unmap(self.start, self.length) };
    }
}

/// Calls `visit` with name, address in the file and size of each function that the file's symbol
/// table defines. For a file without a table it only reads the section headers. Returns the file's
/// inode; `None` if it cannot be read.
pub fn each_function(path: Path<'_>, visit: impl FnMut(&[u8], u64, usize)) -> Option<u64> {
    let fd = kernel::open(path, kernel::O_RDONLY | kernel::O_NONBLOCK).ok()?;
    if let Some((symbols, names)) = tables(fd) {
        visit_all(symbols.bytes(), names.bytes(), visit);
    }
    let identity = kernel::identity(fd);
    kernel::close(fd);
    identity.ok().map(|(_, inode)| inode)
}

fn visit_all(symbols: &[u8], names: &[u8], mut visit: impl FnMut(&[u8], u64, usize)) {
    const STT_FUNC: u8 = 2;
    for symbol in symbols.chunks_exact(SYMBOL_BYTES).take(SYMBOLS_MAX) {
        let is_function = symbol[4] & 15 == STT_FUNC && word(symbol, 6, 2) != 0;
        if !is_function {
            continue;
        }
        let name = names.get(word(symbol, 0, 4) as usize..).unwrap_or(&[]);
        // Longer names are not relevant.
        const NAME_MAX: usize = 96;
        let window = &name[..name.len().min(NAME_MAX)];
        // Of two million names, most are those of C++ and Rust; few are relevant.
        let is_mangled = matches!(window, [b'_', b'Z' | b'R', ..]);
        let is_operator = matches!(window, [b'_', b'Z', b'n' | b'd', b'w' | b'a' | b'l', ..]);
        if is_mangled && !is_operator && !window.starts_with(CALLERS) {
            continue;
        }
        if let Some(end) = window.iter().position(|&byte| byte == 0) {
            visit(&window[..end], word(symbol, 8, 8), word(symbol, 16, 8) as usize);
        }
    }
}

/// Returns the address in the file and the bytes of a section of a file.
pub fn section(path: Path<'_>, name: &[u8]) -> Option<(u64, usize)> {
    let fd = kernel::open(path, kernel::O_RDONLY | kernel::O_NONBLOCK).ok()?;
    let found = Sections::read(fd).and_then(|sections| {
        let names = sections.nth(sections.names).and_then(|section| map(fd, section))?;
        let is_it = |section: &[u8]| {
            let rest = names.bytes().get(word(section, 0, 4) as usize..).unwrap_or(&[]);
            rest.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
        };
        let section = sections.all().find(|section| is_it(section))?;
        Some((word(section, 16, 8), word(section, 32, 8) as usize))
    });
    kernel::close(fd);
    found
}

/// The headers of the sections of a file.
struct Sections {
    headers: [u8; SECTIONS_MAX * SECTION_BYTES],
    bytes: usize,
    /// The index of the section with their names.
    names: usize,
}

impl Sections {
    fn read(fd: Fd) -> Option<Sections> {
        let mut header = [0u8; HEADER_BYTES];
        let read = kernel::read_at(fd, &mut header, 0).ok()?;
        if read < HEADER_BYTES || !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (offset, size) = (word(&header, 40, 8), word(&header, 58, 2) as usize);
        let count = (word(&header, 60, 2) as usize).min(SECTIONS_MAX);
        if size != SECTION_BYTES {
            return None;
        }
        let names = word(&header, 62, 2) as usize;
        let mut sections = Sections { headers: [0; SECTIONS_MAX * SECTION_BYTES], bytes: 0, names };
        let wanted = sections.headers.get_mut(..count * SECTION_BYTES)?;
        sections.bytes = kernel::read_at(fd, wanted, offset).ok()?;
        Some(sections)
    }

    fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.headers.get(..self.bytes).unwrap_or(&[]).chunks_exact(SECTION_BYTES)
    }

    fn nth(&self, index: usize) -> Option<&[u8]> {
        self.all().nth(index)
    }
}

/// Maps the content of a section.
fn map(fd: Fd, section: &[u8]) -> Option<Mapped> {
    Mapped::new(fd, word(section, 24, 8), word(section, 32, 8))
}

const SHT_SYMTAB: u64 = 2;
const SHT_DYNSYM: u64 = 11;

/// Returns the symbols and their names.
fn tables(fd: Fd) -> Option<(Mapped, Mapped)> {
    let sections = Sections::read(fd)?;
    let of_kind = |kind| sections.all().find(|section| word(section, 4, 4) == kind);
    let table = of_kind(SHT_SYMTAB).or_else(|| of_kind(SHT_DYNSYM))?;
    let names = sections.nth(word(table, 40, 4) as usize)?;
    Some((map(fd, table)?, map(fd, names)?))
}

/// Reads the number in `length` bytes of a header, which is long enough.
fn word(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut word = [0; 8];
    if let (Some(to), Some(from)) = (word.get_mut(..length), bytes.get(at..at + length)) {
        to.copy_from_slice(from);
    }
    u64::from_le_bytes(word)
}
