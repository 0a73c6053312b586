//! Unwind tables that are read from a module's file: `.debug_frame`, which no loader maps, and
//! `.eh_frame` of files without `.eh_frame_hdr`. They are read when code that the mapped tables do
//! not cover is first seen in a stack, and kept.

use crate::store::budgets::FILE_TABLES_MAX;
use crate::sys::kernel::{self, Fd, Path};
use crate::sys::memory::{self, InChild};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_unwind::index::{self, Entry, FileSections};
use heaptide_unwind::rule::Step;

/// The tables of a file, in memory of the recorder.
#[derive(Clone, Copy, Default)]
pub struct FileTables {
    sections: FileSections<'static>,
    entries: &'static [Entry],
}

/// The bytes of the tables of all modules.
#[derive(Default)]
pub struct Room(AtomicU64);

/// The most sections of a file that are examined. Files of one section per function keep these in
/// object files only.
const SECTIONS_MAX: u16 = 1024;

const SHT_PROGBITS: u32 = 1;
const SHT_X86_64_UNWIND: u32 = 0x7000_0001;
const SHF_COMPRESSED: u64 = 0x800;

/// A section header (`Elf64_Shdr`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct SectionHeader {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

impl FileTables {
    /// Reads the tables of the file at `path`, if it is the file with this inode and has some.
    pub fn read(path: Path<'_>, inode: u64, room: &Room) -> Option<FileTables> {
        let fd = kernel::open(path, kernel::O_RDONLY | kernel::O_NONBLOCK).ok()?;
        let same = kernel::identity(fd).is_ok_and(|(_, found)| found == inode);
        let tables = if same && kernel::is_regular(fd) { read_open(fd, room) } else { None };
        kernel::close(fd);
        tables
    }

    /// Returns the step at an address of the file.
    pub fn step_at(&self, pc: u64) -> Option<Step> {
        index::step_at(&self.sections, self.entries, pc)
    }
}

fn read_open(fd: Fd, room: &Room) -> Option<FileTables> {
    let (eh, debug) = find_sections(fd)?;
    let mut sections = FileSections::default();
    if let Some(header) = eh {
        sections.eh_frame = room.read(fd, &header).unwrap_or_default();
        sections.eh_frame_address = header.address;
    }
    if let Some(header) = debug {
        sections.debug_frame = room.read(fd, &header).unwrap_or_default();
    }
    let count = index::count(&sections);
    if count == 0 {
        return None;
    }
    let memory = room.take(count * size_of::<Entry>())?;
    // SAFETY: fresh zeroed memory of that size, which nothing else refers to; zeros are entries.
    let entries = unsafe { core::slice::from_raw_parts_mut(memory as *mut Entry, count) };
    let used = index::fill(&sections, entries);
    Some(FileTables { sections, entries: entries.get(..used)? })
}

/// Returns the headers of `.eh_frame` and `.debug_frame`.
fn find_sections(fd: Fd) -> Option<(Option<SectionHeader>, Option<SectionHeader>)> {
    let mut start = [0; 64];
    read_exact(fd, &mut start, 0)?;
    let half = |at: usize| u16::from_ne_bytes([start[at], start[at + 1]]);
    let headers = u64::from_ne_bytes(start[40..48].try_into().ok()?);
    let (size, count, names) = (half(58), half(60), half(62));
    if usize::from(size) != size_of::<SectionHeader>() || count > SECTIONS_MAX || names >= count {
        return None;
    }
    let header = |index: u16| section_header(fd, headers, index);
    let names = header(names)?;
    let (mut eh, mut debug) = (None, None);
    for index in 1..count {
        let found = header(index)?;
        let is_table = matches!(found.kind, SHT_PROGBITS | SHT_X86_64_UNWIND);
        if !is_table || found.flags & SHF_COMPRESSED != 0 {
            continue;
        }
        let mut name = [0u8; 13];
        if read_exact(fd, &mut name, names.offset.checked_add(found.name.into())?).is_none() {
            continue;
        }
        if name.starts_with(b".eh_frame\0") {
            eh = Some(found);
        } else if name == *b".debug_frame\0" {
            debug = Some(found);
        }
    }
    Some((eh, debug))
}

fn section_header(fd: Fd, headers: u64, index: u16) -> Option<SectionHeader> {
    const SIZE: usize = size_of::<SectionHeader>();
    let mut bytes = [0; SIZE];
    read_exact(fd, &mut bytes, headers.checked_add(u64::from(index) * SIZE as u64)?)?;
    // SAFETY: any bytes are a header, which has no padding.
    Some(unsafe { core::mem::transmute::<[u8; SIZE], SectionHeader>(bytes) })
}

fn read_exact(fd: Fd, buffer: &mut [u8], mut offset: u64) -> Option<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let n = kernel::read_at(fd, &mut buffer[filled..], offset).ok().filter(|&n| n > 0)?;
        filled += n;
        offset = offset.checked_add(n as u64)?;
    }
    Some(())
}

impl Room {
    /// Takes memory, as long as the limit for all modules permits it.
    fn take(&self, bytes: usize) -> Option<*mut u8> {
        let used = self.0.fetch_add(bytes as u64, Relaxed);
        if used.saturating_add(bytes as u64) > FILE_TABLES_MAX as u64 {
            self.0.fetch_sub(bytes as u64, Relaxed);
            return None;
        }
        let memory = memory::take(bytes, InChild::Nothing);
        (!memory.is_null()).then_some(memory)
    }

    /// Reads a section, which lies within the file.
    fn read(&self, fd: Fd, header: &SectionHeader) -> Option<&'static [u8]> {
        let end = header.offset.checked_add(header.size)?;
        if header.size == 0 || kernel::file_size(fd).is_none_or(|size| end > size) {
            return None;
        }
        let length = header.size as usize;
        let memory = self.take(length)?;
        // SAFETY: fresh memory of that size, which nothing else refers to.
        let bytes = unsafe { core::slice::from_raw_parts_mut(memory, length) };
        read_exact(fd, bytes, header.offset)?;
        Some(bytes)
    }
}
