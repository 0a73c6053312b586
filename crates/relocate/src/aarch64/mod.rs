//! aarch64: every instruction has four bytes, like the jump, so only one is moved; few depend on
//! their address.
#![cfg_attr(not(any(target_arch = "aarch64", test)), allow(dead_code, reason = "tests run it"))]

#[cfg(test)]
mod tests;

use crate::moved::{Moved, STUB_BYTES, stub};
use crate::unmovable::Unmovable;

/// Bytes of a jump to an address within 128 MiB, and of each instruction.
pub const JUMP_BYTES: usize = 4;
/// The maximal distance of a jump's target.
pub const REACH: u64 = 128 << 20;

/// `bti c`, `bti j`, `bti jc`: the only valid targets of indirect jumps if the processor checks
/// branch targets.
const LANDINGS: [u32; 3] = [0xd503_245f, 0xd503_249f, 0xd503_24df];
/// `paciasp`, `pacibsp`: valid targets, too. They sign the return address, which would break the
/// return of any other function, so `autiasp` or `autibsp` reverts that before the jump.
const SIGNINGS: [(u32, u32); 2] = [(0xd503_233f, 0xd503_23bf), (0xd503_237f, 0xd503_23ff)];
/// `paciasppc` and its variants also sign their own address.
const SIGN_PLACE: [u32; 4] = [0xdac1_83fe, 0xdac1_87fe, 0xdac1_a3fe, 0xdac1_a7fe];
/// `b`
const JUMP: u32 = 0x1400_0000;
/// `br x16`
const JUMP_X16: u32 = 0xd61f_0200;
/// `ldr x0, …`: loads a word that follows the code.
const LOAD_WORD: u32 = 0x5800_0000;
/// A register that holds no value at a function's entry, because linkers' veneers change it.
const X16: u32 = 16;
const X17: u32 = 17;

/// Returns the instruction that jumps from one address to another; `None` if that is out of reach.
pub fn jump(from: u64, to: u64) -> Option<[u8; JUMP_BYTES]> {
    let by = to.wrapping_sub(from) as i64;
    let is_near = (-(REACH as i64)..REACH as i64).contains(&by) && by % 4 == 0;
    is_near.then(|| (JUMP | (by >> 2) as u32 & 0x3ff_ffff).to_le_bytes())
}

/// Returns code that jumps to any address, for the entry of a moved function.
pub fn jump_far(target: u64, moved: &Moved) -> [u8; STUB_BYTES] {
    let code = [undo(moved), load(X16, 12), JUMP_X16, NOP];
    stub(&[&bytes(code), &target.to_le_bytes()])
}

/// Like `jump_far`, to a body that gets `record` in x17, and all registers except x16 unchanged.
pub fn pass(record: u64, body: u64, moved: &Moved) -> [u8; STUB_BYTES] {
    let code = [undo(moved), load(X16, 12), load(X17, 16), JUMP_X16];
    stub(&[&bytes(code), &body.to_le_bytes(), &record.to_le_bytes()])
}

const NOP: u32 = 0xd503_201f;

/// Returns the first instruction of a stub.
fn undo(moved: &Moved) -> u32 {
    if moved.undo == 0 { NOP } else { moved.undo }
}

/// Loads the word `by` bytes after the instruction.
fn load(register: u32, by: u32) -> u32 {
    LOAD_WORD | (by / 4) << 5 | register
}

fn bytes(code: [u32; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (place, instruction) in bytes.chunks_exact_mut(4).zip(code) {
        place.copy_from_slice(&instruction.to_le_bytes());
    }
    bytes
}

/// How an instruction depends on its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It does not.
    Elsewhere,
    /// It does not, and execution does not continue with the next instruction.
    Ends,
    /// A jump by a distance.
    Jump(i64),
    /// A conditional jump by a distance, with the bits that hold the distance.
    Branch(i64, u32),
    /// Computes an address: the distance is added to the instruction's address, or to its page.
    Address { by: i64, of_page: bool },
    /// Loads from a distance; also has the same instruction with the address in x17.
    Load { by: i64, from_x17: u32 },
    /// Calls, or depends on its address in another way.
    Bound,
    /// An instruction that compilers do not emit.
    Unknown,
}

/// Returns the signed number in `bits` bits of an instruction, starting at bit `at`.
fn signed(instruction: u32, at: u32, bits: u32) -> i64 {
    i64::from((instruction << (32 - at - bits)) as i32 >> (32 - bits))
}

impl Kind {
    fn of(instruction: u32) -> Kind {
        const IMM19: u32 = 0x7ffff << 5;
        const IMM14: u32 = 0x3fff << 5;
        const IMM9: u32 = 0x1ff << 5;
        let has = |mask: u32, value: u32| instruction & mask == value;
        if has(0xffff_0000, 0) {
            Kind::Unknown // udf
        } else if has(0xfc00_0000, JUMP) {
            Kind::Jump(4 * signed(instruction, 0, 26))
        } else if has(0xff00_0000, 0x5400_0000) || has(0x7e00_0000, 0x3400_0000) {
            Kind::Branch(4 * signed(instruction, 5, 19), IMM19) // b.cond, cbz, cbnz
        } else if has(0x7e00_0000, 0x3600_0000) {
            Kind::Branch(4 * signed(instruction, 5, 14), IMM14) // tbz, tbnz
        } else if has(0x7e00_0000, 0x7400_0000) {
            Kind::Branch(4 * signed(instruction, 5, 9), IMM9) // cbgt and those like it
        } else if has(0x1f00_0000, 0x1000_0000) {
            let of_page = instruction >> 31 == 1;
            let by = signed(instruction, 5, 19) << 2 | i64::from(instruction >> 29 & 3);
            Kind::Address { by: if of_page { by << 12 } else { by }, of_page }
        } else if has(0x3b00_0000, 0x1800_0000) {
            Kind::of_load(instruction)
        } else if has(0xfe00_0000, 0xd600_0000) {
            let is_call = instruction >> 21 & 7 == 1; // blr, blraa
            if is_call { Kind::Bound } else { Kind::Ends } // br, ret
        } else {
            let is_call = has(0xfc00_0000, 0x9400_0000);
            let stops = has(0xff00_0000, 0xd400_0000) && !has(0xffe0_001f, 0xd400_0001); // not svc
            let returns_here = has(0xff80_0000, 0xf380_0000) || has(0xffc0_0000, 0x5500_0000);
            let is_bound = is_call || stops || returns_here || SIGN_PLACE.contains(&instruction);
            if is_bound { Kind::Bound } else { Kind::Elsewhere }
        }
    }

    fn of_load(instruction: u32) -> Kind {
        const VECTOR: u32 = 1 << 26;
        let from_register = match (instruction & VECTOR != 0, instruction >> 30) {
            (false, 0) => 0xb940_0000,
            (false, 1) => 0xf940_0000,
            (false, 2) => 0xb980_0000, // ldrsw
            (true, 0) => 0xbd40_0000,
            (true, 1) => 0xfd40_0000,
            (true, 2) => 0x3dc0_0000,
            _ => return Kind::Unknown, // prfm, and none
        };
        let from_x17 = from_register | X17 << 5 | instruction & 31;
        Kind::Load { by: 4 * signed(instruction, 5, 19), from_x17 }
    }
}

/// Returns the instruction at byte `at`.
fn instruction(code: &[u8], at: usize) -> Option<u32> {
    let bytes = code.get(at..at + JUMP_BYTES)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes))
}

/// Moves the start of a function to the address `to`, a multiple of eight.
///
/// `code` has the bytes of the function, which starts at `address` and has `size` bytes, and of the
/// code after it up to the next function, as far as that is known.
pub fn relocate(code: &[u8], size: usize, address: u64, to: u64) -> Result<Moved, Unmovable> {
    let code = &code[..size.min(code.len())];
    let first = instruction(code, 0).ok_or(Unmovable::TooShort)?;
    let signing = SIGNINGS.into_iter().find(|(signs, _)| *signs == first);
    let stays = signing.is_some() || LANDINGS.contains(&first);
    let patch_at = if stays { JUMP_BYTES } else { 0 };
    let mut writer = Writer { to, moved: Moved::nothing(), word: None };
    writer.moved.patch_at = patch_at;
    if let Some((signs, undo)) = signing {
        writer.moved.undo = undo;
        writer.push(signs)?;
    }
    let moved = instruction(code, patch_at).ok_or(Unmovable::TooShort)?;
    let at = address.wrapping_add(patch_at as u64);
    let ends = writer.write(moved, at)?;
    if jumps_below(code, patch_at + JUMP_BYTES) {
        return Err(Unmovable::JumpInside);
    }
    if !ends {
        writer.jump(at.wrapping_add(JUMP_BYTES as u64))?;
    }
    writer.finish()
}

/// Returns whether an instruction of the function jumps to one of its first `below` bytes.
fn jumps_below(code: &[u8], below: usize) -> bool {
    let mut instructions = code.chunks_exact(JUMP_BYTES).zip((0i64..).step_by(JUMP_BYTES));
    instructions.any(|(bytes, at)| {
        let instruction = bytes.try_into().map_or(0, u32::from_le_bytes);
        match Kind::of(instruction) {
            Kind::Jump(by) | Kind::Branch(by, _) => (0..below as i64).contains(&(at + by)),
            _ => false,
        }
    })
}

/// Writes instructions for an address.
struct Writer {
    to: u64,
    moved: Moved,
    /// A word to place after the code, with the position and register of the instruction that loads
    /// it.
    word: Option<(u64, usize, u32)>,
}

impl Writer {
    /// Writes the instruction that was at address `at`. Returns whether execution never continues
    /// after it.
    fn write(&mut self, instruction: u32, at: u64) -> Result<bool, Unmovable> {
        let to = |by: i64| at.wrapping_add_signed(by);
        match Kind::of(instruction) {
            Kind::Elsewhere => self.push(instruction).map(|()| false),
            Kind::Ends => self.push(instruction).map(|()| true),
            Kind::Jump(by) => self.jump(to(by)).map(|()| true),
            Kind::Branch(by, bits) => {
                // Skip the jump back, and reach a jump to the target.
                self.push(instruction & !bits | 2 << 5)?;
                self.jump(to(JUMP_BYTES as i64))?;
                self.jump(to(by)).map(|()| true)
            }
            Kind::Address { by, of_page } => {
                const PAGE: u64 = 4096;
                let base = if of_page { at & !(PAGE - 1) } else { at };
                self.load_word(instruction & 31, base.wrapping_add_signed(by)).map(|()| false)
            }
            Kind::Load { by, from_x17 } => {
                self.load_word(X17, to(by))?;
                self.push(from_x17).map(|()| false)
            }
            Kind::Bound => Err(Unmovable::Instruction),
            Kind::Unknown => Err(Unmovable::Unknown),
        }
    }

    fn jump(&mut self, target: u64) -> Result<(), Unmovable> {
        let here = self.to.wrapping_add(self.moved.length() as u64);
        let jump = jump(here, target).ok_or(Unmovable::OutOfReach)?;
        self.moved.push(&jump)
    }

    fn load_word(&mut self, register: u32, word: u64) -> Result<(), Unmovable> {
        self.word = Some((word, self.moved.length(), register));
        self.push(load(register, 0))
    }

    fn push(&mut self, instruction: u32) -> Result<(), Unmovable> {
        self.moved.push(&instruction.to_le_bytes())
    }

    fn finish(mut self) -> Result<Moved, Unmovable> {
        if let Some((word, at, register)) = self.word {
            if !self.moved.length().is_multiple_of(size_of::<u64>()) {
                self.push(0)?;
            }
            let by = (self.moved.length() - at) as u32;
            self.moved.replace(at, load(register, by).to_le_bytes());
            self.moved.push(&word.to_le_bytes())?;
        }
        Ok(self.moved)
    }
}
