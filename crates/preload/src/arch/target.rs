//! Targets of direct calls and jumps in machine code.

/// The target of a direct call or jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The address of code.
    Code(u64),
    /// The address of a word that contains that of code.
    Slot(u64),
}
