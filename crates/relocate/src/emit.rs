//! Writes moved instructions.

use crate::decode::Instruction;
use crate::flow::{Flow, INSTRUCTION_BYTES_MAX};
use crate::unmovable::Unmovable;

/// Bytes of a jump to an address within 2 GiB.
pub const JUMP_BYTES: usize = 5;
/// The most bytes that a moved beginning can have, the jump back included.
pub const MOVED_BYTES_MAX: usize = 64;

/// A beginning that was moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    code: [u8; MOVED_BYTES_MAX],
    length: usize,
    /// Where in the function the jump goes: 0, or behind `endbr64`.
    pub patch_at: usize,
    /// Whether the code returns to an address that it has pushed, which shadow stacks forbid.
    pub pushes_return: bool,
}

impl Moved {
    /// The instructions, for the address that they were moved to.
    pub fn code(&self) -> &[u8] {
        &self.code[..self.length]
    }
}

/// The instruction that jumps from one address to another; none if that is out of reach.
pub fn jump(from: u64, to: u64) -> Option<[u8; JUMP_BYTES]> {
    let by = distance(from.wrapping_add(JUMP_BYTES as u64), to)?.to_le_bytes();
    Some([0xe9, by[0], by[1], by[2], by[3]])
}

fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}

/// Instructions in the order in which they are written, for an address.
pub struct Writer {
    moved: Moved,
    to: u64,
}

impl Writer {
    pub fn new(to: u64) -> Writer {
        let code = [0; MOVED_BYTES_MAX];
        Writer { moved: Moved { code, length: 0, patch_at: 0, pushes_return: false }, to }
    }

    pub fn finish(self, patch_at: usize) -> Moved {
        Moved { patch_at, ..self.moved }
    }

    /// Writes an instruction that was followed by the address `next`. Returns whether control never
    /// continues behind it.
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
        self.push(&jump)
    }

    fn branch(&mut self, condition: u8, target: u64) -> Result<(), Unmovable> {
        const LENGTH: u64 = 6;
        let by = distance(self.here().wrapping_add(LENGTH), target);
        let by = by.ok_or(Unmovable::OutOfReach)?;
        self.push(&[0x0f, 0x80 | condition])?;
        self.push(&by.to_le_bytes())
    }

    /// A call returns to where it was: the unwinder and the called function know that address. It
    /// is pushed from a word behind the jump, and the moved beginning ends here.
    fn call(&mut self, target: u64, returns_to: u64) -> Result<(), Unmovable> {
        self.moved.pushes_return = true;
        self.push(&[0xff, 0x35])?; // push qword ptr [rip + JUMP_BYTES]
        self.push(&(JUMP_BYTES as u32).to_le_bytes())?;
        self.jump(target)?;
        self.push(&returns_to.to_le_bytes())
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
        self.push(bytes)
    }

    fn here(&self) -> u64 {
        self.to.wrapping_add(self.moved.length as u64)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Unmovable> {
        let end = self.moved.length + bytes.len();
        let room = self.moved.code.get_mut(self.moved.length..end).ok_or(Unmovable::Unknown)?;
        room.copy_from_slice(bytes);
        self.moved.length = end;
        Ok(())
    }
}
