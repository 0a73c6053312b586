//! The thread's own 128 bytes in initial-exec TLS, which can be read without an allocation.

use crate::sys::arch;
use core::cell::Cell;

/// All zeros in a new thread, before the recorder has run in it.
///
/// | lane | busy | the thread |
/// |---|---|---|
/// | lane | 0 | has a lane, whose gate shows whether it is inside the recorder |
/// | null | 0 | is new, or has released its lane |
/// | any | 1 | is acquiring a lane, or must not acquire one now |
#[repr(C)]
pub struct Tls {
    /// The state of the lane (of the type in `event::lane`), as long as the thread has one.
    pub lane: Cell<*mut u8>,
    /// Set while a lane is being acquired.
    pub busy: Cell<u32>,
    /// How often the thread released a lane: once in its exit, more often if destructors allocated
    /// after that.
    pub released: Cell<u32>,
    /// The stack pointer with which the real operator new[], after a failure, is about to call
    /// operator new again; or 0.
    pub retry_sp: Cell<u64>,
    /// Running measurements (`thread_measure`); null if there never were any.
    pub measures: Cell<*mut u8>,
    /// The scope path in which to continue when the thread changes lanes, or 0.
    pub carried: Cell<u32>,
    /// Number of pauses of this thread.
    pub paused: Cell<u32>,
    /// Number of open scopes. In a forked child, whose path was the parent's, this many ends close
    /// nothing.
    pub depth: Cell<u32>,
    /// Number of locks of the recorder that the thread holds or waits for. A signal handler that
    /// finds any must not wait for a lock, since the interrupted thread may hold it.
    pub locks: Cell<u32>,
    /// The memory that the hooks of exec use for execs of this thread, or null.
    pub exec_memory: Cell<*mut u8>,
    /// The assumed usable bytes of the block of the current event.
    pub usable: Cell<u64>,
    /// Number of functions of device drivers that the thread is in.
    pub driver_calls: Cell<u32>,
}

/// Returns this thread's block.
#[inline(always)]
pub fn tls() -> &'static Tls {
    let block: *const Tls = arch::thread_block().cast();
    // SAFETY: all zeros is a valid value. Cells keep the reference in this thread, which the block
    // outlives.
    unsafe { &*block }
}

impl Tls {
    /// Notes that the thread enters a scope.
    #[inline(always)]
    pub fn enter_scope(&self) {
        self.depth.set(self.depth.get() + 1);
    }

    /// Notes that the thread leaves `count` scopes.
    #[inline(always)]
    pub fn leave_scopes(&self, count: u32) {
        self.depth.set(self.depth.get().saturating_sub(count));
    }
}

/// Returns the thread pointer, which in glibc and musl lies above the thread's stack, in one
/// mapping.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    arch::thread_pointer()
}
