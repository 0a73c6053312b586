//! Where control goes after an instruction.

/// Bytes of the longest instruction.
pub const INSTRUCTION_BYTES_MAX: usize = 15;

/// Where control goes after an instruction. Distances are from the next instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// Not to the next instruction, and to no address that depends on this one's.
    Ends,
    /// By a distance.
    Jump(i64),
    /// By a distance on a condition, which is the low half of the opcode.
    Branch(i64, u8),
    /// By a distance, and back.
    Call(i64),
    /// By a short distance on a condition that has no long form (`loop`, `jrcxz`, `xbegin`).
    Loop(i64),
    /// To another address, and back.
    IndirectCall,
}
