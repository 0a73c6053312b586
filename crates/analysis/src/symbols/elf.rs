//! Reads sections of an ELF file without mapping it: modules and their separate debug files.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::read::ZlibDecoder;
use object::elf::FileHeader64;
use object::read::elf::{
    ElfFile64, ElfSection64, FileHeader, NoteIterator, ProgramHeader, SectionHeader,
};
use object::{
    CompressionFormat, Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, SectionKind,
    SymbolKind,
};

use crate::files::input;

/// Maximum size of a link to another file in bytes: a path and a checksum or build-id.
const LINK_LIMIT: u64 = 1 << 16;
/// Maximum total size in bytes of the notes that are searched for a build-id.
const NOTES_LIMIT: u64 = 1 << 20;

/// An open 64-bit ELF file.
pub struct ElfFile {
    bytes: ReadCache<File>,
}

impl ElfFile {
    /// Opens a file.
    ///
    /// Errors: the file cannot be read, or is not a 64-bit ELF file.
    pub fn open(path: &Path) -> Result<ElfFile, String> {
        let file = input::open(path).map_err(|error| error.to_string())?;
        let elf = ElfFile { bytes: ReadCache::new(file) };
        elf.parsed().map(|_| ())?;
        Ok(elf)
    }

    /// Returns the decompressed contents of a section; `None` if there is no such section, its
    /// compression is unknown, or it is larger than `limit` bytes.
    pub fn section(&self, name: &str, limit: u64) -> Option<Cow<'_, [u8]>> {
        let file = self.parsed().ok()?;
        // The old GNU format compresses sections under names of their own.
        let old = || named(&file, &name.replacen(".debug_", ".zdebug_", 1));
        let section = named(&file, name).or_else(old)?;
        let range = section.compressed_file_range().ok()?;
        if range.uncompressed_size.max(range.compressed_size) > limit {
            return None;
        }
        let stored = range.data(&self.bytes).ok()?;
        let size = stored.uncompressed_size;
        let mut bytes = Vec::new();
        match stored.format {
            CompressionFormat::None => return Some(Cow::Borrowed(stored.data)),
            CompressionFormat::Zlib => {
                ZlibDecoder::new(stored.data).take(size).read_to_end(&mut bytes).ok()?;
            }
            CompressionFormat::Zstandard => {
                let decoder = zstd::Decoder::new(stored.data).ok()?;
                decoder.take(size).read_to_end(&mut bytes).ok()?;
            }
            _ => return None,
        }
        Some(Cow::Owned(bytes))
    }

    /// Returns whether there is a section of this name with contents.
    pub(super) fn has(&self, name: &str) -> bool {
        let file = self.parsed().ok();
        let section = file.as_ref().and_then(|file| named(file, name));
        section.is_some_and(|section| section.kind() != SectionKind::UninitializedData)
    }

    /// Returns the build-id; empty if there is none.
    pub(super) fn build_id(&self) -> Vec<u8> {
        self.parsed().ok().and_then(|file| build_id(&file)).unwrap_or_default()
    }

    /// Returns the debug link.
    pub(super) fn debug_link(&self) -> Option<DebugLink> {
        let bytes = self.section(".gnu_debuglink", LINK_LIMIT)?;
        let name = bytes.split(|&byte| byte == 0).next()?;
        // The checksum follows the terminating zero, aligned to four bytes.
        let at = (name.len() + 1).next_multiple_of(4);
        let checksum = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        DebugLink::new(name, checksum)
    }

    /// Returns the link to the supplementary file of its debug information.
    pub(super) fn supplementary(&self) -> Option<SupplementaryLink> {
        let bytes = self.section(".gnu_debugaltlink", LINK_LIMIT)?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        let path = Path::new(OsStr::from_bytes(&bytes[..end])).into();
        Some(SupplementaryLink { path, build_id: bytes[end + 1..].to_vec() })
    }

    /// Returns the exported functions of the module: first address, end address, name.
    pub(super) fn exported(&self) -> Vec<(u64, u64, String)> {
        let file = self.parsed().ok();
        let symbols = file.iter().flat_map(|file| file.dynamic_symbols().filter_map(function));
        symbols.collect()
    }

    fn parsed(&self) -> Result<Parsed<'_>, String> {
        ElfFile64::parse(&self.bytes).map_err(|error| error.to_string())
    }
}

type Parsed<'a> = ElfFile64<'a, Endianness, &'a ReadCache<File>>;

/// Returns the first section with a name. Names are compared and not read to their ends: those of
/// many sections can share the end of one long text.
fn named<'a, 'f>(
    file: &'f Parsed<'a>,
    name: &str,
) -> Option<ElfSection64<'a, 'f, Endianness, &'a ReadCache<File>>> {
    let (endian, data) = (file.endian(), file.data());
    let table = file.elf_section_table();
    let names = file.elf_header().section_strings_index(endian, data).ok()?;
    let names = table.section(names).ok()?.data(endian, data).ok()?;
    let is_named = |at: usize| {
        let rest = names.get(at..).and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    let mut sections = table.enumerate();
    let found = sections.find(|(_, section)| is_named(section.sh_name(endian) as usize))?;
    file.section_by_index(found.0).ok()
}

/// Returns the build-id: that of a section, or of a segment if there are no sections.
fn build_id(file: &Parsed<'_>) -> Option<Vec<u8>> {
    let (endian, data) = (file.endian(), file.data());
    let mut room = NOTES_LIMIT;
    // Notes can overlap, so that their total size is larger than the file.
    let mut fits = |size: u64| match room.checked_sub(size) {
        Some(rest) => {
            room = rest;
            true
        }
        None => false,
    };
    if !file.elf_section_table().is_empty() {
        let mut sections = file.elf_section_table().iter();
        return sections.find_map(|section| {
            let is_note = section.sh_type(endian) == object::elf::SHT_NOTE;
            let notes = is_note && fits(section.sh_size(endian));
            build_id_in(notes.then(|| section.notes(endian, data).ok()).flatten()??, endian)
        });
    }
    file.elf_program_headers().iter().find_map(|segment| {
        let is_note = segment.p_type(endian) == object::elf::PT_NOTE;
        let notes = is_note && fits(segment.p_filesz(endian));
        build_id_in(notes.then(|| segment.notes(endian, data).ok()).flatten()??, endian)
    })
}

fn build_id_in(
    mut notes: NoteIterator<'_, FileHeader64<Endianness>>,
    endian: Endianness,
) -> Option<Vec<u8>> {
    while let Ok(Some(note)) = notes.next() {
        let is_id = note.n_type(endian) == object::elf::NT_GNU_BUILD_ID;
        if is_id && note.name() == object::elf::ELF_NOTE_GNU {
            return Some(note.desc().to_vec());
        }
    }
    None
}

/// The debug file named by a stripped module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DebugLink {
    /// A name without directories.
    pub(super) name: PathBuf,
    /// CRC-32 of the file.
    pub(super) checksum: u32,
}

impl DebugLink {
    /// Returns the link with this name; `None` if the name contains directories.
    pub(super) fn new(name: &[u8], checksum: u32) -> Option<DebugLink> {
        let name = Path::new(OsStr::from_bytes(name));
        let name = name.file_name().filter(|only| *only == name.as_os_str())?;
        Some(DebugLink { name: name.into(), checksum })
    }
}

/// The supplementary file of a file's debug information.
pub(super) struct SupplementaryLink {
    /// Absolute, or relative to the directory of the file.
    path: PathBuf,
    build_id: Vec<u8>,
}

impl SupplementaryLink {
    /// Opens the supplementary file of the file `of`; `None` if it does not exist or has another
    /// build-id.
    pub(super) fn open(&self, of: &Path) -> Option<ElfFile> {
        let of = fs::canonicalize(of).ok()?;
        let elf = ElfFile::open(&of.parent()?.join(&self.path)).ok()?;
        (elf.build_id() == self.build_id).then_some(elf)
    }
}

/// Returns the addresses and name of a symbol, if it is a function.
pub(super) fn function<'a>(symbol: impl ObjectSymbol<'a>) -> Option<(u64, u64, String)> {
    let is_function = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
    let name = symbol.name().ok().filter(|name| is_function && !name.is_empty())?;
    let end = symbol.address().checked_add(symbol.size())?;
    Some((symbol.address(), end, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;

    /// Bytes of a section header of 64-bit ELF.
    const HEADER: usize = 64;

    fn section(name: u32, kind: u32, offset: u64, size: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&name.to_le_bytes());
        bytes[4..8].copy_from_slice(&kind.to_le_bytes());
        bytes[24..32].copy_from_slice(&offset.to_le_bytes());
        bytes[32..40].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    /// Returns a file of these sections; the last one has their names, `names`, which begin at 64.
    fn file(names: &[u8], sections: &[[u8; HEADER]]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        bytes.resize(HEADER, 0);
        bytes.extend(names);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let headers = bytes.len() as u64;
        bytes[40..48].copy_from_slice(&headers.to_le_bytes());
        bytes[52..54].copy_from_slice(&(HEADER as u16).to_le_bytes());
        bytes[58..60].copy_from_slice(&(HEADER as u16).to_le_bytes());
        bytes[60..62].copy_from_slice(&(sections.len() as u16).to_le_bytes());
        bytes[62..64].copy_from_slice(&(sections.len() as u16 - 1).to_le_bytes());
        bytes.extend(sections.concat());
        bytes
    }

    /// 60,000 sections whose names are the ends of one text of 8 MB: 240 GB if each were read.
    #[test]
    fn names_of_sections_are_not_read_to_their_ends() {
        let names = [vec![b'x'; 8 << 20], b"\0.debug_info\0".to_vec()].concat();
        let size = names.len() as u64;
        let mut sections: Vec<_> = (0..60_000).map(|at| section(at, 1, 64, 1)).collect();
        sections[1] = section((8 << 20) + 1, 1, 64, 1);
        sections.push(section(0, 3, 64, size));
        let scratch = Scratch::new("elf-names");
        let elf = ElfFile::open(&scratch.write("a", &file(&names, &sections))).expect("a file");
        assert!(elf.has(".debug_info") && !elf.has(".symtab") && elf.build_id().is_empty());
        assert!(elf.debug_link().is_none() && elf.supplementary().is_none());
    }

    /// 60,000 sections of notes that all cover the same 8 MB of empty notes.
    #[test]
    fn notes_that_overlap_are_not_read_again_and_again() {
        let names = vec![0; 8 << 20];
        let covers =
            |at: u64| section(0, object::elf::SHT_NOTE, 64 + 4 * at, names.len() as u64 / 2);
        let mut sections: Vec<_> = (0..60_000).map(covers).collect();
        sections.push(section(0, 3, 64, names.len() as u64));
        let scratch = Scratch::new("elf-notes");
        let elf = ElfFile::open(&scratch.write("a", &file(&names, &sections))).expect("a file");
        assert!(elf.build_id().is_empty());
    }

    /// Each word of the headers of a file is replaced by extremes.
    #[test]
    fn extreme_headers_are_errors_or_files() {
        let id = [4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 1, 2, 3, 4];
        let names = [&id[..], b"\0.gnu_debuglink\0ab\0\0\x07\0\0\0"].concat();
        let notes = section(0, object::elf::SHT_NOTE, 64, 20);
        let link = section(21, 1, 64 + 36, 8);
        let sections = [section(0, 0, 0, 0), notes, link, section(0, 3, 64, names.len() as u64)];
        let whole = file(&names, &sections);
        let scratch = Scratch::new("elf-extremes");
        let look = |bytes: &[u8]| {
            let elf = ElfFile::open(&scratch.write("a", bytes)).ok()?;
            let has = elf.has(".gnu_debuglink");
            Some((elf.build_id(), elf.debug_link().map(|link| link.checksum), has))
        };
        assert_eq!(look(&whole), Some((vec![1, 2, 3, 4], Some(7), true)));
        let mut looked = 0;
        for at in (0..whole.len() - 8).step_by(4) {
            for word in [0, 1, 64, u64::from(u32::MAX), 1 << 40, i64::MAX as u64, u64::MAX] {
                let mut bytes = whole.clone();
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
                looked += usize::from(look(&bytes).is_some());
            }
        }
        assert!(looked > 100, "some changes leave a readable file: {looked}");
        (0..whole.len()).step_by(3).for_each(|end| drop(look(&whole[..end])));
    }
}
