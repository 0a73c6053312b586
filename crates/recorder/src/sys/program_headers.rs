//! Program headers of loaded files.

use crate::sys::executed;
use crate::sys::object::LinkMap;
use crate::sys::range::Range;

/// A program header (`Elf64_Phdr`).
#[repr(C)]
pub struct ProgramHeader {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub vaddr: u64,
    pub paddr: u64,
    pub filesz: u64,
    pub memsz: u64,
    pub align: u64,
}

/// The kind of a loaded segment, and its flag for writable memory.
pub const PT_LOAD: u32 = 1;
const PF_W: u32 = 2;

/// Returns the initialised writable data of a loaded library whose file begins with its first
/// segment, as linkers write it.
pub fn writable_data(map: &LinkMap) -> Option<Range> {
    initialised(map.address(), of_library(map)?)
}

/// Returns the initialised writable data of a program: that of a static one contains its library's.
/// `map` is the executable.
pub fn writable_data_of_program(map: &LinkMap) -> Option<Range> {
    let [at, count] = executed::program_headers()?;
    // SAFETY: the kernel's description of the executed program, whose headers stay mapped.
    let headers =
        unsafe { core::slice::from_raw_parts(at as *const ProgramHeader, count as usize) };
    initialised(map.address(), headers)
}

fn initialised(base: u64, headers: &[ProgramHeader]) -> Option<Range> {
    let data = headers.iter().find(|h| h.kind == PT_LOAD && h.flags & PF_W != 0)?;
    let low = base + data.vaddr;
    Some(Range { low, high: low + data.filesz })
}

fn of_library(map: &LinkMap) -> Option<&'static [ProgramHeader]> {
    let base = map.address() as *const u8;
    // SAFETY: the beginning of a loaded library is its ELF64 header: e_phoff at 32, e_phnum at 56.
    unsafe {
        if base.is_null() || *base.cast::<[u8; 4]>() != *b"\x7fELF" {
            return None;
        }
        let offset = *base.add(32).cast::<u64>() as usize;
        let count = *base.add(56).cast::<u16>() as usize;
        Some(core::slice::from_raw_parts(base.add(offset).cast::<ProgramHeader>(), count))
    }
}
