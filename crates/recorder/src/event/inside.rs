//! The state of a thread that is inside the recorder.

use crate::event::lane::LaneState;
use crate::sys::arch;
use core::ptr::NonNull;
use heaptide_unwind::kept::Registers;

/// The registers at the entry of a hook.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The stack pointer: the address of the return address, or on aarch64 of the entry's frame
    /// record.
    pub sp: u64,
    pub bp: u64,
}

impl Entry {
    /// Returns the return address.
    pub fn caller(self) -> u64 {
        // SAFETY: the entry passed the address, and has not returned.
        unsafe { arch::return_address(self.sp) }
    }

    #[inline(always)]
    pub fn registers(self) -> Registers {
        Registers { pc: self.caller(), sp: self.sp + arch::ENTRY_BYTES, bp: self.bp }
    }
}

/// Returns the registers of a hook that records no stack.
#[inline(always)]
pub fn here() -> Entry {
    Entry { sp: arch::stack_pointer(), bp: 0 }
}

/// Proof that the thread is inside a hook. It has exclusive access to the lane, and re-entry is
/// detected. Dropping it leaves the hook.
pub struct Inside {
    pub(super) lane: NonNull<LaneState>,
}

impl Inside {
    /// Takes over from an entry that found the thread's lane open and entered it.
    ///
    /// # Safety
    /// The entry did so in this very call, and nothing else has taken over.
    #[inline(always)]
    pub unsafe fn by_entry(lane: NonNull<LaneState>) -> Inside {
        Inside { lane }
    }

    /// Returns the registers at the entry of the hook. They are kept in the lane, since only stacks
    /// need them and the hook has few registers.
    #[inline(always)]
    pub fn entry(&mut self) -> Entry {
        let (sp, bp) = self.lane().gate.registers();
        Entry { sp, bp }
    }

    /// Returns the lane of the calling thread.
    #[inline(always)]
    pub fn lane(&mut self) -> &mut LaneState {
        // SAFETY: the gate is closed while this exists, so nothing else makes a reference to the
        // lane.
        unsafe { self.lane.as_mut() }
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        self.lane().gate.leave();
    }
}
