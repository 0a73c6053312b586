//! The functions and data of static programs: by the symbol table of the program, by that of its
//! debug file, or, for the functions of its C library, by the library.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{Endianness, ReadCache, ReadRef};

use super::recognised::{Code, StaticLibrary};
use super::tables::Symbol;
use crate::error::Error;

/// The functions at which a program can be stopped once it has a first thread: those that run
/// before and after its constructors, and those that take memory.
const STOPS: [&[u8]; 12] = [
    b"_init",
    b"main",
    b"malloc",
    b"calloc",
    b"realloc",
    b"memalign",
    b"aligned_alloc",
    b"posix_memalign",
    b"valloc",
    b"pvalloc",
    b"_Znwm",
    b"_Znam",
];

/// Functions that a recognised allocator has, and those of musl that they call: if a program
/// contains one of these, it contains the other.
const WITH_CALLED: [(&[u8], &[u8]); 3] = [
    (b"malloc", b"__libc_malloc_impl"),
    (b"free", b"__libc_free"),
    (b"realloc", b"__libc_realloc"),
];

/// The directory of debug files by build-id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Where systems have the C libraries for static programs.
const LIBRARIES: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu/libc.a",
    "/usr/lib64/libc.a",
    "/usr/lib/libc.a",
    "/usr/lib/x86_64-linux-musl/libc.a",
    "/usr/lib/musl/lib/libc.a",
    "/usr/local/musl/lib/libc.a",
    "/usr/lib/rustlib/x86_64-unknown-linux-musl/lib/self-contained/libc.a",
    "/usr/lib/musl/libc.a",
];

/// What is read of static programs, and kept as long as their files stay the same.
#[derive(Debug, Default)]
pub struct Symbols {
    directories: Vec<PathBuf>,
    libraries: OnceLock<Vec<StaticLibrary>>,
    programs: Mutex<HashMap<Identity, Outcome>>,
}

/// The symbols of a program, or why they are unknown.
type Outcome = Result<Arc<Vec<Symbol>>, String>;

/// A file with its content: device, inode, bytes, time of the last change.
type Identity = (u64, u64, u64, i64, i64);

impl Symbols {
    /// Debug files and C libraries are looked for in these directories, too.
    pub fn with_directories(directories: Vec<PathBuf>) -> Symbols {
        Symbols { directories, ..Symbols::default() }
    }

    /// Returns the functions and data of a program apart from those of C++ and Rust.
    ///
    /// Errors: it cannot be read, or the functions of its allocator are unknown.
    pub fn of(&self, program: &File) -> Result<Arc<Vec<Symbol>>, Error> {
        let place = program.metadata().map_err(|error| unreadable(&error))?;
        let time = (place.ctime(), place.ctime_nsec());
        let identity = (place.dev(), place.ino(), place.len(), time.0, time.1);
        let programs = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = programs().get(&identity).cloned();
        let found = known.unwrap_or_else(|| {
            let read = self.read(program).map(Arc::new).map_err(|error| error.to_string());
            programs().insert(identity, read.clone());
            read
        });
        found.map_err(Error::new)
    }

    fn read(&self, program: &File) -> Result<Vec<Symbol>, Error> {
        let cache = ReadCache::new(program);
        let header = FileHeader64::<Endianness>::parse(&cache).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let sections = header.sections(endian, &cache).map_err(damaged)?;
        let table = sections.symbols(endian, &cache, elf::SHT_SYMTAB).map_err(damaged)?;
        let found = if table.is_empty() {
            let build_id = build_id(endian, &cache, &sections);
            let of_debug_file = || build_id.and_then(|id| self.of_debug_file(id));
            let of_library = || self.of_library(endian, header, &cache);
            let found = of_debug_file().or_else(of_library);
            found.ok_or_else(|| without_symbols(build_id))?
        } else {
            in_table(endian, &table)
        };
        if stops(&found).next().is_some() {
            return Ok(found);
        }
        Err(Error::new("its symbol table has neither `main` nor allocating functions"))
    }

    /// Returns the functions and data of the program with a build-id by its debug file; `None` if
    /// that is another one's, or has no table of symbols.
    fn of_debug_file(&self, build_id: &[u8]) -> Option<Vec<Symbol>> {
        let name = debug_file(build_id);
        let in_directories = self.directories.iter().map(|place| place.join(".build-id"));
        let mut places = in_directories.chain([PathBuf::from(DEBUG_FILES)]);
        places.find_map(|place| {
            let file = File::open(place.join(&name)).ok()?;
            let cache = ReadCache::new(&file);
            let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
            let endian = header.endian().ok()?;
            let sections = header.sections(endian, &cache).ok()?;
            let table = sections.symbols(endian, &cache, elf::SHT_SYMTAB).ok()?;
            let is_its = self::build_id(endian, &cache, &sections) == Some(build_id);
            (is_its && !table.is_empty()).then(|| in_table(endian, &table))
        })
    }

    /// Returns the functions of the C library in a program; `None` if no library with its allocator
    /// is there.
    fn of_library<'data, R: ReadRef<'data>>(
        &self,
        endian: Endianness,
        header: &FileHeader64<Endianness>,
        data: R,
    ) -> Option<Vec<Symbol>> {
        let segments = header.program_headers(endian, data).ok()?;
        let is_code = |segment: &&elf::ProgramHeader64<Endianness>| {
            segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian) & elf::PF_X != 0
        };
        let code: Vec<Code<'_>> = segments
            .iter()
            .filter(is_code)
            .filter_map(|segment| {
                let bytes = segment.data(endian, data).ok()?;
                Some(Code { address: segment.p_vaddr(endian), bytes })
            })
            .collect();
        let is_wanted = |name: &[u8]| WITH_CALLED.iter().any(|(wanted, _)| *wanted == name);
        let sections = header.sections(endian, data).ok()?;
        let libraries = self.libraries.get_or_init(|| {
            let paths = libraries(&self.directories).into_iter();
            paths.filter_map(|path| StaticLibrary::parse(&fs::read(path).ok()?)).collect()
        });
        libraries.iter().find_map(|library| {
            let found = library.recognise(&code, is_wanted);
            let has = |name: &[u8]| found.iter().any(|symbol| symbol.name == name);
            let is_whole = has(b"malloc")
                && WITH_CALLED.iter().all(|(name, called)| has(name) || !has(called));
            is_whole.then(|| {
                let names = sections.section_by_name(endian, b".init").map(|(_, section)| Symbol {
                    name: b"_init".to_vec(),
                    info: elf::STB_GLOBAL << 4 | elf::STT_FUNC,
                    address: section.sh_addr(endian),
                    bytes: section.sh_size(endian),
                    is_unique: true,
                });
                by_name(found.into_iter().chain(names))
            })
        })
    }
}

/// Returns the addresses in the file of the functions at which a program can be stopped.
pub fn stops(symbols: &[Symbol]) -> impl Iterator<Item = u64> {
    let is_stop = |symbol: &&Symbol| {
        symbol.is_unique && symbol.info & 15 == elf::STT_FUNC && STOPS.contains(&&*symbol.name)
    };
    symbols.iter().filter(is_stop).map(|symbol| symbol.address)
}

/// A file is no ELF file, or refers to what it does not have.
pub const DAMAGED: &str = "its file is damaged";

/// [`DAMAGED`]
pub fn damaged(_: object::Error) -> Error {
    Error::new(DAMAGED)
}

/// A program cannot be read.
pub fn unreadable(error: &std::io::Error) -> Error {
    Error::new(format!("it cannot be read: {error}"))
}

/// Returns the C libraries that this system has, those in the directories first.
fn libraries(directories: &[PathBuf]) -> Vec<PathBuf> {
    let named = directories.iter().map(|directory| directory.join("libc.a"));
    let of_system = LIBRARIES.map(PathBuf::from).into_iter();
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in named.chain(of_system).chain(of_rust()) {
        if let Ok(path) = path.canonicalize()
            && !paths.contains(&path)
        {
            paths.push(path);
        }
    }
    paths
}

/// Returns the C libraries that Rust's toolchains for musl contain.
fn of_rust() -> Vec<PathBuf> {
    const LIBRARY: &str = "lib/rustlib/x86_64-unknown-linux-musl/lib/self-contained/libc.a";
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".rustup"));
    let home = std::env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(home);
    let toolchains = home.and_then(|home| fs::read_dir(home.join("toolchains")).ok());
    let found = toolchains.into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = found.map(|toolchain| toolchain.path().join(LIBRARY)).collect();
    paths.sort_unstable();
    paths
}

type Sections<'data> = SectionTable<'data, FileHeader64<Endianness>, &'data ReadCache<&'data File>>;
type Table<'data> = SymbolTable<'data, FileHeader64<Endianness>, &'data ReadCache<&'data File>>;

/// Returns the build-id of a file.
fn build_id<'data>(
    endian: Endianness,
    data: &'data ReadCache<&'data File>,
    sections: &Sections<'data>,
) -> Option<&'data [u8]> {
    let notes = sections.iter().filter_map(|section| section.notes(endian, data).ok().flatten());
    let mut notes = notes.flatten().map_while(Result::ok);
    let note = notes.find(|note| {
        note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID
    })?;
    Some(note.desc())
}

/// Returns where the debug file with a build-id is, below a directory of such files.
fn debug_file(build_id: &[u8]) -> PathBuf {
    let digits: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (directory, file) = digits.split_at(digits.len().min(2));
    Path::new(directory).join(format!("{file}.debug"))
}

/// States that a program cannot be recorded without its symbol table, and what to do.
fn without_symbols(build_id: Option<&[u8]>) -> Error {
    let restore = build_id.map_or(String::new(), |id| {
        let path = Path::new(DEBUG_FILES).join(debug_file(id));
        format!(", install its debug file as {}", path.display())
    });
    Error::new(format!(
        "it has no symbol table, and no `libc.a` here has its allocator; keep the table with \
         `strip --strip-debug` (in Cargo.toml `strip = \"debuginfo\"`){restore}, name the directory \
         of the `libc.a` in it with `--symbols`, or embed the recorder"
    ))
}

/// Returns the functions and data of a table. In a position-independent program, those of the C
/// library are local.
fn in_table(endian: Endianness, table: &Table<'_>) -> Vec<Symbol> {
    by_name(table.iter().filter_map(|symbol| {
        let is_global = matches!(symbol.st_bind(), elf::STB_GLOBAL | elf::STB_WEAK);
        let name = symbol.name(endian, table.strings()).unwrap_or_default();
        let is_one = match symbol.st_type() {
            elf::STT_FUNC | elf::STT_OBJECT | elf::STT_GNU_IFUNC => true,
            elf::STT_NOTYPE => is_global,
            _ => false,
        };
        let is_wanted = is_one && !name.is_empty() && !is_mangled(name);
        (is_wanted && !symbol.is_undefined(endian)).then(|| Symbol {
            name: name.to_vec(),
            info: symbol.st_info(),
            address: symbol.st_value(endian),
            bytes: symbol.st_size(endian),
            is_unique: true,
        })
    }))
}

/// Marks the symbols whose name determines them: of several with one name, the only global one, or
/// the only one that is not weak. Of several local ones, none is known to be that of the C library.
fn by_name(symbols: impl Iterator<Item = Symbol>) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = symbols.collect();
    let rank = |symbol: &Symbol| match symbol.info >> 4 {
        elf::STB_GLOBAL => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    symbols
        .sort_unstable_by(|a, b| (&a.name, rank(a), a.address).cmp(&(&b.name, rank(b), b.address)));
    symbols.dedup_by(|b, a| (&a.name, a.address) == (&b.name, b.address));
    for same in symbols.chunk_by_mut(|a, b| a.name == b.name) {
        let best = rank(&same[0]);
        let is_ambiguous = same.get(1).is_some_and(|second| rank(second) == best);
        for (index, symbol) in same.iter_mut().enumerate() {
            symbol.is_unique = index == 0 && !is_ambiguous;
        }
    }
    symbols
}

/// Returns whether a name is one of C++ or Rust, other than an allocation operator.
fn is_mangled(name: &[u8]) -> bool {
    let is_operator = matches!(name, [b'_', b'Z', b'n' | b'd', b'w' | b'a' | b'l', ..]);
    name.starts_with(b"_Z") && !is_operator || name.starts_with(b"_R")
}
