//! Executable memory within reach of intercepted functions, with the targets of entries and the
//! moved starts of functions.

use crate::arch;
use heaptide_recorder::sys::kernel;
use heaptide_relocate::{MOVED_BYTES_MAX, Moved, REACH, STUB_BYTES, jump_far, pass};

/// Bytes of an island.
const BYTES: usize = 16 << 10;
/// The maximal distance of an island from its functions: less than a jump's reach, because their
/// object is in between.
const DISTANCE_MAX: u64 = REACH / 2;
/// The interval between tried addresses.
const STEP: u64 = 1 << 20;
/// The minimal distance of an address above an object, whose heap may grow there. Below a library,
/// up to the whole reach may be occupied by later mappings.
const ABOVE: u64 = DISTANCE_MAX / 4;
/// The lowest tried address.
const LOWEST: u64 = 64 << 10;

/// A slot: a stub, and a moved start of a function.
const SLOT_BYTES: usize = STUB_BYTES + MOVED_BYTES_MAX;
/// The alignment of slots.
const ALIGNMENT: usize = 16;

const _: () = assert!(SLOT_BYTES.is_multiple_of(ALIGNMENT));

/// Writable until [`Island::seal`].
pub struct Island {
    start: *mut u8,
    used: usize,
}

/// Space for a function.
#[derive(Clone, Copy)]
pub struct Slot {
    start: *mut u8,
}

impl Island {
    /// Maps an island within reach of an address; `None` if there is no space.
    pub fn near(address: u64) -> Option<Island> {
        let base = address & !(STEP - 1);
        let below =
            (1..DISTANCE_MAX / STEP).map(|step| base.saturating_sub(step * STEP).max(LOWEST));
        let above =
            (ABOVE / STEP..DISTANCE_MAX / STEP).map(|step| base.saturating_add(step * STEP));
        let start = below.chain(above).find_map(|place| kernel::map_at(place, BYTES))?;
        Some(Island { start, used: 0 })
    }

    /// Returns the island at an address that [`Island::address`] returned, to release it.
    pub fn at(address: usize) -> Island {
        Island { start: address as *mut u8, used: BYTES }
    }

    pub fn address(&self) -> usize {
        self.start as usize
    }

    /// Takes a slot; `None` if all are taken.
    pub fn take(&mut self) -> Option<Slot> {
        let start = self.start.wrapping_add(self.used);
        self.used += SLOT_BYTES;
        (self.used <= BYTES).then_some(Slot { start })
    }

    /// Keeps a value in a slot, and returns its address; `None` if all slots are taken.
    pub fn keep<T>(&mut self, value: T) -> Option<u64> {
        const { assert!(size_of::<T>() <= SLOT_BYTES && align_of::<T>() <= ALIGNMENT) };
        let Slot { start } = self.take()?;
        // SAFETY: a slot of an island that is not sealed yet has the space and the alignment.
        unsafe { start.cast::<T>().write(value) };
        Some(start as u64)
    }

    /// Makes it executable and read-only. Returns false if the kernel denies it.
    pub fn seal(&self) -> bool {
        arch::code_has_changed(self.start as u64, BYTES);
        // SAFETY: memory of this library that is no longer written.
        unsafe { kernel::protect(self.start as u64, BYTES, kernel::PROT_RX) }
    }

    /// Unmaps it.
    ///
    /// # Safety
    /// Nothing jumps to it.
    pub unsafe fn release(self) {
        // SAFETY: the caller's contract.
        unsafe { kernel::unmap(self.start, BYTES) };
    }
}

impl Slot {
    /// Returns the address that an entry jumps to.
    pub fn jump(self) -> u64 {
        self.start as u64
    }

    /// Returns the address of the moved start.
    pub fn moved(self) -> u64 {
        self.start as u64 + STUB_BYTES as u64
    }

    /// Writes the jump to `target`, and the moved start.
    pub fn write(self, target: u64, moved: &Moved) {
        // SAFETY: a slot of an island that is not sealed yet has space for both.
        unsafe {
            put(self.start, &jump_far(target, moved));
            put(self.moved() as *mut u8, moved.code());
        }
    }

    /// Makes it a function of its own, which continues at the body of a family's functions with
    /// this record. Returns its address.
    pub fn call(self, record: u64, body: u64) -> u64 {
        self.pass(record, body, &Moved::nothing());
        self.jump()
    }

    /// Makes the entry continue at the body of a family's functions, which gets this record.
    pub fn pass(self, record: u64, body: u64, moved: &Moved) {
        // SAFETY: a slot of an island that is not sealed yet has space for a stub.
        unsafe { put(self.start, &pass(record, body, moved)) };
    }
}

/// Writes bytes.
///
/// # Safety
/// There is space at `to`.
unsafe fn put(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's contract.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}
