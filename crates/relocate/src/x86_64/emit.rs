//! Writes moved instructions.

use super::decode::Instruction;
use super::flow::{Flow, INSTRUCTION_BYTES_MAX};
use crate::moved::{Moved, STUB_BYTES, stub};
use crate::unmovable::Unmovable;

/// Bytes of a jump to an address within 2 GiB.
pub const JUMP_BYTES: usize = 5;
/// The maximal distance of a jump's target.
pub const REACH: u64 = 2 << 30;
/// `push qword ptr [rip + …]` of the record, which is stored after the target address.
const PUSH_RECORD: [u8; 6] = [0xff, 0x35, 14, 0, 0, 0];
/// `jmp qword ptr [rip]`
const INDIRECT_JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];

/// Returns the instruction that jumps from one address to another; `None` if that is out of reach.
pub fn jump(from: u64, to: u64) -> Option<[u8; JUMP_BYTES]> {
    let by = distance(from.wrapping_add(JUMP_BYTES as u64), to)?.to_le_bytes();
    Some([0xe9, by[0], by[1], by[2], by[3]])
}

/// Returns code that jumps to any address, for the entry of a moved function.
pub fn jump_far(target: u64, _: &Moved) -> [u8; STUB_BYTES] {
    stub(&[&INDIRECT_JUMP, &target.to_ne_bytes()])
}

/// Like `jump_far`, to a body that gets `record` on the stack, above the return address, and all
/// registers unchanged.
pub fn pass(record: u64, body: u64, _: &Moved) -> [u8; STUB_BYTES] {
    stub(&[&PUSH_RECORD, &INDIRECT_JUMP, &body.to_ne_bytes(), &record.to_ne_bytes()])
}

fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}

/// Writes instructions for an address.
pub struct Writer {
    moved: Moved,
    to: u64,
}

impl Writer {
    pub fn new(to: u64) -> Writer {
        Writer { moved: Moved::nothing(), to }
    }

    pub fn finish(mut self, patch_at: usize) -> Moved {
        self.moved.patch_at = patch_at;
        self.moved
    }

    /// Writes an instruction that was followed by the address `next`. Returns whether execution
    /// never continues after it.
    pub fn write(&mut self, instruction: &Instruction<'_>, next: u64) -> Result<bool, Unmovable> {
        match instruction.flow() {
            Flow::Jump(by) => self.jump(next.wrapping_add(by as u64)).map(|()| true),
            Flow::Branch(by, condition) => {
                self.branch(condition, next.wrapping_add(by as u64)).map(|()| false)
            }
            Flow::Call(by) => self.call(next.wrapping_add(by as u64), next).map(|()| true),
            Flow::Loop(_) | Flow::IndirectCall => Err(Unmovable::Instruction),
            Flow::Ends => self.copy(instruction, next).map(|()| true),
            Flow::Next => self.copy(instruction, next).map(|()| false),
        }
    }

    pub fn jump(&mut self, target: u64) -> Result<(), Unmovable> {
        let jump = jump(self.here(), target).ok_or(Unmovable::OutOfReach)?;
        self.moved.push(&jump)
    }

    fn branch(&mut self, condition: u8, target: u64) -> Result<(), Unmovable> {
        const LENGTH: u64 = 6;
        let by = distance(self.here().wrapping_add(LENGTH), target);
        let by = by.ok_or(Unmovable::OutOfReach)?;
        self.moved.push(&[0x0f, 0x80 | condition])?;
        self.moved.push(&by.to_le_bytes())
    }

    /// A call must return to its original address, which the unwinder and the called function know.
    /// The address is pushed from a word after the jump, and the moved code ends here.
    fn call(&mut self, target: u64, returns_to: u64) -> Result<(), Unmovable> {
        self.moved.pushes_return = true;
        self.moved.push(&[0xff, 0x35])?; // push qword ptr [rip + JUMP_BYTES]
        self.moved.push(&(JUMP_BYTES as u32).to_le_bytes())?;
        self.jump(target)?;
        self.moved.push(&returns_to.to_le_bytes())
    }

    fn copy(&mut self, instruction: &Instruction<'_>, next: u64) -> Result<(), Unmovable> {
        let mut bytes = [0u8; INSTRUCTION_BYTES_MAX];
        let length = instruction.length();
        let bytes = bytes.get_mut(..length).ok_or(Unmovable::Unknown)?;
        bytes.copy_from_slice(instruction.bytes());
        if let Some(by) = instruction.relative().map_err(|()| Unmovable::Instruction)? {
            let at = instruction.relative_at(by).ok_or(Unmovable::Instruction)?;
            let target = next.wrapping_add(by as u64);
            let moved = distance(self.here().wrapping_add(length as u64), target);
            let moved = moved.ok_or(Unmovable::OutOfReach)?;
            let field = bytes.get_mut(at..at + 4).ok_or(Unmovable::Instruction)?;
            field.copy_from_slice(&moved.to_le_bytes());
        }
        self.moved.push(bytes)
    }

    fn here(&self) -> u64 {
        self.to.wrapping_add(self.moved.length() as u64)
    }
}
