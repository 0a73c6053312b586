//! Jumps that replace the start of functions: planned first, then written all together or not at
//! all.

use super::island::{Island, Slot};
use crate::{arch, attachment};
use heaptide_recorder::sys::kernel;
use heaptide_relocate::{JUMP_BYTES, Moved, Unmovable, jump, relocate};

/// The code of a function.
#[derive(Clone, Copy)]
pub struct Function {
    pub address: u64,
    /// Bytes according to its symbol.
    pub size: usize,
}

/// Why an entry is not patched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no space within its reach.
    NoRoom,
    /// Its first instructions cannot be moved.
    Unmovable,
}

impl From<Unmovable> for Refusal {
    fn from(_: Unmovable) -> Refusal {
        Refusal::Unmovable
    }
}

/// A jump to write.
#[derive(Clone, Copy)]
pub struct Patch {
    /// The address.
    at: u64,
    before: [u8; JUMP_BYTES],
    after: [u8; JUMP_BYTES],
    /// The function, callable while the jump is in place.
    pub moved: u64,
    beginning: Moved,
    /// The target of the jump.
    slot: Slot,
}

/// Functions start at multiples of this; padding is in between.
const ALIGNMENT: u64 = 16;
/// The largest function, in bytes, that is searched for jumps to its start.
const SIZE_MAX: usize = 64 << 10;

impl Patch {
    /// Plans a jump from the start of a function to `target`, through an island.
    pub fn plan(function: Function, target: u64, island: &mut Island) -> Result<Patch, Refusal> {
        let Function { address, size } = function;
        if size == 0 || size > SIZE_MAX {
            return Err(Refusal::Unmovable);
        }
        let end = (address + size as u64).next_multiple_of(ALIGNMENT);
        // SAFETY: code of a loaded object, and the padding after it in the same page.
        let code =
            unsafe { core::slice::from_raw_parts(address as *const u8, (end - address) as usize) };
        let slot = island.take().ok_or(Refusal::NoRoom)?;
        let beginning = relocate(code, size, address, slot.moved())?;
        // A running thread could be in that call.
        let may_push = !attachment::is_collecting() && !kernel::has_shadow_stack();
        if beginning.pushes_return && !may_push {
            return Err(Refusal::Unmovable);
        }
        let Moved { patch_at, .. } = beginning;
        let at = address + patch_at as u64;
        let after = jump(at, slot.jump()).ok_or(Refusal::NoRoom)?;
        let mut before = [0; JUMP_BYTES];
        let bytes = code.get(patch_at..patch_at + JUMP_BYTES);
        before.copy_from_slice(bytes.ok_or(Refusal::Unmovable)?);
        slot.write(target, &beginning);
        Ok(Patch { at, before, after, moved: slot.moved(), beginning, slot })
    }

    /// Makes the jump lead to the body of a family's functions, which gets this record.
    pub fn pass(&self, record: u64, body: u64) {
        self.slot.pass(record, body, &self.beginning);
    }
}

/// Returns whether code may be changed now: no other thread could execute it, or an attached
/// command changes it while it has stopped all threads.
pub fn may_change_code() -> bool {
    attachment::is_collecting() || kernel::is_alone()
}

/// Writes all jumps, or none if the kernel does not allow code changes. No other thread may execute
/// the functions meanwhile: it could be between two of the replaced instructions, and stores are
/// not atomic for a processor that fetches them.
pub fn write_all<'a>(patches: impl Iterator<Item = &'a Patch> + Clone) -> bool {
    if attachment::is_collecting() {
        let changes = patches.map(|patch| (patch.at, patch.before, patch.after));
        return attachment::collect(changes);
    }
    let written = patches.clone().take_while(|patch| write(patch.at, patch.after)).count();
    if written == patches.clone().count() {
        return true;
    }
    for patch in patches.take(written) {
        write(patch.at, patch.before);
    }
    false
}

/// Writes bytes of code. Returns false if the kernel denies it.
fn write(at: u64, bytes: [u8; JUMP_BYTES]) -> bool {
    let page = kernel::page_bytes();
    let first = at & !(page - 1);
    let length = ((at + JUMP_BYTES as u64).next_multiple_of(page) - first) as usize;
    // SAFETY: pages with code, which stays the same until the bytes are written; no other thread
    // executes these bytes.
    unsafe {
        if !kernel::protect(first, length, kernel::PROT_RWX) {
            return false;
        }
        (at as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), JUMP_BYTES);
        arch::code_has_changed(at, JUMP_BYTES);
        kernel::protect(first, length, kernel::PROT_RX);
    }
    true
}
