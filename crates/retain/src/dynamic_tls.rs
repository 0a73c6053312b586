//! Thread-local variables of libraries that were loaded late: the blocks that glibc's loader made
//! for each thread at its first use of them.
//!
//! ```text
//! loader: _rtld_global ─▶ list of modules with such variables, by number
//! thread: struct pthread ─▶ dtv: by number, the block of the thread, if it has one
//! ```
//!
//! Where these fields are depends on the version of glibc. The C library has that in constants for
//! debuggers (`_thread_db_…`, the data of libthread_db). Without them, as in other C libraries,
//! such blocks are what the memory that they are in is.

use heaptide_attach::picture::Picture;

use crate::modules::{Module, Modules};

/// Maximum number of modules with thread-local variables that are considered.
const MODULES_MAX: u64 = 1 << 16;
/// Maximum number of parts of the loader's list.
const PARTS_MAX: usize = 1 << 10;
/// The value of an entry whose thread has no block.
const UNALLOCATED: u64 = u64::MAX;
/// Bytes of an entry of the table of a thread: the block, and what has to be freed.
const ENTRY: u64 = 16;
/// Offset of the dynamic section in the loader's description of a module, which is public.
const DYNAMIC_SECTION: u64 = 16;

/// A field of a structure, as the C library describes it for debuggers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    bits: u32,
    offset: u64,
}

/// Where the loader and the C library have what is searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    /// The address of the list of modules.
    list: u64,
    /// In a part of the list: the number of its modules, the next part, the modules.
    length: u64,
    next: u64,
    modules: u64,
    /// Bytes of a module in the list; in it, when it was added, and its description.
    module_bytes: u64,
    generation: u64,
    description: u64,
    /// From the thread pointer to the address of the table of the thread.
    table: u64,
}

impl Layout {
    /// Reads the constants; `None` if there are none, or if they describe something unknown.
    fn of(picture: &Picture, modules: &Modules) -> Option<Layout> {
        let library =
            modules.all().find(|of| of.address_of("_thread_db_pthread_dtvp").is_some())?;
        let loader = modules.all().find_map(|of| of.address_of("_rtld_global"))?;
        let field = |name: &str| field(picture, library, name);
        let word = |name: &str| Some(field(name).filter(|field| field.bits == 64)?.offset);
        let size = |name: &str| {
            let address = library.address_of(&format!("_thread_db_sizeof_{name}"))?;
            Some(u64::from(number(picture, address)?))
        };
        if field("dtv_dtv")?.bits != ENTRY as u32 * 8 || word("dtv_t_pointer_val")? != 0 {
            return None;
        }
        let table = word("pthread_dtvp")?;
        // The thread pointer is the start of the description of the thread, or its end.
        let before = if cfg!(target_arch = "x86_64") { 0 } else { size("pthread")? };
        Some(Layout {
            list: loader.wrapping_add(word("rtld_global__dl_tls_dtv_slotinfo_list")?),
            length: word("dtv_slotinfo_list_len")?,
            next: word("dtv_slotinfo_list_next")?,
            modules: field("dtv_slotinfo_list_slotinfo")?.offset,
            module_bytes: size("dtv_slotinfo")?,
            generation: word("dtv_slotinfo_gen")?,
            description: word("dtv_slotinfo_map")?,
            table: table.wrapping_sub(before),
        })
    }
}

/// Reads a constant that describes a field.
fn field(picture: &Picture, library: &Module, name: &str) -> Option<Field> {
    let address = library.address_of(&format!("_thread_db_{name}"))?;
    let [bits, offset] = [0, 8].map(|at| number(picture, address + at));
    Some(Field { bits: bits?, offset: u64::from(offset?) })
}

fn number(picture: &Picture, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    (picture.read(address, &mut bytes) == bytes.len()).then(|| u32::from_ne_bytes(bytes))
}

fn word(picture: &Picture, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (picture.read(address, &mut bytes) == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}

/// A module with thread-local variables.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Numbered {
    number: u64,
    /// Changes of the loader's list until it was added.
    generation: u64,
    path: String,
}

/// The table of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    /// The address of its address, in the description of the thread.
    pub(crate) at: u64,
    /// Its own address.
    pub(crate) start: u64,
    /// Its range.
    pub(crate) range: (u64, u64),
}

/// The thread-local variables of a module in a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Locals {
    /// Their range.
    pub(crate) range: (u64, u64),
    /// The name of the file of the module.
    pub(crate) file: String,
}

/// The modules with thread-local variables of a process, and where its threads have their tables.
pub(crate) struct DynamicTls<'a> {
    picture: &'a Picture,
    modules: &'a Modules,
    found: Option<(Layout, Vec<Numbered>)>,
}

impl<'a> DynamicTls<'a> {
    /// Finds them.
    pub(crate) fn of(picture: &'a Picture, modules: &'a Modules) -> DynamicTls<'a> {
        let layout = Layout::of(picture, modules);
        let found = layout.map(|layout| (layout, numbered(picture, &layout)));
        DynamicTls { picture, modules, found }
    }

    /// Returns the table of the thread with this thread pointer.
    pub(crate) fn table(&self, thread_pointer: u64) -> Option<Table> {
        let (layout, _) = self.found.as_ref()?;
        let at = thread_pointer.wrapping_add(layout.table);
        let start = word(self.picture, at).filter(|start| *start >= ENTRY && start % 8 == 0)?;
        let length = word(self.picture, start - ENTRY).filter(|length| *length <= MODULES_MAX)?;
        // Before the first entry is the length, and the first one has the changes that it knows.
        let range = (start - ENTRY, start.checked_add((length + 1) * ENTRY)?);
        Some(Table { at, start, range })
    }

    /// Returns the variables of each module in a thread.
    pub(crate) fn locals(&self, table: &Table) -> Vec<Locals> {
        let Some((_, numbered)) = &self.found else { return Vec::new() };
        let known = word(self.picture, table.start).unwrap_or(0);
        // The entry of a module that is newer than the table is that of another one.
        let numbered = numbered.iter().filter(|module| module.generation <= known);
        let locals = |module: &Numbered| {
            let at = table.start.checked_add(module.number.checked_mul(ENTRY)?)?;
            let start = word(self.picture, at).filter(|_| at < table.range.1)?;
            let of = self.modules.get(&module.path)?;
            let end = start.checked_add(of.thread_local.0)?;
            let is_there = start != 0 && start != UNALLOCATED && end > start;
            is_there.then(|| Locals { range: (start, end), file: of.file.to_string() })
        };
        numbered.filter_map(locals).collect()
    }
}

/// Reads the loader's list.
fn numbered(picture: &Picture, layout: &Layout) -> Vec<Numbered> {
    let word = |address: u64| word(picture, address);
    let mut all = Vec::new();
    let mut part = word(layout.list).unwrap_or(0);
    let mut first = 0;
    for _ in 0..PARTS_MAX {
        let Some(length) = word(part.wrapping_add(layout.length)).filter(|_| part != 0) else {
            break;
        };
        if first + length > MODULES_MAX {
            break;
        }
        for index in 0..length {
            let at = part.wrapping_add(layout.modules).wrapping_add(index * layout.module_bytes);
            let description = word(at.wrapping_add(layout.description)).unwrap_or(0);
            if description == 0 {
                continue; // unloaded
            }
            let generation = word(at.wrapping_add(layout.generation));
            let dynamic = word(description.wrapping_add(DYNAMIC_SECTION));
            let path = dynamic.and_then(|address| path_at(picture, address));
            if let (Some(generation), Some(path)) = (generation, path) {
                all.push(Numbered { number: first + index, generation, path });
            }
        }
        first += length;
        part = word(part.wrapping_add(layout.next)).unwrap_or(0);
    }
    all
}

/// Returns the path of the file that is mapped at an address.
fn path_at(picture: &Picture, address: u64) -> Option<String> {
    let after = picture.mappings.partition_point(|mapping| mapping.low <= address);
    let mapping = picture.mappings[..after].last()?;
    let is_file = address < mapping.high && mapping.path.starts_with('/');
    is_file.then(|| mapping.path.clone())
}
