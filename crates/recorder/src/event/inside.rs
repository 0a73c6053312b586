//! A thread that is inside the recorder.

use crate::event::lane::LaneState;
use crate::sys::arch;
use core::ptr::NonNull;
use heaptide_unwind::kept::Registers;

/// The registers at the entry of a hook.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The stack pointer: that address, or on aarch64 that of the entry's frame record.
    pub sp: u64,
    pub bp: u64,
}

impl Entry {
    /// The return address.
    pub fn caller(self) -> u64 {
        // SAFETY: the entry passed it, and has not returned.
        unsafe { arch::return_address(self.sp) }
    }

    #[inline(always)]
    pub fn registers(self) -> Registers {
        Registers { pc: self.caller(), sp: self.sp + arch::ENTRY_BYTES, bp: self.bp }
    }
}

/// The place of a hook that takes no stack.
#[inline(always)]
pub fn here() -> Entry {
    Entry { sp: arch::stack_pointer(), bp: 0 }
}

/// Proof of being inside a hook: the lane is this call's alone, and re-entry is seen. Leaving is
/// dropping it.
pub struct Inside {
    pub(super) lane: NonNull<LaneState>,
}

impl Inside {
    /// Takes over from an entry that has found the thread's lane open and entered.
    ///
    /// # Safety
    /// It did so in this very call, and nobody else took over.
    #[inline(always)]
    pub unsafe fn by_entry(lane: NonNull<LaneState>) -> Inside {
        Inside { lane }
    }

    /// The registers at the entry of the hook. Kept in the lane and not by the hook, whose own
    /// registers are few: only a stack needs them.
    #[inline(always)]
    pub fn entry(&mut self) -> Entry {
        let (sp, bp) = self.lane().gate.registers();
        Entry { sp, bp }
    }

    /// The lane of the calling thread.
    #[inline(always)]
    pub fn lane(&mut self) -> &mut LaneState {
        // SAFETY: the gate is closed while this exists, so nobody else makes a reference to the
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
