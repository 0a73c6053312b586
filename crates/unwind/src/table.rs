//! Converts one row of an `.eh_frame` or `.debug_frame` table to a [`Step`].
//!
//! Only three columns matter here: the CFA, the saved bp and the return address. Evaluating gimli's
//! decoded instructions only for these takes a few hundred bytes of stack; whole rows would take
//! kilobytes, which a thread with a small stack may not have.

use crate::arch;
use crate::rule::{Bp, Cfa, Ra, Step};
use gimli::{
    BaseAddresses, CallFrameInstruction as Cfi, CommonInformationEntry, EhFrame, EhFrameHdr,
    EndianSlice, FrameDescriptionEntry, NativeEndian, Operation, Register, UnwindExpression,
    UnwindSection,
};

pub(crate) type Bytes<'a> = EndianSlice<'a, NativeEndian>;
type Fde<'a> = FrameDescriptionEntry<Bytes<'a>>;

/// The unwind sections of a loaded module, with their load addresses.
#[derive(Clone, Copy, Debug)]
pub struct Sections<'a> {
    /// `.eh_frame_hdr`.
    pub header: &'a [u8],
    /// Its address.
    pub header_address: u64,
    /// `.eh_frame`, up to the end of its segment.
    pub frames: &'a [u8],
    /// Its address.
    pub frames_address: u64,
}

/// Returns the address of `.eh_frame` that `.eh_frame_hdr` contains.
pub fn frames_address(header: &[u8], header_address: u64) -> Option<u64> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(header_address);
    let header = EhFrameHdr::new(header, NativeEndian).parse(&bases, 8).ok()?;
    header.eh_frame_ptr().direct().ok()
}

/// Returns the step to the caller of a frame at `pc`: an address inside the calling instruction, or
/// the interrupted instruction itself. `None` if the tables do not cover `pc`.
///
/// Implements the Itanium/System V unwinding scheme: DWARF 5, section 6.4, with the `.eh_frame`
/// differences.
pub fn step_at(sections: &Sections<'_>, pc: u64) -> Option<Step> {
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(sections.header_address)
        .set_eh_frame(sections.frames_address);
    let mut frames = EhFrame::new(sections.frames, NativeEndian);
    frames.set_vendor(arch::VENDOR);
    let header = EhFrameHdr::new(sections.header, NativeEndian).parse(&bases, 8).ok()?;
    let fde = match header.table() {
        Some(table) => table.fde_for_address(&frames, &bases, pc, EhFrame::cie_from_offset).ok()?,
        None => frames.fde_for_address(&bases, pc, EhFrame::cie_from_offset).ok()?,
    };
    step_of(&frames, &bases, &fde, pc)
}

/// Returns start and end of the function that contains `pc`, or of a part of it. `None` if the
/// tables do not cover `pc`, or have no search table.
pub fn function_at(sections: &Sections<'_>, pc: u64) -> Option<(u64, u64)> {
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(sections.header_address)
        .set_eh_frame(sections.frames_address);
    let frames = EhFrame::new(sections.frames, NativeEndian);
    let header = EhFrameHdr::new(sections.header, NativeEndian).parse(&bases, 8).ok()?;
    let table = header.table()?;
    let fde = table.fde_for_address(&frames, &bases, pc, EhFrame::cie_from_offset).ok()?;
    fde.contains(pc).then(|| (fde.initial_address(), fde.initial_address() + fde.len()))
}

/// Returns the step at `pc` by the entry of its function; `None` if that does not contain `pc`.
pub(crate) fn step_of<'a, S: UnwindSection<Bytes<'a>>>(
    frames: &S,
    bases: &BaseAddresses,
    fde: &Fde<'a>,
    pc: u64,
) -> Option<Step> {
    if !fde.contains(pc) {
        return None;
    }
    if fde.is_signal_trampoline() {
        return Some(Step::Signal);
    }
    Some(row(frames, bases, fde, pc).unwrap_or(Step::Unknown))
}

#[derive(Clone, Copy)]
enum CfaColumn {
    Register(Register, i64),
    Expression(Cfa),
    Unsupported,
}

#[derive(Clone, Copy, PartialEq)]
enum Column {
    Same,
    Undefined,
    AtCfa(i64),
    AtBp(i64),
    Unsupported,
}

#[derive(Clone, Copy)]
struct Row {
    cfa: CfaColumn,
    bp: Column,
    ra: Column,
}

/// The most instructions of a function: those of the largest known functions are thousands. A table
/// with more would stop the thread for each new address, longer than it takes to allocate.
const INSTRUCTIONS_MAX: usize = 1 << 18;

/// The most nested `DW_CFA_remember_state`; compilers use one level.
const REMEMBER_MAX: usize = 4;

struct Evaluation<'a, 'b, S> {
    frames: &'b S,
    cie: &'b CommonInformationEntry<Bytes<'a>>,
    pc: u64,
    location: u64,
    row: Row,
    initial: Row,
    remembered: [Row; REMEMBER_MAX],
    depth: usize,
}

fn row<'a, S: UnwindSection<Bytes<'a>>>(
    frames: &S,
    bases: &BaseAddresses,
    fde: &Fde<'a>,
    pc: u64,
) -> Option<Step> {
    // Columns that a table does not mention are unchanged, except a pushed return address, which it
    // must mention.
    let ra = if arch::HAS_LINK_REGISTER { Column::Same } else { Column::Undefined };
    let empty = Row { cfa: CfaColumn::Unsupported, bp: Column::Same, ra };
    let mut e = Evaluation {
        frames,
        cie: fde.cie(),
        pc,
        location: fde.initial_address(),
        row: empty,
        initial: empty,
        remembered: [empty; REMEMBER_MAX],
        depth: 0,
    };
    let mut room = INSTRUCTIONS_MAX;
    let mut preamble = fde.cie().instructions(frames, bases);
    while let Some(instruction) = preamble.next().ok()? {
        e.apply(instruction)?;
        room = room.checked_sub(1)?;
    }
    e.initial = e.row;
    let mut program = fde.instructions(frames, bases);
    while let Some(instruction) = program.next().ok()? {
        if !e.apply(instruction)? {
            break;
        }
        room = room.checked_sub(1)?;
    }
    e.row.step()
}

impl<'a, S: UnwindSection<Bytes<'a>>> Evaluation<'a, '_, S> {
    /// Applies one instruction. Returns false if it starts a row beyond the pc.
    fn apply(&mut self, instruction: Cfi<usize>) -> Option<bool> {
        let data = self.cie.data_alignment_factor();
        match instruction {
            Cfi::SetLoc { address } => return Some(self.advance_to(address)),
            Cfi::AdvanceLoc { delta } => {
                let bytes = u64::from(delta).wrapping_mul(self.cie.code_alignment_factor());
                return Some(self.advance_to(self.location.wrapping_add(bytes)));
            }
            Cfi::DefCfa { register, offset } => {
                self.row.cfa = CfaColumn::Register(register, offset as i64);
            }
            Cfi::DefCfaSf { register, factored_offset } => {
                self.row.cfa = CfaColumn::Register(register, factored_offset.wrapping_mul(data));
            }
            Cfi::DefCfaRegister { register } => {
                let CfaColumn::Register(_, offset) = self.row.cfa else {
                    return None;
                };
                self.row.cfa = CfaColumn::Register(register, offset);
            }
            Cfi::DefCfaOffset { offset } => self.set_cfa_offset(offset as i64)?,
            Cfi::DefCfaOffsetSf { factored_offset } => {
                self.set_cfa_offset(factored_offset.wrapping_mul(data))?;
            }
            Cfi::DefCfaExpression { expression } => self.row.cfa = self.cfa_expression(&expression),
            Cfi::Undefined { register } => self.set(register, Column::Undefined),
            Cfi::SameValue { register } => self.set(register, Column::Same),
            Cfi::Offset { register, factored_offset } => {
                let offset = (factored_offset as i64).wrapping_mul(data);
                self.set(register, Column::AtCfa(offset));
            }
            Cfi::OffsetExtendedSf { register, factored_offset } => {
                self.set(register, Column::AtCfa(factored_offset.wrapping_mul(data)));
            }
            Cfi::Expression { register, expression } => {
                let column = self.slot_expression(&expression);
                self.set(register, column);
            }
            Cfi::ValOffset { register, .. }
            | Cfi::ValOffsetSf { register, .. }
            | Cfi::ValExpression { register, .. } => self.set(register, Column::Unsupported),
            Cfi::Register { dest_register, .. } => self.set(dest_register, Column::Unsupported),
            Cfi::Restore { register } => {
                let column = if register == arch::BP { self.initial.bp } else { self.initial.ra };
                self.set(register, column);
            }
            Cfi::RememberState => {
                *self.remembered.get_mut(self.depth)? = self.row;
                self.depth += 1;
            }
            Cfi::RestoreState => {
                self.depth = self.depth.checked_sub(1)?;
                self.row = self.remembered[self.depth];
            }
            _ => {}
        }
        Some(true)
    }

    fn advance_to(&mut self, location: u64) -> bool {
        self.location = location;
        location <= self.pc
    }

    fn set_cfa_offset(&mut self, offset: i64) -> Option<()> {
        let CfaColumn::Register(register, _) = self.row.cfa else {
            return None;
        };
        self.row.cfa = CfaColumn::Register(register, offset);
        Some(())
    }

    fn set(&mut self, register: Register, column: Column) {
        match register {
            arch::BP => self.row.bp = column,
            arch::RA => self.row.ra = column,
            _ => {}
        }
    }

    /// Matches `breg n; deref [; plus_uconst m]`, which compilers emit for functions that realign
    /// their stack.
    fn cfa_expression(&self, expression: &UnwindExpression<usize>) -> CfaColumn {
        let parse = || {
            let expression = expression.get(self.frames).ok()?;
            let mut ops = expression.operations(self.cie.encoding());
            let (register, n) = register_offset(ops.next().ok()??)?;
            let Operation::Deref { .. } = ops.next().ok()?? else {
                return None;
            };
            let m = match ops.next().ok()? {
                None => 0,
                Some(Operation::PlusConstant { value }) => i16::try_from(value).ok()?,
                Some(_) => return None,
            };
            match register {
                arch::SP => Some(Cfa::SpDeref(n.try_into().ok()?, m)),
                arch::BP => Some(Cfa::BpDeref(n.try_into().ok()?, m)),
                _ => None,
            }
        };
        parse().map_or(CfaColumn::Unsupported, CfaColumn::Expression)
    }

    /// Matches `breg bp, n`: saved at a fixed offset from the frame pointer.
    fn slot_expression(&self, expression: &UnwindExpression<usize>) -> Column {
        let parse = || {
            let expression = expression.get(self.frames).ok()?;
            let mut ops = expression.operations(self.cie.encoding());
            let (register, n) = register_offset(ops.next().ok()??)?;
            (register == arch::BP && ops.next().ok()?.is_none()).then_some(n)
        };
        parse().map_or(Column::Unsupported, Column::AtBp)
    }
}

fn register_offset(op: Operation<Bytes<'_>>) -> Option<(Register, i64)> {
    match op {
        Operation::RegisterOffset { register, offset, .. } => Some((register, offset)),
        _ => None,
    }
}

impl Row {
    fn step(self) -> Option<Step> {
        let ra = match self.ra {
            Column::Undefined => return Some(Step::End),
            Column::AtCfa(n) if n == -8 || !arch::RA_IS_BELOW_CFA => Ra::AtCfa(n.try_into().ok()?),
            Column::Same if arch::HAS_LINK_REGISTER => Ra::Register,
            _ => return None,
        };
        let cfa = match self.cfa {
            CfaColumn::Register(arch::SP, n) => Cfa::Sp(n.try_into().ok()?),
            CfaColumn::Register(arch::BP, n) => Cfa::Bp(n.try_into().ok()?),
            CfaColumn::Expression(cfa) => cfa,
            _ => return None,
        };
        let bp = match self.bp {
            Column::AtCfa(n) => Bp::AtCfa(n.try_into().ok()?),
            Column::AtBp(n) => Bp::AtBp(n.try_into().ok()?),
            // A bp that is undefined or saved in another way matters only if a caller is unwound by
            // it, and no caller compiled today relies on such a callee.
            _ => Bp::Same,
        };
        Some(Step::Frame(cfa, bp, ra))
    }
}
