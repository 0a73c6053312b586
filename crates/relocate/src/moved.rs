//! What a beginning has become.

use crate::unmovable::Unmovable;

/// The most bytes that a moved beginning can have, the jump back included.
pub const MOVED_BYTES_MAX: usize = 64;
/// Bytes of what a patched entry jumps to.
pub const STUB_BYTES: usize = 32;

/// A beginning that was moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    code: [u8; MOVED_BYTES_MAX],
    length: usize,
    /// Where in the function the jump goes: 0, or behind an instruction that has to stay.
    pub patch_at: usize,
    /// Whether the code returns to an address that it has pushed, which shadow stacks forbid.
    pub pushes_return: bool,
    /// The instruction that takes back what the one that stays has done, the signature of the
    /// return address; 0: it has done nothing.
    pub undo: u32,
}

impl Moved {
    /// Of no instruction so far.
    pub(crate) fn new() -> Moved {
        let code = [0; MOVED_BYTES_MAX];
        Moved { code, length: 0, patch_at: 0, pushes_return: false, undo: 0 }
    }

    /// The instructions, for the address that they were moved to.
    pub fn code(&self) -> &[u8] {
        &self.code[..self.length]
    }

    /// Bytes of the instructions so far.
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

/// A stub of these parts; all of them fit.
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
