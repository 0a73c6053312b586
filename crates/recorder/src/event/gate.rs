//! Whether a thread is inside the recorder, and what it called: a state of its lane.

use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::compiler_fence;
use heaptide_format::Call;

/// Whether the thread of a lane is inside the recorder, and where it came in. A signal handler may
/// look at any moment.
#[repr(C)]
pub struct Gate {
    /// Zero, as wiped memory reads: the lane is of the process that this one is a fork of.
    state: Cell<u32>,
    /// The [`Call`] by which it came in, noted once it is inside; 0 for malloc, whose entry notes
    /// nothing. Read only while sites are recorded by call.
    call: Cell<u8>,
    /// Stack pointer at the entry of the hook that the thread is in.
    sp: Cell<u64>,
    /// rbp there.
    bp: Cell<u64>,
}

impl Gate {
    /// In `state`: the thread is inside.
    pub const INSIDE: u32 = 1;
    /// It is not.
    pub const OPEN: u32 = 2;
    /// Byte offsets of the fields for entries, whose first instructions are not Rust.
    pub const STATE_AT: usize = offset_of!(Gate, state);
    pub const CALL_AT: usize = offset_of!(Gate, call);
    pub const SP_AT: usize = offset_of!(Gate, sp);
    pub const BP_AT: usize = offset_of!(Gate, bp);

    /// Whether the thread may enter.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.state.get() == Gate::OPEN
    }

    /// Whether the lane is of the process that this one is a fork of.
    #[inline(always)]
    pub fn is_stale(&self) -> bool {
        self.state.get() == 0
    }

    /// The thread enters a hook with these registers.
    #[inline(always)]
    pub fn enter(&self, sp: u64, bp: u64) {
        self.state.set(Gate::INSIDE);
        self.sp.set(sp);
        self.bp.set(bp);
        compiler_fence(SeqCst);
    }

    /// The thread leaves the hook.
    #[inline(always)]
    pub fn leave(&self) {
        compiler_fence(SeqCst);
        self.state.set(Gate::OPEN);
    }

    /// Notes the call by which the thread came in.
    #[inline(always)]
    pub fn note_call(&self, call: Call) {
        self.call.set(call as u8);
    }

    /// Takes the call by which the thread came in: the next one is malloc unless another is noted.
    pub fn take_call(&self) -> Call {
        let noted = self.call.replace(0);
        Call::ALL.into_iter().find(|&call| call as u8 == noted).unwrap_or(Call::Malloc)
    }

    /// Stack pointer and frame pointer at the entry of the hook that the thread is in.
    #[inline(always)]
    pub fn registers(&self) -> (u64, u64) {
        (self.sp.get(), self.bp.get())
    }
}
