//! Executable memory within reach of the functions that are intercepted: what an entry jumps to,
//! and its moved beginning.

use crate::arch;
use heaptide_recorder::sys::kernel;
use heaptide_relocate::{MOVED_BYTES_MAX, Moved, REACH, STUB_BYTES, jump_far, pass};

/// Bytes of an island.
const BYTES: usize = 16 << 10;
/// How far an island may be from the functions that it serves: less than a jump reaches, for their
/// object lies in between.
const DISTANCE_MAX: u64 = REACH / 2;
/// Distance of the places that are tried.
const STEP: u64 = 1 << 20;
/// The least distance of a place above an object, whose heap may grow there. Below a library may be
/// what was mapped after it, up to the end of the reach.
const ABOVE: u64 = DISTANCE_MAX / 4;
/// The lowest address that is tried.
const LOWEST: u64 = 64 << 10;

/// A slot: a stub, and a moved beginning.
const SLOT_BYTES: usize = STUB_BYTES + MOVED_BYTES_MAX;

/// Writable until [`Island::seal`].
pub struct Island {
    start: *mut u8,
    used: usize,
}

/// Room for a function.
#[derive(Clone, Copy)]
pub struct Slot {
    start: *mut u8,
}

impl Island {
    /// Maps an island within reach of an address; none if there is no room.
    pub fn near(address: u64) -> Option<Island> {
        let base = address & !(STEP - 1);
        let below =
            (1..DISTANCE_MAX / STEP).map(|step| base.saturating_sub(step * STEP).max(LOWEST));
        let above =
            (ABOVE / STEP..DISTANCE_MAX / STEP).map(|step| base.saturating_add(step * STEP));
        let start = below.chain(above).find_map(|place| kernel::map_at(place, BYTES))?;
        Some(Island { start, used: 0 })
    }

    /// The island at an address that [`Island::address`] has returned, to release it.
    pub fn at(address: usize) -> Island {
        Island { start: address as *mut u8, used: BYTES }
    }

    pub fn address(&self) -> usize {
        self.start as usize
    }

    /// Takes a slot; none if all are taken.
    pub fn take(&mut self) -> Option<Slot> {
        let start = self.start.wrapping_add(self.used);
        self.used += SLOT_BYTES;
        (self.used <= BYTES).then_some(Slot { start })
    }

    /// Makes it executable, and no longer writable. Returns false if the kernel refuses.
    pub fn seal(&self) -> bool {
        arch::code_has_changed(self.start as u64, BYTES);
        // SAFETY: memory of ours, of which nothing is written any more.
        unsafe { kernel::protect(self.start as u64, BYTES, kernel::PROT_RX) }
    }

    /// Unmaps it.
    ///
    /// # Safety
    /// Nothing jumps to it.
    pub unsafe fn release(self) {
        // SAFETY: as the caller promises.
        unsafe { kernel::unmap(self.start, BYTES) };
    }
}

impl Slot {
    /// The address that an entry jumps to.
    pub fn jump(self) -> u64 {
        self.start as u64
    }

    /// The address of the moved beginning.
    pub fn moved(self) -> u64 {
        self.start as u64 + STUB_BYTES as u64
    }

    /// Writes both: where the entry continues, and the moved beginning.
    pub fn write(self, target: u64, moved: &Moved) {
        // SAFETY: a slot of an island that is not sealed yet has room for both.
        unsafe {
            put(self.start, &jump_far(target, moved));
            put(self.moved() as *mut u8, moved.code());
        }
    }

    /// Has the entry continue at the body of a family's functions, which finds this record.
    pub fn pass(self, record: u64, body: u64, moved: &Moved) {
        // SAFETY: a slot of an island that is not sealed yet has room for a stub.
        unsafe { put(self.start, &pass(record, body, moved)) };
    }
}

/// Writes bytes.
///
/// # Safety
/// There is room.
unsafe fn put(to: *mut u8, bytes: &[u8]) {
    // SAFETY: as the caller promises.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}
