//! The modules of a process: the locations of their code, and the names of their functions.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::unistd::{Pid, SysconfVar, sysconf};
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

use crate::machine::{self, Places};
use crate::memory::{Mapping, Memory, file_of, mappings};

/// A mapped file that contains code.
#[derive(Debug)]
pub struct Module {
    /// The path in the root directory of the process.
    pub path: String,
    /// Its start address.
    pub low: u64,
    /// Its end address.
    pub high: u64,
    pid: Pid,
    mappings: Vec<Mapping>,
    contents: OnceCell<Option<Contents>>,
}

/// The parsed contents of its file. Code and debug information, which may be large, are not kept.
#[derive(Debug)]
pub struct Contents {
    file: File,
    /// The difference between addresses in memory and in the file.
    pub bias: u64,
    /// Exported functions and data: name, address, size.
    symbols: Vec<(String, u64, u64)>,
    /// The sections `.eh_frame_hdr` and `.eh_frame`.
    pub frames: Option<[Section; 2]>,
}

/// A section of a file.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its address in the file, without the bias.
    pub address: u64,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// All modules of a process.
#[derive(Debug)]
pub struct Modules {
    modules: Vec<Module>,
    pid: Pid,
    /// The vDSO: the kernel's code in the process.
    vdso: Option<Mapping>,
    signal_return: OnceCell<Option<u64>>,
}

impl Modules {
    /// Reads the modules of a process.
    ///
    /// Errors: the process has ended, or it may not be traced.
    pub fn new(pid: Pid) -> io::Result<Modules> {
        Ok(Modules::of(pid, &mappings(pid)?))
    }

    /// Returns the modules of a process with these mappings.
    pub fn of(pid: Pid, mappings: &[Mapping]) -> Modules {
        let mut modules: Vec<Module> = Vec::new();
        let mut vdso = None;
        for mapping in mappings.iter().cloned() {
            if mapping.path == "[vdso]" {
                vdso = Some(mapping);
                continue;
            }
            if !mapping.path.starts_with('/') {
                continue;
            }
            let last = modules.last_mut().filter(|module| module.path == mapping.path);
            // If lld linked it and its code is small, the code starts in the page of the headers.
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
        Modules { modules, pid, vdso, signal_return: OnceCell::new() }
    }

    /// Updates the list of modules. Files that are still mapped at the same addresses are not read
    /// again.
    pub fn renew(&mut self, mappings: &[Mapping]) {
        let mut new = Modules::of(self.pid, mappings);
        // Both lists are in the order of addresses.
        let mut old = std::mem::take(&mut self.modules).into_iter().peekable();
        for module in &mut new.modules {
            while old.next_if(|old| old.low < module.low).is_some() {}
            let same = old.next_if(|old| {
                (old.low, old.high, &old.path) == (module.low, module.high, &module.path)
            });
            module.contents = same.map(|same| same.contents).unwrap_or_default();
        }
        new.signal_return = std::mem::take(&mut self.signal_return);
        *self = new;
    }

    /// Reads the contents of all modules, so that none has to be read while the process is stopped.
    pub fn read_all(&self) {
        for module in self.iter() {
            let _ = module.contents(); // some cannot be read
        }
    }

    /// Iterates over the modules by address.
    pub fn iter(&self) -> impl Iterator<Item = &Module> {
        self.modules.iter()
    }

    /// Returns the module that contains an address.
    pub fn holding(&self, address: u64) -> Option<&Module> {
        let is_in = |mapping: &Mapping| (mapping.low..mapping.high).contains(&address);
        self.iter().find(|module| module.mappings.iter().any(is_in))
    }

    /// Returns the module of the C library: glibc or musl.
    pub fn libc(&self) -> Option<&Module> {
        self.iter().find(|module| module.is_libc())
    }

    /// Returns the address to which signal handlers return, in code of the kernel or of the C
    /// library.
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

    /// Returns the code that calls need.
    pub fn places(&self) -> Option<Places> {
        let find = |module: &Module| module.find_code(machine::SYSTEM_CALL_AND_RETURN);
        let in_libc = find(self.libc()?);
        let system_call = in_libc.or_else(|| self.iter().find_map(find))?;
        Some(Places { signal_return: self.signal_return()?, system_call })
    }
}

impl Module {
    /// Returns the name of its file.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns whether it is the C library.
    pub fn is_libc(&self) -> bool {
        let name = self.file_name();
        let glibc = name.starts_with("libc.so.") || name.starts_with("libc-2.");
        glibc || self.is_musl()
    }

    /// Returns whether it is musl, which is C library and loader in one.
    pub fn is_musl(&self) -> bool {
        self.file_name().starts_with("ld-musl-") || self.file_name() == "libc.so"
    }

    /// Returns whether it is a separate loader.
    pub fn is_loader(&self) -> bool {
        let name = self.file_name();
        name.starts_with("ld-linux") || name.starts_with("ld-2.") || name.starts_with("ld64.so")
    }

    /// Returns the contents of its file; `None` if it cannot be read.
    pub fn contents(&self) -> Option<&Contents> {
        self.contents.get_or_init(|| self.read()).as_ref()
    }

    fn read(&self) -> Option<Contents> {
        let first = self.mappings.first()?;
        let file = file_of(self.pid, first).into_iter().find_map(|path| File::open(path).ok())?;
        Contents::new(file, first)
    }

    /// Returns the address of an exported symbol.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        let contents = self.contents()?;
        let found = contents.symbols.iter().find(|(known, ..)| known == name)?;
        Some(found.1.wrapping_add(contents.bias))
    }

    /// Returns the exported function that contains an address.
    pub fn function_at(&self, address: u64) -> Option<&str> {
        let contents = self.contents()?;
        let address = address.wrapping_sub(contents.bias);
        let holds = |(_, at, size): &&(String, u64, u64)| (*at..at + size).contains(&address);
        contents.symbols.iter().find(holds).map(|(name, ..)| name.as_str())
    }

    /// Returns the address of a byte sequence in its code.
    pub fn find_code(&self, wanted: &[u8]) -> Option<u64> {
        let contents = self.contents()?;
        self.mappings.iter().filter(|mapping| mapping.is_code).find_map(|mapping| {
            let mut code = vec![0; usize::try_from(mapping.high - mapping.low).ok()?];
            // The last page of a mapping may be longer than the file.
            let length = contents.file.read_at(&mut code, mapping.offset).ok()?;
            let at = position(&code[..length], wanted)?;
            Some(mapping.low + at as u64)
        })
    }
}

fn position(code: &[u8], wanted: &[u8]) -> Option<usize> {
    code.windows(wanted.len()).position(|window| window == wanted)
}

impl Contents {
    fn new(file: File, first: &Mapping) -> Option<Contents> {
        let cache = ReadCache::new(&file);
        let data = &cache;
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
            let bytes = data.read_bytes_at(offset, bytes).ok()?.to_vec();
            Some(Section { address: section.sh_addr(endian), bytes })
        };
        let frames = section(b".eh_frame_hdr").zip(section(b".eh_frame"));
        let frames = frames.map(|(header, table)| [header, table]);
        drop(cache);
        Some(Contents { file, bias, symbols, frames })
    }
}

/// Returns the start of the page that contains an address.
fn page_of(address: u64) -> u64 {
    const LEAST: u64 = 4096;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    address & !(page.map_or(LEAST, |bytes| bytes as u64) - 1)
}
