//! x86-64, System V. A rule in 64 bits:
//!
//! ```text
//! 63      48 47            32 31             8  7  6  5    2  1    0
//! ┌─────────┬────────────────┬────────────────┬──┬──┬──────┬────┬────┐
//! │ module  │ bp slot / 8    │ cfa offset     │1 │ab│ kind │save│ bp │
//! └─────────┴────────────────┴────────────────┴──┴──┴──────┴────┴────┘
//!                              deref: m/8 (8) and n (16)
//! ```
//!
//! `bp`: the CFA is relative to rbp instead of rsp. `save`: rbp is in a slot relative to the CFA
//! or, with `ab`, to rbp. Kind and `ab` are 0 in nearly all rules. The return address is below the
//! CFA.

use super::signal_frame::SignalFrame;
use crate::step::{Bp, Cfa, Ra, Step, Usual};
use gimli::{Register, Vendor, X86_64};

/// The frame pointer, rbp.
pub const BP: Register = X86_64::RBP;
/// The stack pointer, rsp.
pub const SP: Register = X86_64::RSP;
/// The return address.
pub const RA: Register = X86_64::RA;
/// Selects the vendor's instructions in unwind tables.
pub const VENDOR: Vendor = Vendor::Default;
/// The return address is always in the word below the CFA.
pub const RA_IS_BELOW_CFA: bool = true;
/// Calls do not leave the return address in a register.
pub const HAS_LINK_REGISTER: bool = false;

/// The stack pointer points at the `ucontext`, whose `gregs` start at byte 40: rbp is the 11th, rsp
/// the 16th, rip the 17th.
pub const SIGNAL_FRAME: SignalFrame =
    SignalFrame { bp: 40 + 8 * 10, sp: 40 + 8 * 15, pc: 40 + 8 * 16, link: None };

const BY_BP: u64 = 1;
const BP_SAVED: u64 = 2;
/// With `BP_SAVED`: the slot is relative to rbp.
const AT_BP: u64 = 1 << 6;
const KIND: u64 = 15 << 2;
/// The CFA is a register and an offset.
const REGISTER: u64 = 0;
/// The CFA is computed from a word at a register and an offset.
const DEREF: u64 = 1 << 2;
const END: u64 = 2 << 2;
/// The bits of [`Step::Unknown`].
pub const UNKNOWN: u64 = 3 << 2;
const SIGNAL: u64 = 4 << 2;
const FRAME_POINTER: u64 = 5 << 2;

/// Returns the numbers of a rule whose CFA is a register plus an offset, and whose rbp is unchanged
/// or saved relative to the CFA.
#[inline(always)]
pub fn usual(bits: u64) -> Option<Usual> {
    (bits & (KIND | AT_BP) == 0).then_some(Usual {
        by_bp: bits & BY_BP != 0,
        cfa: ((bits as i32) >> 8) as i64,
        ra: -8,
        bp_saved: bits & BP_SAVED != 0,
        bp: ((bits >> 32) as u16 as i16) as i64 * 8,
    })
}

/// Unpacks a rule.
#[inline(always)]
pub fn step(bits: u64) -> Step {
    let n = (bits as i32) >> 8;
    let m = || ((bits >> 24) as u8 as i8) as i16 * 8;
    let by_bp = bits & BY_BP != 0;
    let cfa = match (bits & KIND, by_bp) {
        (REGISTER, false) => Cfa::Sp(n),
        (REGISTER, true) => Cfa::Bp(n),
        (DEREF, false) => Cfa::SpDeref(n as i16, m()),
        (DEREF, true) => Cfa::BpDeref(n as i16, m()),
        (END, _) => return Step::End,
        (SIGNAL, _) => return Step::Signal,
        (FRAME_POINTER, _) => return Step::FramePointer,
        _ => return Step::Unknown,
    };
    let slot = ((bits >> 32) as u16 as i16) as i32 * 8;
    let bp = match bits & (BP_SAVED | AT_BP) {
        0 => Bp::Same,
        BP_SAVED => Bp::AtCfa(slot),
        _ => Bp::AtBp(slot),
    };
    Step::Frame(cfa, bp, Ra::AtCfa(-8))
}

/// Packs a step; `None` if its numbers do not fit.
pub fn pack(step: Step) -> Option<u64> {
    let (cfa, bp) = match step {
        Step::End => return Some(END),
        Step::Unknown => return Some(UNKNOWN),
        Step::Signal => return Some(SIGNAL),
        Step::FramePointer => return Some(FRAME_POINTER),
        Step::Frame(cfa, bp, Ra::AtCfa(-8)) => (cfa, bp),
        Step::Frame(..) => return None,
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
                let frame = Step::Frame(cfa, bp, Ra::AtCfa(-8));
                assert_eq!(pack(frame).map(step), Some(frame));
            }
        }
        for other in [Step::End, Step::Unknown, Step::Signal, Step::FramePointer] {
            assert_eq!(pack(other).map(step), Some(other));
        }
    }

    #[test]
    fn steps_that_do_not_fit_are_not_packed() {
        let ra = Ra::AtCfa(-8);
        for cfa in [Cfa::Sp(1 << 23), Cfa::BpDeref(0, 4), Cfa::BpDeref(0, 1024)] {
            assert_eq!(pack(Step::Frame(cfa, Bp::Same, ra)), None);
        }
        assert_eq!(pack(Step::Frame(Cfa::Sp(8), Bp::AtCfa(-12), ra)), None);
        assert_eq!(pack(Step::Frame(Cfa::Sp(8), Bp::Same, Ra::Register)), None);
    }
}
