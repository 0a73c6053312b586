//! The step from a frame to its caller: where the registers are.

/// Where the canonical frame address (the caller's stack pointer after return) comes from.
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

/// Where the caller's bp is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bp {
    /// Still in the register.
    Same,
    /// At `cfa + n`.
    AtCfa(i32),
    /// At `bp + n`.
    AtBp(i32),
}

/// Where the return address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ra {
    /// At `cfa + n`.
    AtCfa(i32),
    /// In the link register still.
    Register,
}

/// A rule taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There is no caller.
    End,
    /// No unwind information, or of a form that does not occur in compiled code.
    Unknown,
    /// By these three.
    Frame(Cfa, Bp, Ra),
    /// The kernel's signal frame: the interrupted registers lie in the `ucontext` above.
    Signal,
    /// No unwind information: try the frame pointer, if it looks like one.
    FramePointer,
}

/// What nearly all rules are: see [`crate::Rule::usual`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usual {
    /// The CFA counts from bp, not from sp.
    pub by_bp: bool,
    /// Its distance, bytes.
    pub cfa: i64,
    /// The distance of the return address from the CFA, bytes.
    pub ra: i64,
    /// The caller's bp is on the stack.
    pub bp_saved: bool,
    /// Its distance from the CFA, bytes.
    pub bp: i64,
}
