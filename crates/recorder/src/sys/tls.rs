//! The thread's own 128 bytes: initial-exec TLS, so that reading it can never allocate.

use crate::sys::arch;
use core::cell::Cell;

/// Zero in a new thread, before anything of ours has run in it.
///
/// | lane | busy | the thread |
/// |---|---|---|
/// | lane | 0 | has a lane, which knows whether it is inside the recorder |
/// | null | 0 | is new, or has given its lane back |
/// | null | 1 | is getting a lane, or could not get one and is not to try now |
#[repr(C)]
pub struct Tls {
    /// The state of the lane (`event::lane` knows its type), as long as the thread has one.
    pub lane: Cell<*mut u8>,
    /// Set while a lane is being got.
    pub busy: Cell<u32>,
    /// How often the thread gave a lane back: once in its exit, more if destructors allocated after
    /// that.
    pub released: Cell<u32>,
    /// Entry of a failed operator new[] whose real form is about to ask operator new once more.
    pub retry_sp: Cell<u64>,
    /// Measurements that are going on (`thread_measure`); null if there never were
    /// any.
    pub measures: Cell<*mut u8>,
    /// The scope path to go on in when the thread changes lanes, or 0.
    pub carried: Cell<u32>,
    /// Pauses of this thread.
    pub paused: Cell<u32>,
    /// Scopes open. In a forked child, whose path was the parent's, so many ends belong to none.
    pub depth: Cell<u32>,
    /// Locks of the recorder that the thread holds or tries to get. A signal handler that finds
    /// any must not wait for one: the thread that it interrupted may have it.
    pub locks: Cell<u32>,
    /// What execs of this thread have built by the hooks of exec, or null.
    pub exec_memory: Cell<*mut u8>,
    /// What the block of the event that the thread is in is taken to hold.
    pub usable: Cell<u64>,
}

/// This thread's block.
#[inline(always)]
pub fn tls() -> &'static Tls {
    let block: *const Tls = arch::thread_block().cast();
    // SAFETY: zeros are a value. Cells keep the reference in this thread, which the block outlives.
    unsafe { &*block }
}

impl Tls {
    /// The thread enters a scope.
    #[inline(always)]
    pub fn enter_scope(&self) {
        self.depth.set(self.depth.get() + 1);
    }

    /// The thread leaves so many scopes.
    #[inline(always)]
    pub fn leave_scopes(&self, count: u32) {
        self.depth.set(self.depth.get().saturating_sub(count));
    }
}

/// The thread pointer: in glibc and musl it lies above the thread's stack, in one mapping.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    arch::thread_pointer()
}
