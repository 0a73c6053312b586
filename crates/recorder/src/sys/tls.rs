//! The thread's own 128 bytes: initial-exec TLS, so that reading it can never allocate.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.heaptide_tls,\"awT\",@nobits",
    ".hidden heaptide_tls",
    ".globl heaptide_tls",
    ".type heaptide_tls,@object",
    ".size heaptide_tls,128",
    ".p2align 6",
    "heaptide_tls:",
    ".zero 128",
    ".popsection",
);

/// Zero in a new thread, before anything of ours has run in it.
///
/// | lane | inside | busy | the thread is |
/// |---|---|---|---|
/// | lane | 0 | 0 | outside the recorder |
/// | lane | 1 | 0 | inside a hook |
/// | null | 0 | 0 | new, or has given its lane back |
/// | null | 0 | 1 | getting a lane, or a thread that could not get one and is not to try now |
///
/// Entering a hook stores a constant: a pointer taken away and put back would make every event wait
/// for the store of the one before.
#[repr(C)]
pub struct Tls {
    /// The state of the lane (`event::lane` knows its type), as long as the thread has one.
    pub lane: *mut u8,
    /// Whether the thread is inside a hook.
    pub inside: u32,
    /// Set while a lane is being got.
    pub busy: u32,
    /// How often the thread gave a lane back: once in its exit, more if destructors allocated after
    /// that.
    pub released: u32,
    /// Stack pointer at the entry of the hook that the thread is in.
    pub inside_sp: u64,
    /// rbp there.
    pub inside_bp: u64,
    /// Entry of a failed operator new[] whose real form is about to ask operator new once more.
    pub retry_sp: u64,
    /// Measurements that are going on (`thread_measure`); null if there never were
    /// any.
    pub measures: *mut u8,
    /// The scope path to go on in when the thread changes lanes, or 0.
    pub carried: u32,
    /// Pauses of this thread.
    pub paused: u32,
    /// Scopes open. In a forked child, whose path was the parent's, so many ends belong to none.
    pub depth: u32,
    /// What execs of this thread have built by the hooks of exec, or null.
    pub exec_memory: *mut u8,
    /// What the block of the event that the thread is in is taken to hold.
    pub usable: u64,
}

/// This thread's block.
#[inline(always)]
pub fn tls() -> *mut Tls {
    let p: *mut Tls;
    // SAFETY: the initial-exec access sequence of the x86-64 TLS ABI; it reads the thread pointer
    // and the GOT.
    unsafe {
        asm!("mov {0}, qword ptr [rip + heaptide_tls@GOTTPOFF]", "add {0}, qword ptr fs:[0]",
            out(reg) p, options(pure, readonly, nostack));
    }
    p
}

/// The thread enters a scope.
#[inline(always)]
pub fn enter_scope() {
    // SAFETY: the thread's own block.
    unsafe { (*tls()).depth += 1 };
}

/// The thread leaves so many scopes.
#[inline(always)]
pub fn leave_scopes(count: u32) {
    // SAFETY: the thread's own block.
    unsafe { (*tls()).depth = (*tls()).depth.saturating_sub(count) };
}

/// The thread is in so many scopes now.
pub fn set_depth(depth: u32) {
    // SAFETY: the thread's own block.
    unsafe { (*tls()).depth = depth };
}

/// The thread control block's address: in glibc and musl it lies above the thread's stack, in one
/// mapping.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    let p: u64;
    // SAFETY: the first word at fs is its own address (x86-64 TLS ABI).
    unsafe { asm!("mov {0}, qword ptr fs:[0]", out(reg) p, options(pure, readonly, nostack)) };
    p
}
