//! Control flow of instructions.

/// Bytes of the longest instruction.
pub const INSTRUCTION_BYTES_MAX: usize = 15;

/// Where execution continues after an instruction. Distances are from the next instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// At the next instruction.
    Next,
    /// Not at the next instruction, and at no address relative to this one.
    Ends,
    /// A jump by a distance.
    Jump(i64),
    /// A conditional jump by a distance; the condition is the low half of the opcode.
    Branch(i64, u8),
    /// A call by a distance.
    Call(i64),
    /// A conditional short jump that has no long form (`loop`, `jrcxz`, `xbegin`).
    Loop(i64),
    /// A call of another address.
    IndirectCall,
}
