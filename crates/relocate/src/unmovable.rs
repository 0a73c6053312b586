//! Why functions are left alone.

/// Why the beginning of a function cannot be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmovable {
    /// The function is shorter than the jump, and no padding follows it.
    TooShort,
    /// An instruction of the function is not known.
    Unknown,
    /// An instruction does something else in another place: a loop, or an indirect call, whose
    /// return address the unwinder would not know; or it is a debugger's breakpoint.
    Instruction,
    /// The function jumps back to its beginning.
    JumpInside,
    /// What an instruction refers to is out of reach from there.
    OutOfReach,
}
