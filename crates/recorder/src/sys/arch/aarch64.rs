//! aarch64, AAPCS64 on Linux.

use core::arch::{asm, global_asm};

/// Numbers of system calls.
pub mod numbers {
    pub const FCNTL: usize = 25;
    pub const FCHMOD: usize = 52;
    pub const DUP3: usize = 24;
    pub const MKDIRAT: usize = 34;
    pub const UNLINKAT: usize = 35;
    pub const RENAMEAT: usize = 38;
    pub const PIVOT_ROOT: usize = 41;
    pub const FALLOCATE: usize = 47;
    pub const CHROOT: usize = 51;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const READ: usize = 63;
    pub const PREAD: usize = 67;
    pub const WRITE: usize = 64;
    pub const PWRITE: usize = 68;
    pub const READLINKAT: usize = 78;
    pub const FSTAT: usize = 80;
    pub const CAPGET: usize = 90;
    pub const CAPSET: usize = 91;
    pub const EXIT: usize = 93;
    pub const EXIT_GROUP: usize = 94;
    pub const UNSHARE: usize = 97;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SCHED_YIELD: usize = 124;
    pub const FUTEX: usize = 98;
    pub const TGKILL: usize = 131;
    pub const RT_SIGACTION: usize = 134;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const SETREGID: usize = 143;
    pub const SETGID: usize = 144;
    pub const SETREUID: usize = 145;
    pub const SETUID: usize = 146;
    pub const SETRESUID: usize = 147;
    pub const SETRESGID: usize = 149;
    pub const SETFSUID: usize = 151;
    pub const SETFSGID: usize = 152;
    pub const SETSID: usize = 157;
    pub const SETGROUPS: usize = 159;
    pub const UNAME: usize = 160;
    pub const PRCTL: usize = 167;
    pub const GETPID: usize = 172;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const GETSOCKOPT: usize = 209;
    pub const PPOLL: usize = 73;
    pub const GETPPID: usize = 173;
    pub const GETUID: usize = 174;
    pub const GETEUID: usize = 175;
    pub const GETGID: usize = 176;
    pub const GETTID: usize = 178;
    pub const SHMCTL: usize = 195;
    pub const MUNMAP: usize = 215;
    pub const MREMAP: usize = 216;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const MMAP: usize = 222;
    pub const MPROTECT: usize = 226;
    pub const MLOCK: usize = 228;
    pub const MLOCKALL: usize = 230;
    pub const MINCORE: usize = 232;
    pub const MADVISE: usize = 233;
    pub const WAIT4: usize = 260;
    pub const PRLIMIT: usize = 261;
    pub const SETNS: usize = 268;
    pub const PROCESS_VM_READV: usize = 270;
    pub const SECCOMP: usize = 277;
    pub const MEMBARRIER: usize = 283;
    pub const MLOCK2: usize = 284;
    pub const CLOSE_RANGE: usize = 436;
    pub const FACCESSAT2: usize = 439;
    pub const LANDLOCK_RESTRICT_SELF: usize = 446;
}

/// Makes a system call. Returns the kernel's return value: a negated error number or a result.
///
/// # Safety
/// The arguments are valid for the call.
#[inline(always)]
pub(crate) unsafe fn system_call(n: usize, a: [usize; 6]) -> isize {
    let r: isize;
    // SAFETY: the kernel's convention; it changes x0 and memory for which the caller is
    // responsible.
    unsafe {
        asm!("svc #0", in("x8") n, inlateout("x0") a[0] as isize => r, in("x1") a[1],
            in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    r
}

/// Calls `clone` with a separate stack, on which the child calls `entry(argument)` and exits with
/// the returned status. Returns the kernel's return value.
///
/// # Safety
/// That of [`crate::sys::exec_calls::clone`].
pub(crate) unsafe fn clone_call(
    flags: usize,
    top: *mut u8,
    entry: extern "C" fn(*mut u8) -> i32,
    argument: *mut u8,
) -> isize {
    let r: isize;
    // SAFETY: promised by the caller. The child begins after the call with nothing on its stack,
    // and never leaves this block.
    unsafe {
        asm!("svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "mov x8, {exit}",
            "svc #0",
            "brk #1",
            "2:",
            exit = const numbers::EXIT,
            in("x8") numbers::CLONE, inlateout("x0") flags as isize => r, in("x1") top,
            in("x2") 0, in("x3") 0, in("x4") 0, in("x20") entry, in("x21") argument);
    }
    r
}

/// Calls `run` with the stack pointer at `top`.
#[inline(never)]
pub(crate) fn switch_stack(top: *mut u8, run: extern "C" fn(*mut u8), job: *mut u8) {
    // SAFETY: promised by the caller's caller. The callee preserves x20, so the old stack pointer
    // is restored.
    unsafe {
        asm!("mov x20, sp", "mov sp, {top}", "blr {run}", "mov sp, x20",
            run = in(reg) run, top = in(reg) top, in("x0") job, out("x20") _, clobber_abi("C"));
    }
}

/// `struct stat`; unused fields are private.
#[repr(C)]
pub(crate) struct Stat {
    pub device: u64,
    pub inode: u64,
    pub mode: u32,
    links: u32,
    pub user: u32,
    pub group: u32,
    device_of_file: u64,
    pad: u64,
    pub size: u64,
    rest: [u64; 9],
}

const _: () = assert!(size_of::<Stat>() == 128);

/// The number and first argument of the call that writes whether the thread has a shadow stack.
pub(crate) const SHADOW_STACK_STATUS: (usize, usize) = (numbers::PRCTL, 74);

// Not aligned more than the thread control block: otherwise glibc rejects a library that is loaded
// late.
global_asm!(
    ".pushsection .tbss.heaptide_tls,\"awT\",%nobits",
    ".hidden heaptide_tls",
    ".globl heaptide_tls",
    ".type heaptide_tls,%object",
    ".size heaptide_tls,128",
    ".p2align 4",
    "heaptide_tls:",
    ".zero 128",
    ".popsection",
);

/// Returns the thread's block of `heaptide_tls`.
#[inline(always)]
pub(crate) fn thread_block() -> *const u8 {
    let block: *const u8;
    // SAFETY: the initial-exec access sequence of the aarch64 TLS ABI; it reads the thread pointer
    // and the GOT.
    unsafe {
        asm!("adrp {0}, :gottprel:heaptide_tls",
            "ldr {0}, [{0}, :gottprel_lo12:heaptide_tls]",
            "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}",
            out(reg) block, out(reg) _, options(pure, readonly, nostack, preserves_flags));
    }
    block
}

/// Returns the thread pointer: in glibc and musl it points behind the thread control block, which
/// lies above the thread's stack, in one mapping.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    let p: u64;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {0}, tpidr_el0", out(reg) p, options(pure, nomem, nostack, preserves_flags));
    };
    p
}

/// Returns the loader's `_r_debug` and `_dl_debug_addr`; null if the symbol does not exist.
pub(crate) fn debug_symbols() -> (*const usize, *const *const usize) {
    let glibc: *const usize;
    let musl: *const *const usize;
    // SAFETY: reads two weak GOT entries, null if the symbol does not exist.
    unsafe {
        asm!(".weak _r_debug", ".weak _dl_debug_addr",
            "adrp {0}, :got:_r_debug",
            "ldr {0}, [{0}, :got_lo12:_r_debug]",
            "adrp {1}, :got:_dl_debug_addr",
            "ldr {1}, [{1}, :got_lo12:_dl_debug_addr]",
            out(reg) glibc, out(reg) musl, options(pure, readonly, nostack, preserves_flags));
    }
    (glibc, musl)
}

/// Relocations that store the address of a function in a word: bound at start, and at first use.
pub(crate) const R_GLOB_DAT: u32 = 1025;
pub(crate) const R_JUMP_SLOT: u32 = 1026;

/// Number of low bits of the counter that are dropped in ticks of a trace: with most processors a
/// tick is ten or some more nanoseconds, with the others one.
pub const COUNTER_SHIFT: u32 = 0;

/// A number of counts that take less than a millisecond, at rates from 8.2 MHz.
pub const BELOW_MILLISECOND: u64 = 1 << 13;

/// Returns the virtual counter. May only be called if reading it is not forbidden.
#[inline(always)]
pub fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux allows every process to read.
    unsafe { asm!("mrs {0}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Returns the virtual counter after all earlier loads. Otherwise processors may read it first: a
/// free would have a time before the allocation by the thread that passed the block on.
#[inline(always)]
pub fn counter_in_order() -> u64 {
    let ticks: u64;
    // SAFETY: barriers, and the read of a register that Linux allows every process to read.
    unsafe { asm!("dsb ishld", "isb", "mrs {0}, cntvct_el0", out(reg) ticks, options(nostack)) };
    ticks
}

/// Returns whether the counter has a constant rate, which the architecture guarantees.
pub fn counter_is_steady() -> bool {
    true
}

/// The name of the vDSO's function that reads a clock.
pub const VDSO_CLOCK_GETTIME: &[u8] = b"__kernel_clock_gettime\0";

/// The kernel's clocks that use this counter; they imply that it is the same on all cores.
pub const COUNTER_CLOCKS: [&[u8]; 1] = [b"arch_sys_counter\n"];

/// Returns the return address of the function whose entry passed `sp`, the address of its frame
/// record.
///
/// # Safety
/// That function has not returned.
#[inline(always)]
pub unsafe fn return_address(sp: u64) -> u64 {
    // SAFETY: the second word of the record (`pass_registers`).
    unsafe { *(sp as *const u64).wrapping_add(1) }
}

/// Maximum size of a page: kernels are built for 4, 16 or 64 KiB.
pub const PAGE_BYTES_MAX: u64 = 64 << 10;

/// Bits of the addresses of a program: kernels return larger ones only on request.
pub const USER_ADDRESS_BITS: u32 = 48;

/// Bytes between the stack pointer that an entry passes and that of its caller.
pub const ENTRY_BYTES: u64 = 16;

/// Returns the stack pointer.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// The first instructions of an entry: they store its frame record, which holds the return address.
#[macro_export]
macro_rules! push_record {
    () => {
        "stp x29, x30, [sp, #-16]!\n.cfi_adjust_cfa_offset 16\n\
         .cfi_rel_offset x29, 0\n.cfi_rel_offset x30, 8\n"
    };
}

/// The last instructions of an entry: they remove its frame record.
#[macro_export]
macro_rules! pop_record {
    () => {
        "ldp x29, x30, [sp], #16\n.cfi_adjust_cfa_offset -16\n.cfi_restore x29\n.cfi_restore x30\n"
    };
}

/// Instructions of an entry that call `{body}` with the address of a frame record and the caller's
/// frame pointer after this number of arguments, and return.
#[macro_export]
macro_rules! pass_registers {
    (1) => {
        concat!(
            $crate::push_record!(),
            "mov x1, sp\nmov x2, x29\nmov x29, sp\nbl {body}\n",
            $crate::pop_record!(),
            "ret\n"
        )
    };
    (2) => {
        concat!(
            $crate::push_record!(),
            "mov x2, sp\nmov x3, x29\nmov x29, sp\nbl {body}\n",
            $crate::pop_record!(),
            "ret\n"
        )
    };
    (3) => {
        concat!(
            $crate::push_record!(),
            "mov x3, sp\nmov x4, x29\nmov x29, sp\nbl {body}\n",
            $crate::pop_record!(),
            "ret\n"
        )
    };
    (4) => {
        concat!(
            $crate::push_record!(),
            "mov x4, sp\nmov x5, x29\nmov x29, sp\nbl {body}\n",
            $crate::pop_record!(),
            "ret\n"
        )
    };
}
pub use pass_registers;

/// The same for a function with four arguments, of which the first is a large struct: the caller
/// passes its address.
#[macro_export]
macro_rules! pass_registers_of_struct_and_three {
    () => {
        $crate::pass_registers!(4)
    };
}
pub use pass_registers_of_struct_and_three;

/// Returns the address of a symbol that is defined in this program or library.
#[macro_export]
macro_rules! address_of_symbol {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: computes an address.
        unsafe {
            core::arch::asm!(concat!("adrp {0}, ", $symbol),
                concat!("add {0}, {0}, :lo12:", $symbol), out(reg) address,
                options(pure, nomem, nostack, preserves_flags));
        }
        address
    }};
}

/// Bytes of code that [`is_signal_return`] and [`is_trampoline_of_python`] inspect, before and
/// after the return address.
pub const CODE_BEFORE: usize = 0;
pub const CODE_BEHIND: usize = 8;

/// Returns whether a function returns to the code that ends a signal handler.
pub fn is_signal_return(behind: &[u8]) -> bool {
    // mov x8, #139; svc #0
    behind.starts_with(&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4])
}

/// Bytes of a call.
pub const CALL_BYTES: usize = 4;
/// An instruction without effect.
pub const NOP: &[u8] = &[0x1f, 0x20, 0x03, 0xd5];

/// Returns whether an instruction is a call: `bl`, `blr`, or `blr` with authentication.
pub fn ends_with_call(code: &[u8; CALL_BYTES]) -> bool {
    let word = u32::from_le_bytes(*code);
    let is_direct = word & 0xfc00_0000 == 0x9400_0000;
    let is_indirect = word & 0xffff_fc1f == 0xd63f_0000 || word & 0xfeff_f800 == 0xd63f_0800;
    is_direct || is_indirect
}

/// Returns whether the code around a return address is a function of CPython's `-X perf` that keeps
/// no frame pointer. On aarch64 they keep it.
pub fn is_trampoline_of_python(_: &[u8], _: &[u8]) -> bool {
    false
}
