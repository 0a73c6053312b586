//! How to get from a frame to its caller, in 64 bits.
//!
//! ```text
//! 63      48 47            32 31             8  7  6  5    2  1    0
//! ┌─────────┬────────────────┬────────────────┬──┬──┬──────┬────┬────┐
//! │ module  │ bp slot / 8    │ cfa offset     │1 │ab│ kind │save│ bp │
//! └─────────┴────────────────┴────────────────┴──┴──┴──────┴────┴────┘
//!                              deref: m/8 (8) and n (16)
//! ```
//!
//! `bp`: the CFA counts from rbp, not from rsp; `save`: rbp is in a slot, counted from the CFA or
//! (`ab`) from rbp. Kind and `ab` are 0 in nearly all rules.

/// A packed rule; never zero, so that zero can mean "not known yet".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule(u64);

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

/// A rule taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There is no caller.
    End,
    /// No unwind information, or of a form that does not occur in compiled code.
    Unknown,
    /// The return address is at `cfa - 8`.
    Frame(Cfa, Bp),
    /// The kernel's signal frame: the interrupted registers lie in the `ucontext` above.
    Signal,
    /// No unwind information: try the frame pointer, if it looks like one.
    FramePointer,
}

/// What nearly all rules are: see [`Rule::usual`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usual {
    /// The CFA counts from rbp, not from rsp.
    pub by_bp: bool,
    /// Its distance, bytes.
    pub cfa: i64,
    /// The caller's rbp is on the stack.
    pub bp_saved: bool,
    /// Its distance from the CFA, bytes.
    pub bp: i64,
}

/// Set in each rule, so that none is 0.
const RULE: u64 = 1 << 7;
const BY_BP: u64 = 1;
const BP_SAVED: u64 = 2;
/// With `BP_SAVED`: in a slot that counts from rbp.
const AT_BP: u64 = 1 << 6;
const KIND: u64 = 15 << 2;
/// The CFA is a register and an offset.
const REGISTER: u64 = 0;
/// The CFA is computed from a word at a register and an offset.
const DEREF: u64 = 1 << 2;
const END: u64 = 2 << 2;
const UNKNOWN: u64 = 3 << 2;
const SIGNAL: u64 = 4 << 2;
const FRAME_POINTER: u64 = 5 << 2;

impl Rule {
    /// Packs a step found in module `module`. A step whose numbers do not fit becomes
    /// [`Step::Unknown`]: frames beyond 8 MiB do not occur.
    pub fn new(step: Step, module: u16) -> Rule {
        Rule(RULE | pack(step).unwrap_or(UNKNOWN) | (module as u64) << 48)
    }

    /// The rule with these bits, as [`Rule::bits`] gave them; none for 0.
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Option<Rule> {
        if bits == 0 { None } else { Some(Rule(bits)) }
    }

    /// The packed form.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Index of the module the rule was found in; 0 for code outside modules.
    #[inline(always)]
    pub fn module(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The numbers of a rule whose CFA is a register and an offset, and whose rbp is kept or saved
    /// by the CFA.
    #[inline(always)]
    pub fn usual(self) -> Option<Usual> {
        (self.0 & (KIND | AT_BP) == 0).then_some(Usual {
            by_bp: self.0 & BY_BP != 0,
            cfa: ((self.0 as i32) >> 8) as i64,
            bp_saved: self.0 & BP_SAVED != 0,
            bp: ((self.0 >> 32) as u16 as i16) as i64 * 8,
        })
    }

    /// The rule taken apart.
    #[inline(always)]
    pub fn step(self) -> Step {
        let n = (self.0 as i32) >> 8;
        let by_bp = self.0 & BY_BP != 0;
        let cfa = match (self.0 & KIND, by_bp) {
            (REGISTER, false) => Cfa::Sp(n),
            (REGISTER, true) => Cfa::Bp(n),
            (DEREF, false) => Cfa::SpDeref(n as i16, self.m()),
            (DEREF, true) => Cfa::BpDeref(n as i16, self.m()),
            (END, _) => return Step::End,
            (SIGNAL, _) => return Step::Signal,
            (FRAME_POINTER, _) => return Step::FramePointer,
            _ => return Step::Unknown,
        };
        Step::Frame(cfa, self.bp())
    }

    #[inline(always)]
    fn bp(self) -> Bp {
        let n = ((self.0 >> 32) as u16 as i16) as i32 * 8;
        match self.0 & (BP_SAVED | AT_BP) {
            0 => Bp::Same,
            BP_SAVED => Bp::AtCfa(n),
            _ => Bp::AtBp(n),
        }
    }

    fn m(self) -> i16 {
        ((self.0 >> 24) as u8 as i8) as i16 * 8
    }
}

fn pack(step: Step) -> Option<u64> {
    let (cfa, bp) = match step {
        Step::End => return Some(END),
        Step::Unknown => return Some(UNKNOWN),
        Step::Signal => return Some(SIGNAL),
        Step::FramePointer => return Some(FRAME_POINTER),
        Step::Frame(cfa, bp) => (cfa, bp),
    };
    let wide = |kind: u64, n: i32| {
        (-(1 << 23)..1 << 23).contains(&n).then_some(kind | (n as u32 as u64 & 0xff_ffff) << 8)
    };
    let deref = |kind: u64, n: i16, m: i16| {
        let small = i8::try_from(m / 8).ok().filter(|_| m % 8 == 0)?;
        Some(kind | (n as u16 as u64) << 8 | (small as u8 as u64) << 24)
    };
    let eighth = |kind: u64, n: i32| {
        let small = i16::try_from(n / 8).ok().filter(|_| n % 8 == 0)?;
        Some(kind | (small as u16 as u64) << 32)
    };
    let cfa = match cfa {
        Cfa::Sp(n) => wide(REGISTER, n),
        Cfa::Bp(n) => wide(REGISTER | BY_BP, n),
        Cfa::SpDeref(n, m) => deref(DEREF, n, m),
        Cfa::BpDeref(n, m) => deref(DEREF | BY_BP, n, m),
    }?;
    let bp = match bp {
        Bp::Same => Some(0),
        Bp::AtCfa(n) => eighth(BP_SAVED, n),
        Bp::AtBp(n) => eighth(BP_SAVED | AT_BP, n),
    }?;
    Some(cfa | bp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_is_lossless() {
        let bps = [Bp::Same, Bp::AtCfa(-16), Bp::AtCfa(-262_144), Bp::AtBp(0), Bp::AtBp(8)];
        let cfas = [
            Cfa::Sp(8),
            Cfa::Sp(1 << 22),
            Cfa::Sp(-8),
            Cfa::Bp(16),
            Cfa::SpDeref(160, 0),
            Cfa::SpDeref(-8, 8),
            Cfa::BpDeref(-8, 0),
            Cfa::BpDeref(-32_768, -1024),
        ];
        for cfa in cfas {
            for bp in bps {
                let rule = Rule::new(Step::Frame(cfa, bp), 0xfffe);
                assert_eq!((rule.step(), rule.module()), (Step::Frame(cfa, bp), 0xfffe));
            }
        }
        for step in [Step::End, Step::Unknown, Step::Signal, Step::FramePointer] {
            assert_eq!(Rule::new(step, 7).step(), step);
            assert_ne!(Rule::new(step, 0).bits(), 0);
        }
    }

    #[test]
    fn what_does_not_fit_is_unknown() {
        for cfa in [Cfa::Sp(1 << 23), Cfa::BpDeref(0, 4), Cfa::BpDeref(0, 1024)] {
            assert_eq!(Rule::new(Step::Frame(cfa, Bp::Same), 1).step(), Step::Unknown);
        }
        let odd = Step::Frame(Cfa::Sp(8), Bp::AtCfa(-12));
        assert_eq!(Rule::new(odd, 1).step(), Step::Unknown);
    }
}
