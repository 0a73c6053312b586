//! Decodes the properties of instructions that matter for moving them: length, control flow, and
//! operands relative to the instruction pointer.

use super::flow::{Flow, INSTRUCTION_BYTES_MAX};
use yaxpeax_arch::LengthedInstruction;
use yaxpeax_x86::long_mode::{self, InstDecoder, Opcode, Operand, RegSpec};

/// An instruction and its bytes.
pub struct Instruction<'a> {
    bytes: &'a [u8],
    decoded: long_mode::Instruction,
}

impl<'a> Instruction<'a> {
    /// Decodes the first instruction; `None` if it is unknown.
    pub fn decode(code: &'a [u8]) -> Option<Instruction<'a>> {
        let window = &code[..code.len().min(INSTRUCTION_BYTES_MAX)];
        let decoded = InstDecoder::default().decode_slice(window).ok()?;
        let bytes = window.get(..decoded.len().to_const() as usize)?;
        (!bytes.is_empty()).then_some(Instruction { bytes, decoded })
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_nop(&self) -> bool {
        self.decoded.opcode() == Opcode::NOP
    }

    pub fn flow(&self) -> Flow {
        match (self.decoded.opcode(), self.distance()) {
            (Opcode::JMP, Some(by)) => Flow::Jump(by),
            (Opcode::CALL, Some(by)) => Flow::Call(by),
            (Opcode::CALL | Opcode::CALLF, None) => Flow::IndirectCall,
            (Opcode::LOOP | Opcode::LOOPZ | Opcode::LOOPNZ | Opcode::JRCXZ, Some(by)) => {
                Flow::Loop(by)
            }
            (Opcode::XBEGIN, Some(by)) => Flow::Loop(by),
            (
                Opcode::JMP
                | Opcode::JMPF
                | Opcode::RETURN
                | Opcode::RETF
                | Opcode::UD2
                | Opcode::INT
                | Opcode::HLT,
                _,
            ) => Flow::Ends,
            (_, Some(by)) => match self.condition() {
                Some(condition) => Flow::Branch(by, condition),
                None => Flow::Next,
            },
            _ => Flow::Next,
        }
    }

    /// Returns the only operand if it is a number.
    fn distance(&self) -> Option<i64> {
        if self.decoded.operand_count() != 1 {
            return None;
        }
        match self.decoded.operand(0) {
            Operand::ImmediateI8 { imm } => Some(imm.into()),
            Operand::ImmediateI32 { imm } => Some(imm.into()),
            _ => None,
        }
    }

    /// Returns the condition of a conditional jump, which has four bits.
    fn condition(&self) -> Option<u8> {
        let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x66 | 0xf2);
        let start = self.bytes.iter().position(|byte| !is_prefix(byte))?;
        match self.bytes.get(start..)? {
            [opcode @ 0x70..=0x7f, _] => Some(opcode & 15),
            [0x0f, opcode @ 0x80..=0x8f, ..] => Some(opcode & 15),
            _ => None,
        }
    }

    /// Returns the distance of a memory operand from the next instruction, if it is relative to it.
    ///
    /// Errors: it is relative to the low half of the instruction pointer.
    pub fn relative(&self) -> Result<Option<i32>, ()> {
        for number in 0..self.decoded.operand_count() {
            let (base, by) = match self.decoded.operand(number) {
                Operand::MemDeref { base } | Operand::MemDerefMasked { base, .. } => (base, 0),
                Operand::Disp { base, disp } | Operand::DispMasked { base, disp, .. } => {
                    (base, disp)
                }
                _ => continue,
            };
            if base == RegSpec::rip() {
                return Ok(Some(by));
            }
            if base == RegSpec::eip() {
                return Err(());
            }
        }
        Ok(None)
    }

    /// Returns the offset of that distance in the bytes. Found by trying: with another value there,
    /// the instruction is the same except for the distance.
    pub fn relative_at(&self, by: i32) -> Option<usize> {
        const FIELD: usize = 4;
        let other = by ^ 1;
        let mut bytes = [0u8; INSTRUCTION_BYTES_MAX];
        let bytes = bytes.get_mut(..self.bytes.len())?;
        (1..=self.bytes.len().checked_sub(FIELD)?).find(|&at| {
            bytes.copy_from_slice(self.bytes);
            bytes[at..at + FIELD].copy_from_slice(&other.to_le_bytes());
            let changed = Instruction::decode(bytes);
            self.bytes[at..at + FIELD] == by.to_le_bytes()
                && changed.is_some_and(|changed| {
                    changed.length() == self.length()
                        && changed.decoded.opcode() == self.decoded.opcode()
                        && changed.relative() == Ok(Some(other))
                })
        })
    }
}
