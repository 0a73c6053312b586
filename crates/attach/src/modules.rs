//! The modules of a process: which code is where, and the names of its functions.

use std::cell::OnceCell;
use std::fs;
use std::io;

use nix::unistd::{Pid, SysconfVar, sysconf};
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadRef};

use crate::machine::{self, Places};
use crate::memory::{Mapping, Memory, file_of, mappings};

/// A file that is mapped with code in it.
#[derive(Debug)]
pub struct Module {
    /// The path in the process's own root directory.
    pub path: String,
    /// Its addresses.
    pub low: u64,
    /// The address behind them.
    pub high: u64,
    pid: Pid,
    mappings: Vec<Mapping>,
    contents: OnceCell<Option<Contents>>,
}

/// What is read of its file.
#[derive(Debug)]
pub struct Contents {
    /// The file.
    pub bytes: Vec<u8>,
    /// What is added to addresses in the file.
    pub bias: u64,
    /// Defined functions and data that other modules find: name, address, size.
    symbols: Vec<(String, u64, u64)>,
    /// Where `.eh_frame_hdr` and `.eh_frame` are: address in the file, first byte, length.
    pub frames: Option<[Section; 2]>,
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its address, without the bias.
    pub address: u64,
    /// Its first byte.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
}

/// All modules of a process.
#[derive(Debug)]
pub struct Modules {
    modules: Vec<Module>,
    pid: Pid,
    /// The kernel's code in the process.
    vdso: Option<Mapping>,
    signal_return: OnceCell<Option<u64>>,
}

impl Modules {
    /// Finds them.
    ///
    /// Errors: the process is gone, or it may not be traced.
    pub fn new(pid: Pid) -> io::Result<Modules> {
        let mut modules: Vec<Module> = Vec::new();
        let mut vdso = None;
        for mapping in mappings(pid)? {
            if mapping.path == "[vdso]" {
                vdso = Some(mapping);
                continue;
            }
            if !mapping.path.starts_with('/') {
                continue;
            }
            let last = modules.last_mut().filter(|module| module.path == mapping.path);
            // Small code that lld linked begins in the page of the headers.
            let is_first_code = |module: &Module| {
                mapping.is_code && !module.mappings.iter().any(|mapping| mapping.is_code)
            };
            if let Some(module) = last.filter(|m| mapping.offset > 0 || is_first_code(m)) {
                module.high = mapping.high;
                module.mappings.push(mapping);
            } else {
                modules.push(Module {
                    path: mapping.path.clone(),
                    low: mapping.low,
                    high: mapping.high,
                    pid,
                    mappings: vec![mapping],
                    contents: OnceCell::new(),
                });
            }
        }
        modules.retain(|module| module.mappings.iter().any(|mapping| mapping.is_code));
        Ok(Modules { modules, pid, vdso, signal_return: OnceCell::new() })
    }

    /// Finds them again, and reads no file again that is still in its place.
    ///
    /// Errors: the process is gone, or it may not be traced.
    pub fn renew(&mut self, pid: Pid) -> io::Result<()> {
        let mut new = Modules::new(pid)?;
        for module in &mut new.modules {
            let is_same = |old: &&mut Module| {
                (&old.path, old.low, old.high) == (&module.path, module.low, module.high)
            };
            if let Some(old) = self.modules.iter_mut().find(is_same) {
                module.contents = std::mem::take(&mut old.contents);
            }
        }
        *self = new;
        Ok(())
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Module> {
        self.modules.iter()
    }

    /// The module that holds an address.
    pub fn holding(&self, address: u64) -> Option<&Module> {
        let is_in = |mapping: &Mapping| (mapping.low..mapping.high).contains(&address);
        self.iter().find(|module| module.mappings.iter().any(is_in))
    }

    /// The module of the C library: glibc's or musl's.
    pub fn libc(&self) -> Option<&Module> {
        self.iter().find(|module| module.is_libc())
    }

    /// Where signal handlers return to: code of the kernel, or of the C library.
    pub fn signal_return(&self) -> Option<u64> {
        let in_vdso = || {
            let vdso = self.vdso.as_ref()?;
            let mut code = vec![0; (vdso.high - vdso.low) as usize];
            Memory::open(self.pid).ok()?.read(vdso.low, &mut code).ok()?;
            Some(vdso.low + position(&code, machine::SIGNAL_RETURN)? as u64)
        };
        let in_libc = || self.libc()?.find_code(machine::SIGNAL_RETURN);
        *self.signal_return.get_or_init(|| in_vdso().or_else(in_libc))
    }

    /// Places that calls need.
    pub fn places(&self) -> Option<Places> {
        let find = |module: &Module| module.find_code(machine::SYSTEM_CALL_AND_RETURN);
        let in_libc = find(self.libc()?);
        let system_call = in_libc.or_else(|| self.iter().find_map(find))?;
        Some(Places { signal_return: self.signal_return()?, system_call })
    }
}

impl Module {
    /// The name of its file.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether it is the C library.
    pub fn is_libc(&self) -> bool {
        let name = self.file_name();
        let glibc = name.starts_with("libc.so.") || name.starts_with("libc-2.");
        glibc || self.is_musl()
    }

    /// Whether it is musl, which is library and loader in one.
    pub fn is_musl(&self) -> bool {
        self.file_name().starts_with("ld-musl-") || self.file_name() == "libc.so"
    }

    /// Whether it is the loader alone.
    pub fn is_loader(&self) -> bool {
        let name = self.file_name();
        name.starts_with("ld-linux") || name.starts_with("ld-2.") || name.starts_with("ld64.so")
    }

    /// What its file holds; none if that cannot be read.
    pub fn contents(&self) -> Option<&Contents> {
        self.contents.get_or_init(|| self.read()).as_ref()
    }

    fn read(&self) -> Option<Contents> {
        let first = self.mappings.first()?;
        let bytes = file_of(self.pid, first).into_iter().find_map(|path| fs::read(path).ok())?;
        Contents::new(bytes, first)
    }

    /// The address of what it defines under a name.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        let contents = self.contents()?;
        let found = contents.symbols.iter().find(|(known, ..)| known == name)?;
        Some(found.1.wrapping_add(contents.bias))
    }

    /// The function that holds an address, of those that other modules find.
    pub fn function_at(&self, address: u64) -> Option<&str> {
        let contents = self.contents()?;
        let address = address.wrapping_sub(contents.bias);
        let holds = |(_, at, size): &&(String, u64, u64)| (*at..at + size).contains(&address);
        contents.symbols.iter().find(holds).map(|(name, ..)| name.as_str())
    }

    /// The address of a sequence of bytes in its code.
    pub fn find_code(&self, wanted: &[u8]) -> Option<u64> {
        let contents = self.contents()?;
        self.mappings.iter().filter(|mapping| mapping.is_code).find_map(|mapping| {
            let from = usize::try_from(mapping.offset).ok()?;
            let length = usize::try_from(mapping.high - mapping.low).ok()?;
            let code = contents.bytes.get(from..contents.bytes.len().min(from + length))?;
            let at = position(code, wanted)?;
            Some(mapping.low + at as u64)
        })
    }
}

fn position(code: &[u8], wanted: &[u8]) -> Option<usize> {
    code.windows(wanted.len()).position(|window| window == wanted)
}

impl Contents {
    fn new(bytes: Vec<u8>, first: &Mapping) -> Option<Contents> {
        let data = bytes.as_slice();
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
        let own =
            loaded.clone().find(|segment| page_of(segment.p_offset(endian)) == first.offset)?;
        let bias = first.low.wrapping_sub(page_of(own.p_vaddr(endian)));
        let sections = header.sections(endian, data).ok()?;
        let mut symbols = Vec::new();
        if let Ok(table) = sections.symbols(endian, data, elf::SHT_DYNSYM) {
            for symbol in table.iter() {
                let kind = symbol.st_type();
                let is_named = matches!(kind, elf::STT_FUNC | elf::STT_OBJECT | elf::STT_NOTYPE);
                if symbol.is_undefined(endian) || !is_named {
                    continue;
                }
                let name = symbol.name(endian, table.strings()).unwrap_or_default();
                let (at, size) = (symbol.st_value(endian), symbol.st_size(endian));
                symbols.push((String::from_utf8_lossy(name).into_owned(), at, size));
            }
        }
        let section = |name: &[u8]| {
            let (_, section) = sections.section_by_name(endian, name)?;
            let (offset, bytes) = section.file_range(endian)?;
            let _ = data.read_bytes_at(offset, bytes).ok()?;
            let (offset, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
            Some(Section { address: section.sh_addr(endian), offset, bytes })
        };
        let frames = section(b".eh_frame_hdr").zip(section(b".eh_frame"));
        let frames = frames.map(|(header, table)| [header, table]);
        Some(Contents { bytes, bias, symbols, frames })
    }

    /// The bytes of a section.
    pub fn section(&self, section: Section) -> &[u8] {
        &self.bytes[section.offset..section.offset + section.bytes]
    }
}

/// The address of the page that holds an address.
fn page_of(address: u64) -> u64 {
    const LEAST: u64 = 4096;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    address & !(page.map_or(LEAST, |bytes| bytes as u64) - 1)
}
