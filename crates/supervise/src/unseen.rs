//! Contents of an executable, apart from its headers, that determine how much of it can be
//! recorded: an embedded recorder, Go's runtime, an allocator without function symbols.

use std::fs::File;

use heaptide_format::EMBEDDED_NOTE;
use object::ReadRef;
use object::elf;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};

/// The most bytes of a program's constants to search.
const CONSTANTS_BYTES_MAX: u64 = 64 << 20;

/// Prefixes of messages of allocators, which are constants in programs that contain them.
const MESSAGES: [(&str, &[u8]); 3] =
    [("jemalloc", b"<jemalloc>: "), ("tcmalloc", b"tcmalloc: "), ("mimalloc", b"mimalloc: ")];
/// A function of CPython, which contains mimalloc and uses it on request.
const PYTHON: &[u8] = b"PyMem_Malloc";

/// What an executable contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// An embedded recorder.
    pub has_recorder: bool,
    /// Go's runtime, whose allocator takes its memory from the kernel.
    pub is_go: bool,
    /// The name of an allocator whose functions have no symbols.
    pub unnamed_allocator: Option<&'static str>,
}

/// Checks the notes, the section headers and, if these are not sufficient, the constants.
pub fn contents<Header: FileHeader>(
    header: &Header,
    endian: Header::Endian,
    data: &ReadCache<File>,
) -> Contents {
    let has_note = |name: &[u8]| has_note(header, endian, data, name);
    let mut contents = Contents {
        has_recorder: has_note(&EMBEDDED_NOTE[..EMBEDDED_NOTE.len() - 1]),
        is_go: has_note(b"Go"),
        unnamed_allocator: None,
    };
    if let Ok(sections) = header.sections(endian, data) {
        contents.is_go |= sections.section_by_name(endian, b".go.buildinfo").is_some();
        contents.unnamed_allocator = unnamed_allocator(&sections, endian, data);
    }
    contents
}

fn has_note<Header: FileHeader>(
    header: &Header,
    endian: Header::Endian,
    data: &ReadCache<File>,
    name: &[u8],
) -> bool {
    let segments = header.program_headers(endian, data).unwrap_or_default();
    let notes = segments.iter().filter_map(|segment| segment.notes(endian, data).ok().flatten());
    notes.flatten().map_while(Result::ok).any(|note| note.name() == name)
}

/// Returns the allocator in a file that has no symbol table and exports no `malloc`.
fn unnamed_allocator<'data, Header: FileHeader>(
    sections: &SectionTable<'data, Header, &'data ReadCache<File>>,
    endian: Header::Endian,
    data: &'data ReadCache<File>,
) -> Option<&'static str> {
    if sections.iter().any(|section| section.sh_type(endian) == elf::SHT_SYMTAB) {
        return None;
    }
    let exported = sections.symbols(endian, data, elf::SHT_DYNSYM).ok()?;
    let exports = |name: &[u8]| {
        let mut defined = exported.iter().filter(|symbol| !symbol.is_undefined(endian));
        defined.any(|symbol| symbol.name(endian, exported.strings()) == Ok(name))
    };
    if exports(b"malloc") {
        return None;
    }
    let (_, constants) = sections.section_by_name(endian, b".rodata")?;
    let (begin, length) = constants.file_range(endian)?;
    let read = data.read_bytes_at(begin, length.min(CONSTANTS_BYTES_MAX)).ok()?;
    let found = read.split(|&byte| byte == 0).find_map(|text| {
        MESSAGES.iter().find(|(_, message)| text.starts_with(message)).map(|(name, _)| *name)
    });
    found.filter(|_| !exports(PYTHON))
}
