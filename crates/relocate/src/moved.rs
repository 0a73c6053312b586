//! The moved start of a function.

use crate::unmovable::Unmovable;

/// The most bytes of a moved start, including the jump back.
pub const MOVED_BYTES_MAX: usize = 64;
/// Bytes of the stub that a patched entry jumps to.
pub const STUB_BYTES: usize = 32;

/// The moved start of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    code: [u8; MOVED_BYTES_MAX],
    length: usize,
    /// Offset of the jump in the function: 0, or after an instruction that has to stay.
    pub patch_at: usize,
    /// Whether the code returns to an address that it has pushed, which shadow stacks forbid.
    pub pushes_return: bool,
    /// The instruction that reverts the one that stays, if that signs the return address; else 0.
    pub undo: u32,
}

impl Moved {
    /// Returns one without instructions.
    pub fn nothing() -> Moved {
        let code = [0; MOVED_BYTES_MAX];
        Moved { code, length: 0, patch_at: 0, pushes_return: false, undo: 0 }
    }

    /// Returns the instructions, for the address that they were moved to.
    pub fn code(&self) -> &[u8] {
        &self.code[..self.length]
    }

    /// Returns the bytes of the instructions so far.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Unmovable> {
        let end = self.length + bytes.len();
        let room = self.code.get_mut(self.length..end).ok_or(Unmovable::Unknown)?;
        room.copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }

    /// Replaces bytes that were pushed.
    pub(crate) fn replace<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(place) = self.code.get_mut(at..at + N) {
            place.copy_from_slice(&bytes);
        }
    }
}

/// Concatenates the parts of a stub, which must fit.
pub(crate) fn stub(parts: &[&[u8]]) -> [u8; STUB_BYTES] {
    let mut stub = [0; STUB_BYTES];
    let mut room = stub.iter_mut();
    for byte in parts.iter().copied().flatten() {
        if let Some(place) = room.next() {
            *place = *byte;
        }
    }
    stub
}
