//! The gate of a lane: whether its thread is inside the recorder, and which function it called.

use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::compiler_fence;
use heaptide_format::Call;

/// Whether the thread of a lane is inside the recorder, and where it entered. A signal handler may
/// read it at any time.
#[repr(C)]
pub struct Gate {
    /// 0, as wiped memory reads, if the lane belongs to the process from which this one was forked;
    /// [`Gate::OPEN`] if the thread is outside; otherwise the stack pointer at the entry of the
    /// hook that it is in. One store closes the gate and sets the stack pointer: between two, a
    /// signal handler would find one that belongs to an earlier event.
    state: Cell<u64>,
    /// The frame pointer at that entry.
    bp: Cell<u64>,
    /// The [`Call`] by which the thread entered, noted once it is inside; 0 for malloc, whose entry
    /// notes nothing. Read only while sites are recorded by call.
    call: Cell<u8>,
    /// For calloc in a trace, bytes of an element; else 0.
    element: Cell<u32>,
}

impl Gate {
    /// Value of `state` while the thread is outside.
    pub const OPEN: u64 = heaptide_format::attachment::GATE_OPEN;
    /// Byte offsets of the fields, for entries whose first instructions are not Rust.
    pub const STATE_AT: usize = offset_of!(Gate, state);
    pub const CALL_AT: usize = offset_of!(Gate, call);
    pub const BP_AT: usize = offset_of!(Gate, bp);

    /// Returns whether the thread may enter.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.state.get() == Gate::OPEN
    }

    /// Returns whether the lane belongs to the process from which this one was forked.
    #[inline(always)]
    pub fn is_stale(&self) -> bool {
        self.state.get() == 0
    }

    /// Notes that the thread enters a hook with these registers.
    #[inline(always)]
    pub fn enter(&self, sp: u64, bp: u64) {
        self.state.set(sp);
        self.bp.set(bp);
        compiler_fence(SeqCst);
    }

    /// Notes that the thread leaves the hook.
    #[inline(always)]
    pub fn leave(&self) {
        compiler_fence(SeqCst);
        self.state.set(Gate::OPEN);
    }

    /// Notes the call by which the thread entered.
    #[inline(always)]
    pub fn note_call(&self, call: Call) {
        self.call.set(call as u8);
    }

    /// Notes the bytes of an element of the block that is being allocated; 0 if it has none.
    #[inline(always)]
    pub fn note_element(&self, bytes: u32) {
        self.element.set(bytes);
    }

    /// Returns the bytes of an element of the block that is being allocated, 0 if it has none.
    #[inline(always)]
    pub fn element(&self) -> u32 {
        self.element.get()
    }

    /// Returns the call by which the thread entered, and resets it to malloc.
    pub fn take_call(&self) -> Call {
        let noted = self.call.replace(0);
        Call::ALL.into_iter().find(|&call| call as u8 == noted).unwrap_or(Call::Malloc)
    }

    /// Returns stack pointer and frame pointer at the entry of the hook that the thread is in.
    #[inline(always)]
    pub fn registers(&self) -> (u64, u64) {
        (self.state.get(), self.bp.get())
    }

    /// Returns the stack pointer at the entry of the hook that the thread is in; none if it is
    /// outside.
    pub fn entered_at(&self) -> Option<u64> {
        Some(self.state.get()).filter(|&sp| sp > Gate::OPEN)
    }
}
