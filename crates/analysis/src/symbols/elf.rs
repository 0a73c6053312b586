//! Reads sections of an ELF file without mapping it: modules and their separate debug files.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::read::ZlibDecoder;
use object::read::elf::ElfFile64;
use object::{
    CompressionFormat, Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, SectionKind,
    SymbolKind,
};

use crate::files::input;

/// An open 64-bit ELF file.
pub(super) struct ElfFile {
    bytes: ReadCache<File>,
}

impl ElfFile {
    /// Opens a file.
    /// Errors: the file cannot be read, or is not a 64-bit ELF file.
    /// Errors: the file cannot be read, or is not a 64-bit ELF file.
    pub(super) fn open(path: &Path) -> Result<ElfFile, String> {
        let file = input::open(path).map_err(|error| error.to_string())?;
        let elf = ElfFile { bytes: ReadCache::new(file) };
        elf.parsed().map(|_| ())?;
        Ok(elf)
    }

    /// Returns the decompressed contents of a section; `None` if there is no such section, its
    /// compression is unknown, or it is larger than `limit` bytes.
    pub(super) fn section(&self, name: &str, limit: u64) -> Option<Cow<'_, [u8]>> {
        let file = self.parsed().ok()?;
        // The old GNU format compresses sections under names of their own.
        let old = || file.section_by_name(&name.replacen(".debug_", ".zdebug_", 1));
        let section = file.section_by_name(name).or_else(old)?;
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
        let section = file.as_ref().and_then(|file| file.section_by_name(name));
        section.is_some_and(|section| section.kind() != SectionKind::UninitializedData)
    }

    /// Returns the build-id; empty if there is none.
    pub(super) fn build_id(&self) -> Vec<u8> {
        let file = self.parsed().ok();
        let id = file.as_ref().and_then(|file| file.build_id().ok().flatten());
        id.unwrap_or_default().to_vec()
    }

    /// Returns the debug link.
    pub(super) fn debug_link(&self) -> Option<DebugLink> {
        let file = self.parsed().ok()?;
        let (name, checksum) = file.gnu_debuglink().ok()??;
        DebugLink::new(name, checksum)
    }

    /// Returns the link to the supplementary file of its debug information.
    pub(super) fn supplementary(&self) -> Option<SupplementaryLink> {
        let file = self.parsed().ok()?;
        let (path, build_id) = file.gnu_debugaltlink().ok()??;
        let path = Path::new(OsStr::from_bytes(path)).into();
        Some(SupplementaryLink { path, build_id: build_id.to_vec() })
    }

    /// Returns the exported functions of the module: first address, end address, name.
    pub(super) fn exported(&self) -> Vec<(u64, u64, String)> {
        let file = self.parsed().ok();
        let symbols = file.iter().flat_map(|file| file.dynamic_symbols().filter_map(function));
        symbols.collect()
    }

    fn parsed(&self) -> Result<ElfFile64<'_, Endianness, &ReadCache<File>>, String> {
        ElfFile64::parse(&self.bytes).map_err(|error| error.to_string())
    }
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
