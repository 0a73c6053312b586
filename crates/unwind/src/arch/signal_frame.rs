//! The kernel's signal frame.

/// Where the kernel's signal frame has the registers of what was interrupted: bytes from the stack
/// pointer at which the handler returns.
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
