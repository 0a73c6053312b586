//! The frames of a stopped thread, from the unwind tables in its modules' files.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Register, RegisterRule,
    UnwindContext, UnwindSection,
};

use crate::machine::{self, Known, Registers};
use crate::memory::Memory;
use crate::modules::{Contents, Modules};

/// The most frames to unwind.
const FRAMES_MAX: usize = 256;

/// A frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The current instruction of the function, or its return address.
    pub pc: u64,
    /// Whether a signal interrupted it.
    pub is_interrupted: bool,
}

/// Returns the frames of a thread, innermost first, as far as the unwind tables lead.
pub fn frames(memory: &Memory, modules: &Modules, registers: &Registers) -> Vec<Frame> {
    let mut known = machine::known(registers);
    let mut frames = vec![Frame { pc: known.values[machine::PC], is_interrupted: true }];
    let restorer = modules.signal_return();
    while frames.len() < FRAMES_MAX {
        let pc = known.values[machine::PC];
        let last = frames.last().is_some_and(|frame| frame.is_interrupted);
        // A return address follows a call, so it may be past the end of its function.
        let within = if last { pc } else { pc.wrapping_sub(1) };
        let is_handler = restorer == Some(pc);
        let next = if is_handler {
            machine::interrupted(memory, known.values[machine::SP])
        } else {
            step(memory, modules, known, within)
        };
        let Some(next) = next.filter(|next| next.values[machine::PC] != 0) else { break };
        let is_same = next.values == known.values;
        if is_same {
            break;
        }
        known = next;
        frames.push(Frame { pc: known.values[machine::PC], is_interrupted: is_handler });
    }
    frames
}

fn step(memory: &Memory, modules: &Modules, known: Known, within: u64) -> Option<Known> {
    let contents = modules.holding(within)?.contents()?;
    step_by(memory, contents, known, within)
}

fn step_by(memory: &Memory, contents: &Contents, known: Known, within: u64) -> Option<Known> {
    let [header, table] = contents.frames.as_ref()?;
    let bases =
        BaseAddresses::default().set_eh_frame_hdr(header.address).set_eh_frame(table.address);
    let hints = EhFrameHdr::new(&header.bytes, NativeEndian).parse(&bases, 8).ok()?;
    let mut section = EhFrame::new(&table.bytes, NativeEndian);
    section.set_vendor(machine::VENDOR);
    let at = within.wrapping_sub(contents.bias);
    let entry =
        hints.table()?.fde_for_address(&section, &bases, at, EhFrame::cie_from_offset).ok()?;
    let mut context = UnwindContext::new();
    let row = entry.unwind_info_for_address(&section, &bases, &mut context, at).ok()?;
    let value = |Register(number)| known.values.get(usize::from(number)).copied();
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
    let frame = value(*register)?.wrapping_add_signed(*offset);
    let mut next = known;
    for (number, place) in next.values.iter_mut().enumerate() {
        match row.register(Register(number as u16)) {
            Some(RegisterRule::Offset(offset)) => {
                *place = memory.word(frame.wrapping_add_signed(offset)).ok()?;
            }
            Some(RegisterRule::ValOffset(offset)) => {
                *place = frame.wrapping_add_signed(offset);
            }
            Some(RegisterRule::Register(other)) => *place = value(other)?,
            Some(RegisterRule::Undefined) if number == machine::RETURN => return None,
            _ => {}
        }
    }
    next.values[machine::SP] = frame;
    next.values[machine::PC] = machine::code_address(next.values[machine::RETURN]);
    Some(next)
}
