//! Reasons why a function is not patched.

/// Why the beginning of a function cannot be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmovable {
    /// The function is shorter than the jump, and no padding follows it.
    TooShort,
    /// The function has an unknown instruction.
    Unknown,
    /// An instruction would have another effect at another address: a loop, or an indirect call,
    /// whose return address the unwinder would not know; or it is a debugger's breakpoint.
    Instruction,
    /// The function jumps back to its start.
    JumpInside,
    /// The target of an instruction is out of reach from the new address.
    OutOfReach,
}
