//! The step from a frame to its caller: the locations of the caller's registers.

/// The source of the canonical frame address (the caller's stack pointer after return).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cfa {
    /// `sp + n`.
    Sp(i32),
    /// `bp + n`.
    Bp(i32),
    /// `*(sp + n) + m`.
    SpDeref(i16, i16),
    /// `*(bp + n) + m`: a function that realigned its stack.
    BpDeref(i16, i16),
}

/// The location of the caller's bp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bp {
    /// Still in the register.
    Same,
    /// At `cfa + n`.
    AtCfa(i32),
    /// At `bp + n`.
    AtBp(i32),
}

/// The location of the return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ra {
    /// At `cfa + n`.
    AtCfa(i32),
    /// Still in the link register.
    Register,
}

/// An unpacked rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The frame has no caller.
    End,
    /// No unwind information, or a form that does not occur in compiled code.
    Unknown,
    /// The caller's registers come from these three.
    Frame(Cfa, Bp, Ra),
    /// The kernel's signal frame: the interrupted registers are in the `ucontext` above it.
    Signal,
    /// No unwind information: use the frame pointer if its value is plausible.
    FramePointer,
}

/// The form of nearly all rules; see [`crate::Rule::usual`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usual {
    /// Whether the CFA is relative to bp instead of sp.
    pub by_bp: bool,
    /// The offset of the CFA from that register, in bytes.
    pub cfa: i64,
    /// The offset of the return address from the CFA, in bytes.
    pub ra: i64,
    /// Whether the caller's bp is on the stack.
    pub bp_saved: bool,
    /// The offset of the saved bp from the CFA, in bytes.
    pub bp: i64,
}
