//! The thread's own 128 bytes: initial-exec TLS, so that reading it can never allocate.

use core::arch::{asm, global_asm};
use core::cell::Cell;

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
    pub lane: Cell<*mut u8>,
    /// Whether the thread is inside a hook.
    inside: Cell<u32>,
    /// Set while a lane is being got.
    pub busy: Cell<u32>,
    /// How often the thread gave a lane back: once in its exit, more if destructors allocated after
    /// that.
    pub released: Cell<u32>,
    /// Stack pointer at the entry of the hook that the thread is in.
    inside_sp: Cell<u64>,
    /// rbp there.
    inside_bp: Cell<u64>,
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
    /// What execs of this thread have built by the hooks of exec, or null.
    pub exec_memory: Cell<*mut u8>,
    /// What the block of the event that the thread is in is taken to hold.
    pub usable: Cell<u64>,
}

/// This thread's block.
#[inline(always)]
pub fn tls() -> &'static Tls {
    let block: *const Tls;
    // SAFETY: the initial-exec access sequence of the x86-64 TLS ABI; it reads the thread pointer
    // and the GOT.
    unsafe {
        asm!("mov {0}, qword ptr [rip + heaptide_tls@GOTTPOFF]", "add {0}, qword ptr fs:[0]",
            out(reg) block, options(pure, readonly, nostack));
    }
    // SAFETY: zeros are a value. Cells keep the reference in this thread, which the block outlives.
    unsafe { &*block }
}

impl Tls {
    /// Whether the thread is inside a hook.
    #[inline(always)]
    pub fn is_inside(&self) -> bool {
        self.inside.get() != 0
    }

    /// The thread enters a hook with these registers. A signal handler may look at any moment.
    #[inline(always)]
    pub fn enter(&self, sp: u64, bp: u64) {
        set_now(&self.inside, 1);
        set_now(&self.inside_sp, sp);
        set_now(&self.inside_bp, bp);
    }

    /// The thread enters a hook that takes no stack.
    #[inline(always)]
    pub fn enter_without_stack(&self, sp: u64) {
        set_now(&self.inside, 1);
        set_now(&self.inside_sp, sp);
    }

    /// The thread leaves the hook.
    #[inline(always)]
    pub fn leave(&self) {
        set_now(&self.inside, 0);
    }

    /// Stack pointer and frame pointer at the entry of the hook that the thread is in.
    #[inline(always)]
    pub fn registers(&self) -> (u64, u64) {
        (get_now(&self.inside_sp), get_now(&self.inside_bp))
    }

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

/// Stores a word that a compiler must neither move nor leave out.
#[inline(always)]
fn set_now<T>(cell: &Cell<T>, value: T) {
    // SAFETY: a cell of this thread's.
    unsafe { cell.as_ptr().write_volatile(value) };
}

/// Reads a word where it stands, so that no register has to hold it until then.
#[inline(always)]
fn get_now<T: Copy>(cell: &Cell<T>) -> T {
    // SAFETY: a cell of this thread's.
    unsafe { cell.as_ptr().read_volatile() }
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
