//! aarch64, AAPCS64. `bp` is x29. A rule in 64 bits:
//!
//! ```text
//! 63      48 47     42 41      32 31           9  8  7  6  5    2  1    0
//! ┌─────────┬─────────┬──────────┬──────────────┬──┬──┬──┬──────┬────┬────┐
//! │ module  │ x29-x30 │ x30 slot │ cfa offset/8 │fb│1 │lr│ kind │save│ bp │
//! └─────────┴─────────┴──────────┴──────────────┴──┴──┴──┴──────┴────┴────┘
//! ```
//!
//! `bp`: the CFA is relative to x29 instead of sp. `lr`: the return address is still in x30;
//! otherwise it is in a slot relative to the CFA or, with `fb`, to the CFA's base register, because
//! compilers save it near either end of a frame. `save`: x29 is in a slot relative to that of x30.
//!
//! Return addresses may be signed. The signature is in the upper bits, above all code addresses, so
//! that a mask removes it ([`crate::kept::ADDRESS`]).

use super::signal_frame::SignalFrame;
use crate::step::{Bp, Cfa, Ra, Step, Usual};
use gimli::{AArch64, Register, Vendor};

/// The frame pointer, x29.
pub const BP: Register = AArch64::X29;
/// The stack pointer.
pub const SP: Register = AArch64::SP;
/// The return address, x30.
pub const RA: Register = AArch64::X30;
/// Selects the vendor's instructions in unwind tables.
pub const VENDOR: Vendor = Vendor::AArch64;
/// The return address is in the slot where the function saved it.
pub const RA_IS_BELOW_CFA: bool = false;
/// The return address is in a register until the function saves it.
pub const HAS_LINK_REGISTER: bool = true;

/// The stack pointer points at the `siginfo` of 128 bytes. It is followed by the `ucontext`, whose
/// `sigcontext` starts at byte 176: an address, x0 to x30, sp, pc.
pub const SIGNAL_FRAME: SignalFrame = SignalFrame {
    bp: REGISTERS + 8 * 29,
    sp: REGISTERS + 8 * 31,
    pc: REGISTERS + 8 * 32,
    link: Some(REGISTERS + 8 * 30),
};
const REGISTERS: u64 = 128 + 176 + 8;

const BY_BP: u64 = 1;
const BP_SAVED: u64 = 2;
const KIND: u64 = 15 << 2;
/// The CFA is a register and an offset.
const REGISTER: u64 = 0;
const END: u64 = 2 << 2;
/// The bits of [`Step::Unknown`].
pub const UNKNOWN: u64 = 3 << 2;
const SIGNAL: u64 = 4 << 2;
const FRAME_POINTER: u64 = 5 << 2;
const IN_LINK_REGISTER: u64 = 1 << 6;
const FROM_BASE: u64 = 1 << 8;

const CFA_AT: u32 = 9;
const CFA_BITS: u32 = 23;
const RA_AT: u32 = 32;
const RA_BITS: u32 = 10;
const BP_AT: u32 = 42;
const BP_BITS: u32 = 6;

/// Returns a signed field of `length` bits, times 8.
#[inline(always)]
fn field(bits: u64, at: u32, length: u32) -> i64 {
    ((bits << (64 - at - length)) as i64 >> (64 - length)) * 8
}

/// Returns the bits of a multiple of 8; `None` if it does not fit.
fn in_field(n: i64, at: u32, length: u32) -> Option<u64> {
    let half = 1 << (length - 1);
    let is_fitting = n % 8 == 0 && (-half..half).contains(&(n / 8));
    is_fitting.then_some((n / 8) as u64 & ((1 << length) - 1)).map(|bits| bits << at)
}

/// Returns the numbers of a rule for a frame that has saved x30.
#[inline(always)]
pub fn usual(bits: u64) -> Option<Usual> {
    let cfa = field(bits, CFA_AT, CFA_BITS);
    let from = if bits & FROM_BASE != 0 { cfa.wrapping_neg() } else { 0 };
    let ra = from.wrapping_add(field(bits, RA_AT, RA_BITS));
    (bits & (KIND | IN_LINK_REGISTER) == 0).then_some(Usual {
        by_bp: bits & BY_BP != 0,
        cfa,
        ra,
        bp_saved: bits & BP_SAVED != 0,
        bp: ra.wrapping_add(field(bits, BP_AT, BP_BITS)),
    })
}

/// Unpacks a rule.
#[inline(always)]
pub fn step(bits: u64) -> Step {
    match bits & KIND {
        REGISTER => {}
        END => return Step::End,
        SIGNAL => return Step::Signal,
        FRAME_POINTER => return Step::FramePointer,
        _ => return Step::Unknown,
    }
    let n = field(bits, CFA_AT, CFA_BITS) as i32;
    let cfa = if bits & BY_BP != 0 { Cfa::Bp(n) } else { Cfa::Sp(n) };
    match usual(bits) {
        Some(usual) => {
            let bp = if usual.bp_saved { Bp::AtCfa(usual.bp as i32) } else { Bp::Same };
            Step::Frame(cfa, bp, Ra::AtCfa(usual.ra as i32))
        }
        None => Step::Frame(cfa, Bp::Same, Ra::Register),
    }
}

/// Packs a step; `None` if its numbers do not fit, or if compilers do not use it here.
pub fn pack(step: Step) -> Option<u64> {
    let (cfa, bp, ra) = match step {
        Step::End => return Some(END),
        Step::Unknown => return Some(UNKNOWN),
        Step::Signal => return Some(SIGNAL),
        Step::FramePointer => return Some(FRAME_POINTER),
        Step::Frame(cfa, bp, ra) => (cfa, bp, ra),
    };
    let (base, n) = match cfa {
        Cfa::Sp(n) => (REGISTER, n as i64),
        Cfa::Bp(n) => (REGISTER | BY_BP, n as i64),
        Cfa::SpDeref(..) | Cfa::BpDeref(..) => return None,
    };
    let cfa = base | in_field(n, CFA_AT, CFA_BITS)?;
    let ra = match (ra, bp) {
        (Ra::AtCfa(ra), _) => ra as i64,
        (Ra::Register, Bp::Same) => return Some(cfa | IN_LINK_REGISTER),
        (Ra::Register, _) => return None,
    };
    let bp = match bp {
        Bp::Same => 0,
        Bp::AtCfa(bp) => BP_SAVED | in_field(bp as i64 - ra, BP_AT, BP_BITS)?,
        Bp::AtBp(_) => return None,
    };
    let from_cfa = in_field(ra, RA_AT, RA_BITS);
    let from_base = || Some(FROM_BASE | in_field(ra + n, RA_AT, RA_BITS)?);
    Some(cfa | bp | from_cfa.or_else(from_base)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_is_lossless() {
        // Frames of GCC and clang, with and without frame pointer, also large ones.
        let frames = [
            (Cfa::Sp(32), Bp::AtCfa(-32), Ra::AtCfa(-24)),
            (Cfa::Sp(16), Bp::Same, Ra::AtCfa(-16)),
            (Cfa::Bp(16), Bp::AtCfa(-16), Ra::AtCfa(-8)),
            (Cfa::Bp(96), Bp::AtCfa(-96), Ra::AtCfa(-88)),
            (Cfa::Sp(1 << 24), Bp::AtCfa(-(1 << 24)), Ra::AtCfa(8 - (1 << 24))),
            (Cfa::Bp(400_000), Bp::AtCfa(-400_000), Ra::AtCfa(-399_992)),
            (Cfa::Sp(400_000), Bp::AtCfa(-96), Ra::AtCfa(-8)),
            (Cfa::Sp(0), Bp::Same, Ra::Register),
            (Cfa::Sp(64), Bp::Same, Ra::Register),
        ];
        for (cfa, bp, ra) in frames {
            let frame = Step::Frame(cfa, bp, ra);
            assert_eq!(pack(frame).map(step), Some(frame));
        }
        for other in [Step::End, Step::Unknown, Step::Signal, Step::FramePointer] {
            assert_eq!(pack(other).map(step), Some(other));
        }
    }

    #[test]
    fn steps_that_do_not_fit_are_not_packed() {
        let not = [
            (Cfa::Sp(1 << 26), Bp::Same, Ra::AtCfa(-8)),
            (Cfa::Sp(12), Bp::Same, Ra::AtCfa(-8)),
            (Cfa::Sp(100_000), Bp::Same, Ra::AtCfa(-50_000)),
            (Cfa::Sp(1024), Bp::AtCfa(-1024), Ra::AtCfa(-8)),
            (Cfa::BpDeref(-8, 0), Bp::Same, Ra::AtCfa(-8)),
            (Cfa::Sp(16), Bp::AtCfa(-16), Ra::Register),
        ];
        for (cfa, bp, ra) in not {
            assert_eq!(pack(Step::Frame(cfa, bp, ra)), None);
        }
    }
}
