//! The kernel's signal frame.

/// Locations of the interrupted registers in the kernel's signal frame, in bytes from the stack
/// pointer with which the handler returns.
pub struct SignalFrame {
    /// The frame pointer.
    pub bp: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The interrupted instruction.
    pub pc: u64,
    /// The link register, if there is one.
    pub link: Option<u64>,
}
