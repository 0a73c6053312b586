//! Functions of stripped modules with MiniDebugInfo: a compressed symbol table in the section
//! `.gnu_debugdata`, in addition to the exported functions in the dynamic symbol table.

use std::io::{self, Write};

use object::read::elf::ElfFile64;
use object::{Endianness, Object};

use super::elf::{ElfFile, function};

/// Maximum size of the table in bytes, compressed and uncompressed: that of libxul takes 30 MB.
const LIMIT: usize = 256 << 20;

/// The functions of a module, by address.
pub(super) struct SymbolTable {
    /// In ascending order: first address, end address, name.
    functions: Vec<(u64, u64, String)>,
}

impl SymbolTable {
    /// Reads the functions of a module that has MiniDebugInfo; `None` if it has none.
    pub(super) fn read(elf: &ElfFile) -> Option<SymbolTable> {
        if elf.has(".symtab") {
            return None;
        }
        let packed = elf.section(".gnu_debugdata", LIMIT as u64)?;
        let mut unpacked = Bounded(Vec::new());
        lzma_rs::xz_decompress(&mut packed.as_ref(), &mut unpacked).ok()?;
        let file = ElfFile64::<Endianness>::parse(unpacked.0.as_slice()).ok()?;
        let mut functions: Vec<_> = file.symbols().filter_map(function).collect();
        functions.extend(elf.exported());
        functions.sort_unstable();
        Some(SymbolTable { functions })
    }

    /// Returns the mangled name of the function at an address.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let end = self.functions.partition_point(|function| function.0 <= address);
        let (_, behind, name) = self.functions.get(end.checked_sub(1)?)?;
        (address < *behind).then_some(name)
    }
}

/// A buffer of at most [`LIMIT`] bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LIMIT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
