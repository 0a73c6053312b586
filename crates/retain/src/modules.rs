//! The variables of the modules of a program, and the sizes of their thread-local storage.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use heaptide_analysis::model::retained::Declared;
use heaptide_analysis::symbols::{ElfFile, separate_debug_file};
use heaptide_attach::{Mapping, file_of};
use nix::unistd::Pid;
use object::elf::{self, FileHeader64, PF_W, PT_LOAD, PT_TLS};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

use crate::declared;

/// A variable: its addresses in memory and its symbol.
pub(crate) struct Variable {
    pub(crate) low: u64,
    high: u64,
    pub(crate) symbol: Box<str>,
}

/// A module.
pub(crate) struct Module {
    /// The name of its file.
    pub(crate) file: Box<str>,
    /// Whether it is the C library, whose allocator refers to free memory.
    pub(crate) is_libc: bool,
    /// Where its writable memory ends: variables that are zero at its start have no file.
    pub(crate) end: u64,
    /// The file with its debug information, if that can be read.
    opened: Option<ElfFile>,
    /// Addresses in memory minus those in the file.
    bias: u64,
    /// Bytes and alignment of its thread-local variables.
    pub(crate) thread_local: (u64, u64),
    variables: Vec<Variable>,
}

impl Module {
    /// Returns the variable at an address.
    pub(crate) fn variable(&self, address: u64) -> Option<&Variable> {
        let after = self.variables.partition_point(|variable| variable.low <= address);
        let variable = self.variables[..after].last()?;
        (address < variable.high).then_some(variable)
    }

    /// Returns the address of a variable.
    pub(crate) fn address_of(&self, symbol: &str) -> Option<u64> {
        let found = self.variables.iter().find(|variable| &*variable.symbol == symbol);
        found.map(|variable| variable.low)
    }

    /// Returns where the variables that begin at these addresses are declared.
    pub(crate) fn declared(&self, addresses: &[u64]) -> HashMap<u64, Declared> {
        let Some(file) = &self.opened else { return HashMap::new() };
        let in_file: Vec<u64> = addresses.iter().map(|at| at.wrapping_sub(self.bias)).collect();
        let found = declared::places(file, &in_file).into_iter();
        found.map(|(address, place)| (address.wrapping_add(self.bias), place)).collect()
    }
}

/// The modules of a process, read from their files.
pub(crate) struct Modules {
    by_path: HashMap<String, Module>,
}

impl Modules {
    pub(crate) fn of(pid: Pid, mappings: &[Mapping]) -> Modules {
        let mut by_path = HashMap::new();
        for mapping in mappings.iter().filter(|mapping| mapping.path.starts_with('/')) {
            if !mapping.is_shared && !by_path.contains_key(&mapping.path) {
                let module = read(pid, mapping).unwrap_or_else(|| Module::unknown(mapping));
                by_path.insert(mapping.path.clone(), module);
            }
        }
        Modules { by_path }
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Module> {
        self.by_path.get(path)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Module> {
        self.by_path.values()
    }

    /// Returns the bytes of the thread-local variables of all modules.
    pub(crate) fn thread_local_bytes(&self) -> u64 {
        self.by_path.values().fold(0, |sum, module| {
            let (bytes, alignment) = module.thread_local;
            (sum + bytes).next_multiple_of(alignment.max(1))
        })
    }
}

impl Module {
    /// Returns a module whose file cannot be read.
    fn unknown(mapping: &Mapping) -> Module {
        Module {
            file: file_name(&mapping.path).into(),
            is_libc: is_libc(&mapping.path),
            end: mapping.high,
            opened: None,
            bias: 0,
            thread_local: (0, 1),
            variables: Vec::new(),
        }
    }
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

fn is_libc(path: &str) -> bool {
    let name = file_name(path);
    name.starts_with("libc.so") || name.starts_with("libc-2.") || name.starts_with("ld-musl-")
}

/// Reads the file of the first mapping of a module.
fn read(pid: Pid, first: &Mapping) -> Option<Module> {
    let opened = |path: PathBuf| File::open(&path).ok().map(|file| (file, path));
    let (file, path) = file_of(pid, first).into_iter().find_map(opened)?;
    let cache = ReadCache::new(&file);
    let data = &cache;
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let page = |address: u64| address & !0xfff;
    let of_type = |kind| segments.iter().filter(move |segment| segment.p_type(endian) == kind);
    let own = of_type(PT_LOAD).find(|segment| page(segment.p_offset(endian)) == first.offset)?;
    let bias = first.low.wrapping_sub(page(own.p_vaddr(endian)));
    let written = of_type(PT_LOAD).filter(|segment| segment.p_flags(endian) & PF_W != 0);
    let ends = written.map(|s| s.p_vaddr(endian).wrapping_add(s.p_memsz(endian)));
    let end = ends.max().unwrap_or(0).wrapping_add(bias);
    let thread_local = of_type(PT_TLS).next();
    let mut module = Module { end, ..Module::unknown(first) };
    if let Some(segment) = thread_local {
        module.thread_local = (segment.p_memsz(endian), segment.p_align(endian));
    }
    let separate = separate_debug_file(&path, Path::new(&first.path));
    let of_separate = separate.as_deref().and_then(|file| variables_of(file, bias));
    let own = || variables(header, endian, data, bias).unwrap_or_default();
    module.variables = of_separate.filter(|found| !found.is_empty()).unwrap_or_else(own);
    module.bias = bias;
    module.opened = ElfFile::open(separate.as_deref().unwrap_or(&path)).ok();
    Some(module)
}

/// Reads the variables of a separate debug file.
fn variables_of(file: &Path, bias: u64) -> Option<Vec<Variable>> {
    let file = File::open(file).ok()?;
    let cache = ReadCache::new(&file);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    variables(header, header.endian().ok()?, &cache, bias)
}

fn variables<'data, R: ReadRef<'data>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
    bias: u64,
) -> Option<Vec<Variable>> {
    let sections = header.sections(endian, data).ok()?;
    let mut variables = Vec::new();
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let table = sections.symbols(endian, data, kind).ok()?;
        for symbol in table.iter() {
            let bytes = symbol.st_size(endian);
            if symbol.st_type() != elf::STT_OBJECT || symbol.is_undefined(endian) || bytes == 0 {
                continue;
            }
            let Ok(name) = symbol.name(endian, table.strings()) else { continue };
            let low = symbol.st_value(endian).wrapping_add(bias);
            let symbol = String::from_utf8_lossy(name).into();
            variables.push(Variable { low, high: low.wrapping_add(bytes), symbol });
        }
        if !variables.is_empty() {
            break; // the full table contains those that are exported
        }
    }
    variables.sort_by_key(|variable| variable.low);
    Some(variables)
}
