//! Loaded code and memory ranges. They are read from `/proc/self/maps` when a pc or a stack pointer
//! is not in a known range. This needs no list to maintain and no lock of the loader, and finds
//! late and hidden loads like all others.

use crate::store::budgets::MODULES_MAX;
use crate::store::file_tables::{FileTables, Room};
use crate::store::ids::StringId;
use crate::store::names::hash_bytes;
use crate::store::profile::{self, Cursor};
use crate::store::rules;
use crate::store::shared::{Store, store};
use crate::sys::confined;
use crate::sys::kernel::{self, Path};
use crate::sys::locked::{Guarded, Locked};
use crate::sys::maps::{Mapping, each_mapping, kept_path};
use crate::sys::memory::{self, InChild};
use crate::sys::program_headers::{PT_LOAD, ProgramHeader};
use crate::sys::range::Range;
use crate::sys::wiped::Wiped;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use heaptide_format::shared::{Module, Word};
use heaptide_format::{Kind, Loss, PAGE};
use heaptide_unwind::cache;
use heaptide_unwind::rule::Step;
use heaptide_unwind::table;
pub use heaptide_unwind::table::{Sections, function_at};

/// Maximum number of ranges of generated code that are remembered between loads.
const GENERATED: usize = 16;

/// The data of a module that unwinding needs.
#[repr(C)]
struct Loaded {
    range: Range,
    base: u64,
    inode: u64,
    code: Segment,
    header: Range,
    frames: Range,
    record: &'static Module,
    /// A hash that differs between versions of a file ([`Elf::fingerprint`]).
    fingerprint: u64,
    unloaded: AtomicU32,
    /// One of [`UNREAD`], [`ABSENT`] and [`READ`]: whether the next field is valid.
    file_tables_state: AtomicU32,
    file_tables: Guarded<FileTables>,
}

const UNREAD: u32 = 0;
const ABSENT: u32 = 1;
const READ: u32 = 2;

/// All modules found so far. All zeros: none.
pub struct Modules {
    table: AtomicPtr<Loaded>,
    count: AtomicU32,
    /// Number of calls of dlopen and dlclose.
    pub loads: AtomicU32,
    generated_loads: AtomicU32,
    generated_next: AtomicU32,
    generated: [Guarded<Range>; GENERATED],
    records: Locked<Cursor>,
    file_tables: Room,
}

// SAFETY: all zeros is a valid value: no modules.
#[unsafe(link_section = ".bss.wiped")]
static MODULES: Wiped<Modules> = unsafe { Wiped::new() };

/// Returns the modules of this process.
pub fn modules() -> &'static Modules {
    MODULES.get()
}

/// Makes forked children start without modules.
pub fn wipe_in_children() {
    MODULES.wipe_in_children();
}

/// The kind of code at an address.
pub enum Code {
    /// A module, by index, with its unwind sections.
    Module(u16, Sections<'static>),
    /// A module without unwind sections.
    Bare(u16),
    /// Executable memory that no file backs: code generated at run time.
    Generated,
    /// No executable memory.
    Nothing,
}

impl Modules {
    /// Returns the kind of code at `pc`. `buffer` is used to read maps.
    pub fn code_at(&self, pc: u64, buffer: &mut [u8]) -> Code {
        if let Some(code) = self.known(pc) {
            return code;
        }
        let p = store();
        if !confined::may_call() {
            return Code::Nothing;
        }
        let Some(mut records) = self.records.acquire_patiently() else {
            return Code::Nothing;
        };
        // Another thread may have added it in the meantime.
        if let Some(code) = self.known(pc) {
            return code;
        }
        let mapping = self.scan(p, &mut records, pc, buffer);
        if let Some(code) = self.known(pc) {
            return code;
        }
        match mapping {
            Some(range) => {
                self.remember_generated(range);
                Code::Generated
            }
            None => Code::Nothing,
        }
    }

    /// Returns the step at `pc`, which is in module `index`, by the unwind tables in its file.
    /// `buffer` is used for its path.
    pub fn step_in_file(&self, index: u16, pc: u64, buffer: &mut [u8]) -> Option<Step> {
        let module = self.all().get(usize::from(index).checked_sub(1)?)?;
        if module.file_tables_state.load(Acquire) == UNREAD && confined::may_call() {
            let _held = self.records.acquire_patiently()?;
            if module.file_tables_state.load(Relaxed) == UNREAD {
                module.read_file_tables(&self.file_tables, buffer);
            }
        }
        if module.file_tables_state.load(Acquire) != READ {
            return None;
        }
        // SAFETY: written before the state, and not after.
        let tables = unsafe { &*module.file_tables.0.get() };
        tables.step_at(pc.wrapping_sub(module.record.bias.get()))
    }

    /// Adds all modules that are loaded now.
    pub fn list_all(&self, p: &Store) {
        let mut buffer = [0u8; 16 << 10];
        if let Some(mut records) = self.records.acquire_patiently() {
            self.scan(p, &mut records, 0, &mut buffer);
        }
    }

    fn known(&self, pc: u64) -> Option<Code> {
        if let Some((index, module)) = self.find(pc) {
            let index = index as u16 + 1;
            return Some(match module.sections() {
                Some(sections) => Code::Module(index, sections),
                None => Code::Bare(index),
            });
        }
        if self.generated_loads.load(Acquire) != self.loads.load(Relaxed) {
            return None;
        }
        let held = self.generated.iter().any(|range| {
            // SAFETY: plain words; a torn range at worst causes maps to be read again.
            unsafe { (*range.0.get()).holds(pc) }
        });
        held.then_some(Code::Generated)
    }

    fn all(&self) -> &'static [Loaded] {
        let table = self.table.load(Acquire);
        if table.is_null() {
            return &[];
        }
        // SAFETY: entries below the count are complete and never move.
        unsafe { core::slice::from_raw_parts(table, self.count.load(Acquire) as usize) }
    }

    fn find(&self, pc: u64) -> Option<(usize, &'static Loaded)> {
        let modules = self.all().iter().enumerate().rev();
        modules.filter(|(_, m)| m.unloaded.load(Relaxed) == 0).find(|(_, m)| m.range.holds(pc))
    }

    /// Returns where the pages of the module at an address end, including its zeroed data; none if
    /// no known module is there.
    pub fn end_at(&self, address: u64) -> Option<u64> {
        self.find(address).map(|(_, module)| module.range.high.next_multiple_of(PAGE))
    }

    fn remember_generated(&self, range: Range) {
        let loads = self.loads.load(Relaxed);
        if self.generated_loads.swap(loads, Relaxed) != loads {
            for old in &self.generated {
                // SAFETY: under the modules' lock.
                unsafe { *old.0.get() = Range::EMPTY };
            }
        }
        let slot = self.generated_next.fetch_add(1, Relaxed) as usize % GENERATED;
        // SAFETY: under the modules' lock.
        unsafe { *self.generated[slot].0.get() = range };
    }

    /// Adds the executable files that are mapped. Returns the executable mapping that contains `pc`
    /// if it belongs to no module.
    fn scan(&self, p: &Store, records: &mut Cursor, pc: u64, buffer: &mut [u8]) -> Option<Range> {
        let mut base = (0, 0, 0);
        let mut other = None;
        each_mapping(buffer, |m| {
            let m = Mapping { path: kept_path(m.path), ..m };
            if m.offset == 0 && (m.inode != 0 || m.path == b"[vdso]") && m.readable {
                let before = Range { low: base.0, high: base.2 };
                if base.1 != m.inode || !is_later_segment(before, m.range) {
                    base = (m.range.low, m.inode, m.range.high);
                }
            }
            if m.executable {
                let of_file = m.inode != 0 || m.path == b"[vdso]";
                if of_file && base.1 == m.inode && is_elf(base.0) {
                    self.add(p, records, (base.0, base.2), &m);
                }
                let is_unknown = m.range.holds(pc) && self.find(pc).is_none();
                if is_unknown && !(of_file && self.add_again(p, records, &m)) {
                    other = Some(m.range);
                }
            }
            true
        });
        other
    }

    /// Adds a module unless it is known.
    fn add(&self, p: &Store, records: &mut Cursor, first: (u64, u64), code: &Mapping<'_>) {
        let ((base, first_end), inode) = (first, code.inode);
        let known = |m: &&Loaded| m.unloaded.load(Relaxed) == 0;
        if self.all().iter().filter(known).any(|m| m.base == base && m.inode == inode) {
            return;
        }
        let first = Range { low: base, high: first_end };
        let other = if code.readable { (code.range, code.offset) } else { (first, 0) };
        let Some(elf) = Elf::read(first, other) else {
            return;
        };
        let range = Range { low: base, high: elf.end.max(code.range.high) };
        // Modules that overlap were unloaded without a call that the recorder noticed.
        for old in self.all().iter().filter(known) {
            if old.range.low < range.high && range.low < old.range.high {
                retire(p, old);
            }
        }
        if !self.revive(p, range, &elf, code) && !self.push(records, base, range, &elf, code) {
            p.lost(Loss::NoModule);
        }
    }

    /// Makes a module that was unloaded known again, if the same file was loaded at the same
    /// address: a program that loads and unloads a library all the time gets no new entries, and
    /// no new stacks. Returns whether there was one.
    fn revive(&self, p: &Store, range: Range, elf: &Elf, code: &Mapping<'_>) -> bool {
        let fingerprint = elf.fingerprint();
        if fingerprint == 0 {
            return false; // versions of the file cannot be distinguished
        }
        let is_same = |old: &&Loaded| {
            let path = StringId::new(old.record.path.get());
            old.unloaded.load(Relaxed) == 1
                && (old.range, old.inode, old.fingerprint) == (range, code.inode, fingerprint)
                && (old.header, old.frames) == (elf.eh_frame_hdr, elf.eh_frame)
                && old.record.bias.get() == elf.bias
                && !path.is_none()
                && path.bytes() == code.path
        };
        let Some(old) = self.all().iter().find(is_same) else {
            return false;
        };
        old.record.unloaded.set(0);
        old.unloaded.store(0, Release);
        p.generation.fetch_add(1, Release);
        true
    }

    /// Returns the string of a path, which modules of the same file share.
    fn path(&self, path: &[u8]) -> StringId {
        let known = self.all().iter().map(|module| StringId::new(module.record.path.get()));
        let mut same = known.filter(|known| !known.is_none() && known.bytes() == path);
        same.next().unwrap_or_else(|| profile::string(path))
    }

    /// Adds code of a known module that the program has mapped a second time, as V8 does with its
    /// builtin functions, to have them close to the code that it generates. Returns whether the
    /// mapping is such code. The copy has no unwind tables, since those of the module hold for the
    /// addresses of the original.
    fn add_again(&self, p: &Store, records: &mut Cursor, code: &Mapping<'_>) -> bool {
        let is_known = |m: &&Loaded| m.unloaded.load(Relaxed) == 0 && m.inode == code.inode;
        let modules = self.all().iter().filter(is_known);
        let mut copied = modules.filter_map(|m| Some((m, m.code.address_at(code.offset)?)));
        let Some((module, address)) = copied.next() else {
            return false;
        };
        let mut build_id = [0; 24];
        for (byte, stored) in build_id.iter_mut().zip(&module.record.build_id) {
            *byte = stored.get();
        }
        let elf = Elf {
            bias: code.range.low.wrapping_sub(address),
            end: code.range.high,
            code: Segment::default(),
            eh_frame_hdr: Range::EMPTY,
            eh_frame: Range::EMPTY,
            build_id,
            build_id_length: module.record.build_id_length.get(),
        };
        if !self.push(records, code.range.low, code.range, &elf, code) {
            p.lost(Loss::NoModule);
        }
        true
    }

    fn push(
        &self,
        records: &mut Cursor,
        base: u64,
        range: Range,
        elf: &Elf,
        code: &Mapping<'_>,
    ) -> bool {
        let index = self.count.load(Relaxed) as usize;
        if self.table.load(Relaxed).is_null() {
            let table = memory::take(MODULES_MAX * size_of::<Loaded>(), InChild::Nothing);
            if table.is_null() {
                return false;
            }
            self.table.store(table as *mut Loaded, Relaxed);
        }
        if index >= MODULES_MAX {
            return false;
        }
        let path = self.path(code.path);
        let Some(record) = records.record::<Module>(Kind::Modules, 0) else {
            return false;
        };
        record.start.set(range.low);
        record.end.set(range.high);
        record.bias.set(elf.bias);
        record.path.set(path.number());
        record.index.set(index as u32 + 1);
        for (byte, value) in record.build_id.iter().zip(elf.build_id) {
            byte.set(value);
        }
        record.build_id_length.set(elf.build_id_length);
        records.commit_record(record);
        let module = Loaded {
            range,
            base,
            inode: code.inode,
            code: elf.code,
            header: elf.eh_frame_hdr,
            frames: elf.eh_frame,
            record,
            fingerprint: elf.fingerprint(),
            unloaded: AtomicU32::new(0),
            file_tables_state: AtomicU32::new(UNREAD),
            file_tables: Guarded(UnsafeCell::new(FileTables::default())),
        };
        // SAFETY: an entry of the table beyond the count, which no thread reads.
        unsafe { self.table.load(Relaxed).wrapping_add(index).write(module) };
        self.count.store(index as u32 + 1, Release);
        true
    }

    /// Forgets modules that are no longer mapped. Called after dlclose.
    pub fn drop_unmapped(&self, p: &Store, buffer: &mut [u8]) {
        let Some(_held) = self.records.acquire_patiently() else {
            return;
        };
        const KEPT: u32 = 2;
        let all = self.all();
        each_mapping(buffer, |m| {
            let same = |l: &&Loaded| l.base == m.range.low && l.inode == m.inode;
            if let Some(kept) = all.iter().filter(same).find(|l| l.unloaded.load(Relaxed) == 0) {
                kept.unloaded.store(KEPT, Relaxed);
            }
            true
        });
        for module in all {
            match module.unloaded.load(Relaxed) {
                KEPT => module.unloaded.store(0, Relaxed),
                0 => retire(p, module),
                _ => {}
            }
        }
    }
}

/// Marks a module as unloaded, and drops its unwind rules and the kept stacks that contain it.
fn retire(p: &Store, module: &Loaded) {
    module.unloaded.store(1, Relaxed);
    module.record.unloaded.set(1);
    cache::forget(rules::newest(p), module.range.low, module.range.high);
    p.generation.fetch_add(1, Release);
}

impl Loaded {
    /// Reads the tables in the module's file. The caller holds the modules' lock.
    fn read_file_tables(&self, room: &Room, buffer: &mut [u8]) {
        let path = StringId::new(self.record.path.get());
        let text = if self.inode == 0 || path.is_none() { b"" } else { path.bytes() };
        let mut state = ABSENT;
        if let Some(copy) = buffer.get_mut(..=text.len()).filter(|_| text.first() == Some(&b'/')) {
            copy[..text.len()].copy_from_slice(text);
            copy[text.len()] = 0;
            let tables = Path::new(copy).and_then(|path| FileTables::read(path, self.inode, room));
            if let Some(tables) = tables {
                // SAFETY: no thread reads it before the state.
                unsafe { *self.file_tables.0.get() = tables };
                state = READ;
            }
        }
        self.file_tables_state.store(state, Release);
    }

    fn sections(&self) -> Option<Sections<'static>> {
        if self.frames == Range::EMPTY {
            return None;
        }
        // SAFETY: both lie in readable segments of a module that is loaded. A program that unloads
        // a module while it runs code of it crashes anyway.
        let bytes = |r: Range| unsafe {
            core::slice::from_raw_parts(r.low as *const u8, (r.high - r.low) as usize)
        };
        Some(Sections {
            header: bytes(self.header),
            header_address: self.header.low,
            frames: bytes(self.frames),
            frames_address: self.frames.low,
        })
    }
}

/// The data read from the program headers of a loaded file.
struct Elf {
    bias: u64,
    end: u64,
    code: Segment,
    eh_frame_hdr: Range,
    eh_frame: Range,
    build_id: [u8; 24],
    build_id_length: u32,
}

impl Elf {
    /// Returns a hash of the build-id. Without one, of the table of functions, which differs
    /// between versions of a file unless all functions have the same addresses.
    fn fingerprint(&self) -> u64 {
        /// The most bytes of the table that are read: the addresses of 32,768 functions.
        const TABLE_MAX: u64 = 256 << 10;
        let length = self.build_id_length as usize;
        if length > 0 {
            return hash_bytes(&self.build_id[..length.min(self.build_id.len())], 0);
        }
        let Range { low, high } = self.eh_frame_hdr;
        if low == 0 || low >= high {
            return 0;
        }
        let bytes = (high - low).min(TABLE_MAX) as usize;
        // SAFETY: a readable segment of a module that is loaded, as for [`Loaded::sections`].
        hash_bytes(unsafe { core::slice::from_raw_parts(low as *const u8, bytes) }, 1)
    }
}

/// An executable segment as a range of its file; empty for code that is mapped a second time.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Segment {
    offset: u64,
    length: u64,
    address: u64,
}

impl Segment {
    /// Returns the link-time address of an offset in the file.
    fn address_at(&self, offset: u64) -> Option<u64> {
        let inside = offset.checked_sub(self.offset).filter(|&inside| inside < self.length)?;
        Some(self.address.wrapping_add(inside))
    }
}

/// Returns whether a readable mapping begins with an ELF header of this machine's class. Pages of a
/// mapping beyond the end of its file cannot be read: JIT compilers map `jit-PID.dump` before they
/// write it.
fn is_elf(base: u64) -> bool {
    const MAGIC: [u8; 5] = *b"\x7fELF\x02";
    let mut start = [0; MAGIC.len()];
    match kernel::try_read_own(base, &mut start) {
        _ if base == 0 => false,
        Ok(length) => length == start.len() && start == MAGIC,
        Err(kernel::EFAULT) => false,
        // SAFETY: `base` is the start of a mapping that maps lists as readable; a page contains a
        // header.
        Err(_) => unsafe { *(base as *const [u8; MAGIC.len()]) == MAGIC },
    }
}

/// Returns whether a mapping of the first bytes of a file is a later segment of the file whose
/// beginning is mapped at `first`. lld lets a segment begin in the page in which the previous one
/// ends: where all contents before the code are smaller than a page, the code is mapped from the
/// beginning of the file.
fn is_later_segment(first: Range, mapping: Range) -> bool {
    if !is_elf(first.low) {
        return false;
    }
    let headers = program_headers(first, (first, 0)).unwrap_or_default();
    let mut loads = headers.iter().filter(|h| h.kind == PT_LOAD);
    let Some(bias) = loads.next().map(|load| first.low.wrapping_sub(load.vaddr & !4095)) else {
        return false;
    };
    loads.any(|h| h.offset < PAGE && mapping.holds(bias.wrapping_add(h.vaddr)))
}

impl Elf {
    /// Reads the headers of a file whose beginning is mapped at `first`. `other` is another
    /// readable mapping of it, with its offset in the file.
    fn read(first: Range, other: (Range, u64)) -> Option<Elf> {
        const PT_NOTE: u32 = 4;
        const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
        const EXECUTABLE: u32 = 1;
        let headers = program_headers(first, other)?;
        let load = headers.iter().find(|h| h.kind == PT_LOAD)?;
        let bias = first.low.wrapping_sub(load.vaddr & !4095);
        let mut elf = Elf {
            bias,
            end: 0,
            code: Segment::default(),
            eh_frame_hdr: Range::EMPTY,
            eh_frame: Range::EMPTY,
            build_id: [0; 24],
            build_id_length: 0,
        };
        // The readable segment that contains an address. Only addresses in one may be read.
        let segment = |address: u64| {
            headers.iter().filter(|h| h.kind == PT_LOAD && h.flags & 4 != 0).find_map(|h| {
                let low = bias.wrapping_add(h.vaddr);
                let range = Range { low, high: low.wrapping_add(h.filesz) };
                range.holds(address).then_some(range)
            })
        };
        for h in headers {
            let at = bias.wrapping_add(h.vaddr);
            let end = at.wrapping_add(h.memsz);
            let readable = segment(at).is_some_and(|s| end <= s.high);
            match h.kind {
                PT_LOAD => {
                    elf.end = elf.end.max(end);
                    if h.flags & EXECUTABLE != 0 && h.filesz > elf.code.length {
                        let (offset, length, address) = (h.offset, h.filesz, h.vaddr);
                        elf.code = Segment { offset, length, address };
                    }
                }
                PT_NOTE if readable => elf.find_build_id(at, end),
                PT_GNU_EH_FRAME if readable => {
                    elf.eh_frame_hdr = Range { low: at, high: end };
                    // SAFETY: in a readable segment.
                    let bytes = unsafe {
                        core::slice::from_raw_parts(at as *const u8, (end - at) as usize)
                    };
                    let frames = table::frames_address(bytes, at);
                    if let Some((low, s)) = frames.and_then(|f| Some((f, segment(f)?))) {
                        elf.eh_frame = Range { low, high: s.high };
                    }
                }
                _ => {}
            }
        }
        Some(elf)
    }

    fn find_build_id(&mut self, mut at: u64, end: u64) {
        const NT_GNU_BUILD_ID: u32 = 3;
        while at + 16 <= end {
            // SAFETY: at..end is in a readable segment; a note consists of three sizes, a name and
            // a body, padded to 4.
            let [name, body, kind, owner] = unsafe { *(at as *const [u32; 4]) };
            let body_at = at + 12 + (name as u64).next_multiple_of(4);
            let next = body_at + (body as u64).next_multiple_of(4);
            if next > end {
                return;
            }
            if kind == NT_GNU_BUILD_ID && name == 4 && owner == u32::from_le_bytes(*b"GNU\0") {
                let n = (body as usize).min(self.build_id.len());
                // SAFETY: `next` is within the segment.
                let bytes = unsafe { core::slice::from_raw_parts(body_at as *const u8, n) };
                self.build_id[..n].copy_from_slice(bytes);
                self.build_id_length = n as u32;
                return;
            }
            at = next;
        }
    }
}

/// Returns the program headers. They are in the first mapping of the file, or in that of its code,
/// where tools that rewrite linked files (BOLT) put them.
fn program_headers(
    first: Range,
    (other, other_offset): (Range, u64),
) -> Option<&'static [ProgramHeader]> {
    const ELF_HEADER: u64 = 64;
    let base = first.low;
    if first.high - base < ELF_HEADER {
        return None;
    }
    // SAFETY: an ELF64 header is in the mapping: e_phoff at 32, e_phentsize at 54, e_phnum at 56.
    let (offset, entry, count) = unsafe {
        let h = base as *const u8;
        (*(h.add(32) as *const u64), *(h.add(54) as *const u16), *(h.add(56) as *const u16))
    };
    let bytes = count as u64 * size_of::<ProgramHeader>() as u64;
    if offset >= 1 << 32 || offset % 8 != 0 || entry as usize != size_of::<ProgramHeader>() {
        return None;
    }
    let at = [(first, 0), (other, other_offset)].into_iter().find_map(|(mapping, from)| {
        let at = mapping.low + offset.checked_sub(from)?;
        (at + bytes <= mapping.high).then_some(at)
    })?;
    // SAFETY: within a readable mapping, aligned.
    Some(unsafe { core::slice::from_raw_parts(at as *const ProgramHeader, count as usize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(4096))]
    struct Page([u8; 4096]);

    impl Page {
        fn put(&mut self, at: usize, bytes: &[u8]) {
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn range(&self) -> Range {
            let low = self.0.as_ptr() as u64;
            Range { low, high: low + self.0.len() as u64 }
        }
    }

    /// Builds a program header from its kind, flags, address and length.
    fn header(kind: u32, flags: u32, address: u64, length: u64) -> [u8; 56] {
        let mut bytes = [0; 56];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        for (field, value) in [(8, address), (16, address), (32, length), (40, length)] {
            bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// lld maps small code from the beginning of its file, like the headers.
    #[test]
    fn code_in_the_page_of_the_headers_is_a_later_segment() {
        let mut first = Page([0; 4096]);
        first.put(0, b"\x7fELF\x02\x01");
        first.put(32, &0x40u64.to_le_bytes());
        first.put(54, &56u16.to_le_bytes());
        first.put(56, &2u16.to_le_bytes());
        first.put(0x40, &header(1, 4, 0x20_0000, 0xe60));
        first.put(0x40 + 56, &header(1, 5, 0x20_1e60, 0x180));
        first.put(0x40 + 56 + 8, &0xe60u64.to_le_bytes()); // its offset in the file
        let low = first.range().low;
        let page = |n: u64| Range { low: low + n * 4096, high: low + (n + 1) * 4096 };
        assert!(is_later_segment(first.range(), page(1)));
        assert!(!is_later_segment(first.range(), page(2)), "another copy");
        first.put(0x40 + 56 + 8, &0x1e60u64.to_le_bytes());
        assert!(!is_later_segment(first.range(), page(1)), "of another page of the file");
        first.put(0, b"none");
        assert!(!is_later_segment(first.range(), page(1)));
    }

    /// BOLT leaves the ELF header at the beginning of the file and moves the program headers to its
    /// end, into the segment of the new code.
    #[test]
    fn program_headers_in_the_mapping_of_the_code_are_found() {
        const OFFSET: u64 = 0x20_0000;
        let (mut first, mut code) = (Page([0; 4096]), Page([0; 4096]));
        first.put(0, b"\x7fELF\x02\x01");
        first.put(32, &(OFFSET + 0x40).to_le_bytes());
        first.put(54, &56u16.to_le_bytes());
        first.put(56, &2u16.to_le_bytes());
        let note = [4u32, 8, 3, u32::from_le_bytes(*b"GNU\0"), 0x0403_0201, 0x0807_0605];
        first.put(0x100, note.map(u32::to_le_bytes).as_flattened());
        code.put(0x40, &header(1, 4, 0, 4096));
        code.put(0x40 + 56, &header(4, 4, 0x100, 24));
        let elf = Elf::read(first.range(), (code.range(), OFFSET)).expect("the headers");
        assert_eq!((elf.bias, elf.end), (first.range().low, first.range().high));
        assert_eq!(elf.build_id[..elf.build_id_length as usize], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(Elf::read(first.range(), (code.range(), OFFSET + 0x1000)).is_none(), "behind them");
        assert!(Elf::read(first.range(), (code.range(), OFFSET - 0x1000)).is_none(), "before them");
    }
}
