//! Reads the file of a program that is about to be started, to determine whether it can be
//! recorded.
//!
//! Only the necessary parts are read: the header, the program headers, and the names of needed
//! libraries. Files that cannot be read, or that have another format, are left to kernel and
//! loader.

use crate::arch;
use heaptide_format::{EMBEDDED_NOTE, UnrecordedChild};
use heaptide_recorder::sys::kernel::{self, Fd, Path};
use heaptide_recorder::sys::text::Text;

/// The most nested script interpreters; the kernel follows no more.
const SCRIPTS_MAX: usize = 5;
/// Bytes of a script's first line that the kernel reads.
const SCRIPT_LINE: usize = 256;
/// The longest relevant name of a library, in bytes.
const NAME_MAX: usize = 64;

/// Runtimes of sanitizers that replace the allocator, by prefix of their file name.
const SANITIZERS: [&[u8]; 9] = [
    b"libasan.so",
    b"libtsan.so",
    b"liblsan.so",
    b"libhwasan.so",
    b"libmsan.so",
    b"libclang_rt.asan",
    b"libclang_rt.hwasan",
    b"libclang_rt.tsan",
    b"libclang_rt.msan",
];

/// Space for the parts of a file, because callers may have little stack.
pub struct Room {
    /// Program headers; at most the first 64 are read.
    headers: [u8; 64 * PROGRAM_HEADER],
    /// The dynamic section; at most the first 256 entries are read.
    dynamic: [u8; 256 * DYNAMIC_ENTRY],
    /// A script's first line, a note, a name.
    text: [u8; SCRIPT_LINE],
}

/// Why a program cannot be recorded.
pub struct Obstacle {
    /// The reason.
    pub why: UnrecordedChild,
    /// The static program, if a command may be able to put the recorder into it.
    pub program: Option<Program>,
}

impl From<UnrecordedChild> for Obstacle {
    fn from(why: UnrecordedChild) -> Obstacle {
        Obstacle { why, program: None }
    }
}

/// An open program.
pub struct Program {
    /// Its descriptor.
    pub fd: Fd,
    /// The descriptor is the caller's.
    is_borrowed: bool,
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.is_borrowed {
            kernel::close(self.fd);
        }
    }
}

/// Returns why the program in a file cannot be recorded; `None` if it can be, or if that is
/// unknown.
pub fn obstacle(file: Path<'_>, room: &mut Room) -> Option<Obstacle> {
    let mut fd = open(file)?;
    for _ in 0..SCRIPTS_MAX {
        let length = kernel::read_at(fd, &mut room.text, 0).unwrap_or(0);
        let Some(next) = interpreter(&mut room.text[..length]).and_then(open) else {
            break;
        };
        kernel::close(fd);
        fd = next;
    }
    let mut found = obstacle_in(fd, room);
    match found.as_mut().and_then(|found| found.program.as_mut()) {
        Some(program) => program.is_borrowed = false,
        None => kernel::close(fd),
    }
    found
}

/// Like `obstacle`, for an open file, which stays open.
pub fn obstacle_in(fd: Fd, room: &mut Room) -> Option<Obstacle> {
    let count = match headers(fd, room)? {
        Headers::Foreign => return Some(UnrecordedChild::OtherArchitecture.into()),
        Headers::Native(count) => count,
    };
    if kernel::gains_rights(fd) {
        return Some(UnrecordedChild::SetUserId.into());
    }
    let Room { headers, dynamic, text } = room;
    let headers = || headers.chunks_exact(PROGRAM_HEADER).take(count).filter_map(segment);
    if !headers().any(|segment| segment.kind == PT_INTERP) {
        let mut notes = headers().filter(|segment| segment.kind == PT_NOTE);
        let embeds = notes.any(|note| is_ours(fd, &note, text));
        if embeds {
            return None;
        }
        let section = headers().find(|segment| segment.kind == PT_DYNAMIC);
        let read = section.map_or(0, |section| read_dynamic(fd, &section, dynamic));
        let entries = dynamic[..read].chunks_exact(DYNAMIC_ENTRY).filter_map(pair);
        // The loader, which can be executed, too, is not marked as a program.
        let is_marked =
            entries.into_iter().any(|(kind, flags)| kind == DT_FLAGS_1 && flags & DF_1_PIE != 0);
        let can_be_inserted = cfg!(target_arch = "x86_64") && (read == 0 || is_marked);
        let program = can_be_inserted.then_some(Program { fd, is_borrowed: true });
        return Some(Obstacle { why: UnrecordedChild::Static, program });
    }
    let section = headers().find(|segment| segment.kind == PT_DYNAMIC)?;
    let read = read_dynamic(fd, &section, dynamic);
    let entries = || dynamic[..read].chunks_exact(DYNAMIC_ENTRY).filter_map(pair);
    let strings = entries().find(|&(kind, _)| kind == DT_STRTAB)?.1;
    let strings = headers().find_map(|segment| segment.place_of(strings))?;
    let mut needed = entries().filter(|&(kind, _)| kind == DT_NEEDED);
    let sanitizer = needed.any(|(_, at)| is_sanitizer(fd, strings.saturating_add(at), text));
    sanitizer.then(|| UnrecordedChild::Sanitizer.into())
}

/// Returns the path of an open file; empty if unknown.
pub fn path_of(fd: Fd, room: &mut Room) -> &[u8] {
    let mut link: Text<32> = Text::new();
    link.push(b"/proc/self/fd/");
    link.push_number(fd.0 as u64);
    let link = link.path();
    link.and_then(|link| kernel::readlink(link, &mut room.text).ok()).unwrap_or(b"")
}

/// Opens a regular file; opening a pipe without a writer would block.
fn open(file: Path<'_>) -> Option<Fd> {
    let fd = kernel::open(file, kernel::O_RDONLY | kernel::O_NONBLOCK).ok()?;
    if kernel::is_regular(fd) {
        return Some(fd);
    }
    kernel::close(fd);
    None
}

/// Returns the interpreter in the first line of a script, which is modified to end there.
fn interpreter(script: &mut [u8]) -> Option<Path<'_>> {
    let is_space = |&b: &u8| b == b' ' || b == b'\t';
    let start = script.starts_with(b"#!").then(|| {
        let spaces = script[2..].iter().take_while(|b| is_space(b)).count();
        2 + spaces
    })?;
    let name = &mut script[start..];
    let end = name.iter().position(|b| is_space(b) || *b == b'\n')?;
    name[end] = 0;
    Path::new(name)
}

const PROGRAM_HEADER: usize = 56;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const DYNAMIC_ENTRY: usize = 16;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;

/// The result of reading the header of an ELF file.
enum Headers {
    /// A program of another architecture.
    Foreign,
    /// This many program headers were read.
    Native(usize),
}

/// Reads the program headers; `None` if the file is no ELF file.
fn headers(fd: Fd, room: &mut Room) -> Option<Headers> {
    const HEAD: usize = 64;
    const CLASS_64_LITTLE_ENDIAN: [u8; 2] = [2, 1];
    let head = &mut room.text[..HEAD];
    if kernel::read_at(fd, head, 0) != Ok(HEAD) || head[..4] != *b"\x7fELF" {
        return None;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if head[4..6] != CLASS_64_LITTLE_ENDIAN || half(18) != arch::ELF_MACHINE {
        return Some(Headers::Foreign);
    }
    let (offset, count) = (word(head, 32)?, half(56) as usize);
    let bytes = (count * PROGRAM_HEADER).min(room.headers.len());
    let read = kernel::read_at(fd, &mut room.headers[..bytes], offset).ok()?;
    Some(Headers::Native(read / PROGRAM_HEADER))
}

/// Reads a dynamic section. Returns the number of its bytes.
fn read_dynamic(fd: Fd, section: &Segment, dynamic: &mut [u8]) -> usize {
    let bytes = (section.bytes as usize).min(dynamic.len());
    kernel::read_at(fd, &mut dynamic[..bytes], section.offset).unwrap_or(0)
}

/// The relevant fields of a program header.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Segment {
    /// Returns the file offset of an address in this segment.
    fn place_of(&self, address: u64) -> Option<u64> {
        let into = address.checked_sub(self.address).filter(|&into| into < self.bytes)?;
        (self.kind == PT_LOAD).then(|| self.offset.saturating_add(into))
    }
}

/// `Elf64_Phdr`: type and flags, offset, virtual and physical address, bytes in the file, …
fn segment(header: &[u8]) -> Option<Segment> {
    Some(Segment {
        kind: word(header, 0)? as u32,
        offset: word(header, 8)?,
        address: word(header, 16)?,
        bytes: word(header, 32)?,
    })
}

/// Returns whether a note marks a program with an embedded recorder.
fn is_ours(fd: Fd, note: &Segment, text: &mut [u8; SCRIPT_LINE]) -> bool {
    let bytes = (note.bytes as usize).min(text.len());
    let read = kernel::read_at(fd, &mut text[..bytes], note.offset).unwrap_or(0);
    text[..read].windows(EMBEDDED_NOTE.len()).any(|bytes| bytes == EMBEDDED_NOTE)
}

/// Returns whether the name at an offset of the file is that of a sanitizer's runtime.
fn is_sanitizer(fd: Fd, at: u64, text: &mut [u8; SCRIPT_LINE]) -> bool {
    let name = &mut text[..NAME_MAX];
    let read = kernel::read_at(fd, name, at).unwrap_or(0);
    SANITIZERS.iter().any(|known| name[..read].starts_with(known))
}

fn pair(entry: &[u8]) -> Option<(u64, u64)> {
    Some((word(entry, 0)?, word(entry, 8)?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}
