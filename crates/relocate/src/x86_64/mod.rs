//! x86-64: instructions have one to fifteen bytes, and the jump may overwrite several.

mod decode;
mod emit;
mod flow;
#[cfg(test)]
mod tests;

pub use emit::{JUMP_BYTES, REACH, jump, jump_far, pass};

use crate::moved::Moved;
use crate::unmovable::Unmovable;
use decode::Instruction;
use emit::Writer;
use flow::Flow;

/// `endbr64`, the only valid target of indirect jumps if the processor checks branch targets.
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `int3`, which debuggers write over instructions, and linkers between functions.
const BREAKPOINT: u8 = 0xcc;

/// Moves the start of a function to the address `to`.
///
/// `code` has the bytes of the function, which starts at `address` and has `size` bytes, and of the
/// code after it up to the next function, as far as that is known.
pub fn relocate(code: &[u8], size: usize, address: u64, to: u64) -> Result<Moved, Unmovable> {
    let size = size.min(code.len());
    let patch = if code.starts_with(&ENDBR) { ENDBR.len() } else { 0 };
    let mut writer = Writer::new(to);
    let mut at = patch;
    let mut ends = false;
    while at < patch + JUMP_BYTES && !ends {
        if at >= size {
            return Err(Unmovable::TooShort);
        }
        if code[at] == BREAKPOINT {
            return Err(Unmovable::Instruction); // a debugger's breakpoint
        }
        let instruction = Instruction::decode(&code[at..size]).ok_or(Unmovable::Unknown)?;
        let next = address.wrapping_add((at + instruction.length()) as u64);
        ends = writer.write(&instruction, next)?;
        at += instruction.length();
    }
    if at < patch + JUMP_BYTES && (at < size || !is_padding(code, at, patch + JUMP_BYTES)) {
        return Err(Unmovable::TooShort);
    }
    if jumps_below(&code[..size], at)? {
        return Err(Unmovable::JumpInside);
    }
    if !ends {
        writer.jump(address.wrapping_add(at as u64))?;
    }
    Ok(writer.finish(patch))
}

/// Returns whether `from..to` contains only instructions that are never executed.
fn is_padding(code: &[u8], from: usize, to: usize) -> bool {
    let mut at = from;
    while at < to {
        let Some(rest) = code.get(at..) else {
            return false;
        };
        at += match rest.first() {
            Some(&BREAKPOINT) => 1,
            _ => match Instruction::decode(rest) {
                Some(instruction) if instruction.is_nop() => instruction.length(),
                _ => return false,
            },
        };
    }
    true
}

/// Returns whether an instruction of the function jumps to one of its first `below` bytes.
///
/// Errors: an instruction is unknown.
fn jumps_below(code: &[u8], below: usize) -> Result<bool, Unmovable> {
    let mut at = 0;
    while at < code.len() {
        let instruction = Instruction::decode(&code[at..]).ok_or(Unmovable::Unknown)?;
        at += instruction.length();
        if let Flow::Jump(by) | Flow::Branch(by, _) | Flow::Loop(by) = instruction.flow() {
            let target = (at as i64).wrapping_add(by);
            if (0..below as i64).contains(&target) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
