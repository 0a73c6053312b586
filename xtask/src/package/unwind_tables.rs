//! Removes unwind tables from static programs that abort on a panic.
//!
//! rustc writes them for functions with clean-up code even with `-Cforce-unwind-tables=no`. They
//! are an eighth of a program, and nothing reads them.

use std::path::Path;
use std::process::Command;

use crate::commands::run;

/// The sections with the tables.
const SECTIONS: [&str; 3] = [".eh_frame", ".eh_frame_hdr", ".gcc_except_table"];

/// Types of program headers, and offsets of their fields: the ELF specification, for 64 bits.
const PT_NULL: u32 = 0;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_STACK: u32 = 0x6474_e551;
const P_MEMSZ: usize = 40;
const PHDR_BYTES: usize = 56;
const E_PHOFF: usize = 32;
const E_PHNUM: usize = 56;

/// Writes a copy of a program without its unwind tables.
///
/// # Errors
///
/// `objcopy` fails, or a file cannot be read or written.
pub fn remove(program: &Path, copy: &Path) -> Result<(), String> {
    let mut objcopy = Command::new("objcopy");
    SECTIONS.iter().for_each(|section| _ = objcopy.args(["--remove-section", section]));
    run(objcopy.arg(program).arg(copy))?;
    let read = |file: &Path| std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()));
    let mut bytes = read(copy)?;
    correct(&mut bytes, &read(program)?)
        .ok_or_else(|| format!("{}: not a 64-bit ELF file", copy.display()))?;
    std::fs::write(copy, bytes).map_err(|e| format!("{}: {e}", copy.display()))
}

/// Removes the reference to the tables from the program headers, and restores the stack size of
/// threads, which objcopy sets to 0. Returns `None` if the file is truncated.
fn correct(copy: &mut [u8], program: &[u8]) -> Option<()> {
    let stack_bytes = headers(program)?
        .into_iter()
        .find(|at| type_at(program, *at) == Some(PT_GNU_STACK))
        .and_then(|at| program.get(at + P_MEMSZ..at + P_MEMSZ + 8))?;
    for at in headers(copy)? {
        match type_at(copy, at)? {
            PT_GNU_EH_FRAME => copy.get_mut(at..at + 4)?.copy_from_slice(&PT_NULL.to_le_bytes()),
            PT_GNU_STACK => {
                copy.get_mut(at + P_MEMSZ..)?.get_mut(..8)?.copy_from_slice(stack_bytes)
            }
            _ => {}
        }
    }
    Some(())
}

/// Returns the offsets of the program headers.
fn headers(elf: &[u8]) -> Option<Vec<usize>> {
    let start = u64::from_le_bytes(elf.get(E_PHOFF..E_PHOFF + 8)?.try_into().ok()?) as usize;
    let count = u16::from_le_bytes(elf.get(E_PHNUM..E_PHNUM + 2)?.try_into().ok()?);
    Some((0..usize::from(count)).map(|i| start + i * PHDR_BYTES).collect())
}

fn type_at(elf: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an ELF header followed by program headers of these types and sizes in memory.
    fn elf(headers: &[(u32, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[E_PHOFF] = 64;
        bytes[E_PHNUM] = headers.len() as u8;
        for (kind, size) in headers {
            let mut header = [0; PHDR_BYTES];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[P_MEMSZ..P_MEMSZ + 8].copy_from_slice(&size.to_le_bytes());
            bytes.extend(header);
        }
        bytes
    }

    #[test]
    fn the_stack_size_is_kept_and_the_tables_are_not_referred_to() {
        let program = elf(&[(1, 9), (PT_GNU_EH_FRAME, 7), (PT_GNU_STACK, 1 << 24)]);
        let mut copy = elf(&[(1, 8), (PT_GNU_EH_FRAME, 0), (PT_GNU_STACK, 0)]);
        correct(&mut copy, &program).expect("an ELF file");
        assert!(copy == elf(&[(1, 8), (PT_NULL, 0), (PT_GNU_STACK, 1 << 24)]));
        assert!(correct(&mut copy[..70], &program).is_none());
    }
}
