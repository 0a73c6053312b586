//! x86-64, System V.

use core::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc};
use core::arch::{asm, global_asm};

/// Numbers of system calls.
pub mod numbers {
    pub const READ: usize = 0;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const PREAD: usize = 17;
    pub const WRITE: usize = 1;
    pub const PWRITE: usize = 18;
    pub const SCHED_YIELD: usize = 24;
    pub const FUTEX: usize = 202;
    pub const MREMAP: usize = 25;
    pub const MINCORE: usize = 27;
    pub const MADVISE: usize = 28;
    pub const SHMCTL: usize = 31;
    pub const GETPID: usize = 39;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const GETSOCKOPT: usize = 55;
    #[cfg(not(miri))]
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    #[cfg(not(miri))]
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const UNAME: usize = 63;
    pub const FCNTL: usize = 72;
    pub const FCHMOD: usize = 91;
    pub const GETUID: usize = 102;
    pub const GETGID: usize = 104;
    pub const SETUID: usize = 105;
    pub const SETGID: usize = 106;
    pub const GETEUID: usize = 107;
    pub const GETPPID: usize = 110;
    pub const SETSID: usize = 112;
    pub const SETREUID: usize = 113;
    pub const SETREGID: usize = 114;
    pub const SETGROUPS: usize = 116;
    pub const SETRESUID: usize = 117;
    pub const SETRESGID: usize = 119;
    pub const SETFSUID: usize = 122;
    pub const SETFSGID: usize = 123;
    pub const CAPGET: usize = 125;
    pub const CAPSET: usize = 126;
    pub const MLOCK: usize = 149;
    pub const MLOCKALL: usize = 151;
    pub const PIVOT_ROOT: usize = 155;
    pub const PRCTL: usize = 157;
    pub const ARCH_PRCTL: usize = 158;
    pub const CHROOT: usize = 161;
    pub const GETTID: usize = 186;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const PPOLL: usize = 271;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const MKDIRAT: usize = 258;
    pub const UNLINKAT: usize = 263;
    pub const RENAMEAT: usize = 264;
    pub const READLINKAT: usize = 267;
    pub const UNSHARE: usize = 272;
    pub const FALLOCATE: usize = 285;
    pub const DUP3: usize = 292;
    pub const PRLIMIT: usize = 302;
    pub const SETNS: usize = 308;
    pub const PROCESS_VM_READV: usize = 310;
    pub const SECCOMP: usize = 317;
    pub const MEMBARRIER: usize = 324;
    pub const MLOCK2: usize = 325;
    pub const CLOSE_RANGE: usize = 436;
    pub const FACCESSAT2: usize = 439;
    pub const LANDLOCK_RESTRICT_SELF: usize = 446;
}

/// Makes a system call. Returns the kernel's return value: a negated error number or a result.
///
/// # Safety
/// The arguments are valid for the call.
#[cfg(not(miri))]
#[inline(always)]
pub(crate) unsafe fn system_call(n: usize, a: [usize; 6]) -> isize {
    let r: isize;
    // SAFETY: the kernel's convention; it changes rax, rcx, r11 and memory for which the caller is
    // responsible.
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => r, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    r
}

/// Calls `clone` with a separate stack, on which the child calls `entry(argument)` and exits with
/// the returned status. Returns the kernel's return value.
///
/// # Safety
/// That of [`crate::sys::exec_calls::clone`].
#[cfg(not(miri))]
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
        asm!("syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "mov edi, eax",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const numbers::EXIT,
            inlateout("rax") numbers::CLONE as isize => r, in("rdi") flags, in("rsi") top,
            in("rdx") 0, in("r10") 0, in("r8") 0, in("r12") entry, in("r13") argument,
            lateout("rcx") _, lateout("r11") _);
    }
    r
}

/// Calls `run` with the stack pointer at `top`.
#[inline(never)]
pub(crate) fn switch_stack(top: *mut u8, run: extern "C" fn(*mut u8), job: *mut u8) {
    // SAFETY: promised by the caller's caller. The callee preserves r12, so the old stack pointer
    // is restored.
    unsafe {
        asm!("xchg rsp, r12", "call {run}", "mov rsp, r12",
            run = in(reg) run, in("rdi") job, inout("r12") top => _, clobber_abi("C"));
    }
}

/// `struct stat`; unused fields are private.
#[repr(C)]
pub(crate) struct Stat {
    pub device: u64,
    pub inode: u64,
    links: u64,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pad: u32,
    device_of_file: u64,
    pub size: u64,
    rest: [u64; 11],
}

const _: () = assert!(size_of::<Stat>() == 144);

/// The number and first argument of the call that writes whether the thread has a shadow stack.
pub(crate) const SHADOW_STACK_STATUS: (usize, usize) = (numbers::ARCH_PRCTL, 0x5005);

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

/// Returns the thread's block of `heaptide_tls`.
#[inline(always)]
pub(crate) fn thread_block() -> *const u8 {
    let block: *const u8;
    // SAFETY: the initial-exec access sequence of the x86-64 TLS ABI; it reads the thread pointer
    // and the GOT.
    unsafe {
        asm!("mov {0}, qword ptr [rip + heaptide_tls@GOTTPOFF]", "add {0}, qword ptr fs:[0]",
            out(reg) block, options(pure, readonly, nostack));
    }
    block
}

/// Returns the thread control block's address: in glibc and musl it lies above the thread's stack,
/// in one mapping.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    let p: u64;
    // SAFETY: the first word at fs is its own address (x86-64 TLS ABI).
    unsafe { asm!("mov {0}, qword ptr fs:[0]", out(reg) p, options(pure, readonly, nostack)) };
    p
}

/// Returns the loader's `_r_debug` and `_dl_debug_addr`; null if the symbol does not exist.
pub(crate) fn debug_symbols() -> (*const usize, *const *const usize) {
    let glibc: *const usize;
    let musl: *const *const usize;
    // SAFETY: reads two weak GOT entries, null if the symbol does not exist.
    unsafe {
        asm!(".weak _r_debug", ".weak _dl_debug_addr",
            "mov {0}, qword ptr [rip + _r_debug@GOTPCREL]",
            "mov {1}, qword ptr [rip + _dl_debug_addr@GOTPCREL]",
            out(reg) glibc, out(reg) musl, options(pure, readonly, nostack));
    }
    (glibc, musl)
}

/// Relocations that store the address of a function in a word: bound at start, and at first use.
pub(crate) const R_GLOB_DAT: u32 = 6;
pub(crate) const R_JUMP_SLOT: u32 = 7;

/// Number of low bits of the counter that are dropped in ticks of a trace: a tick is some ten
/// nanoseconds, so that the ticks to the next event usually fit in a byte.
pub const COUNTER_SHIFT: u32 = 5;

/// A number of counts that take less than a millisecond, at rates from 1.1 GHz.
pub const BELOW_MILLISECOND: u64 = 1 << 20;

/// Returns the time stamp counter. May only be called if reading it is not forbidden.
#[inline(always)]
pub fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}

/// Returns the time stamp counter after all earlier loads. Otherwise processors may read it first:
/// a free would have a time before the allocation by the thread that passed the block on.
#[inline(always)]
pub fn counter_in_order() -> u64 {
    // SAFETY: every x86-64 processor has both.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Returns whether the counter has a constant rate.
pub fn counter_is_steady() -> bool {
    const ADVANCED_POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    __cpuid(0x8000_0000).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx & INVARIANT != 0
}

/// The name of the vDSO's function that reads a clock.
pub const VDSO_CLOCK_GETTIME: &[u8] = b"__vdso_clock_gettime\0";

/// The kernel's clocks that use this counter; they imply that it is the same on all cores.
pub const COUNTER_CLOCKS: [&[u8]; 2] = [b"tsc\n", b"kvm-clock\n"];

/// Returns the return address of the function whose entry had the stack pointer `sp`.
///
/// # Safety
/// That function has not returned.
#[inline(always)]
pub unsafe fn return_address(sp: u64) -> u64 {
    // SAFETY: at the entry of a function it is on top of the stack.
    unsafe { *(sp as *const u64) }
}

/// Maximum size of a page, which is the only size.
pub const PAGE_BYTES_MAX: u64 = 4096;

/// Bits of the addresses of a program.
pub const USER_ADDRESS_BITS: u32 = 47;

/// Bytes between the stack pointer that an entry passes and that of its caller.
pub const ENTRY_BYTES: u64 = 8;

/// Returns the stack pointer.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Instructions of an entry that continue in `{body}` with the caller's stack pointer and frame
/// pointer after this number of arguments.
#[macro_export]
macro_rules! pass_registers {
    (1) => {
        "mov rsi, rsp\nmov rdx, rbp\njmp {body}"
    };
    (2) => {
        "mov rdx, rsp\nmov rcx, rbp\njmp {body}"
    };
    (3) => {
        "mov rcx, rsp\nmov r8, rbp\njmp {body}"
    };
    (4) => {
        "mov r8, rsp\nmov r9, rbp\njmp {body}"
    };
}
pub use pass_registers;

/// The same for a function with four arguments, of which the first is a large struct: the caller
/// has copied it to the stack, and it takes no register.
#[macro_export]
macro_rules! pass_registers_of_struct_and_three {
    () => {
        $crate::pass_registers!(3)
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
            core::arch::asm!(concat!("lea {0}, [rip + ", $symbol, "]"), out(reg) address,
                options(pure, nomem, nostack, preserves_flags));
        }
        address
    }};
}

/// Bytes of code that [`is_signal_return`] and [`is_trampoline_of_python`] inspect, before and
/// after the return address.
pub const CODE_BEFORE: usize = 6;
pub const CODE_BEHIND: usize = 9;

/// Returns whether a function returns to the code that ends a signal handler.
pub fn is_signal_return(behind: &[u8]) -> bool {
    // mov $15, %rax; syscall
    behind.starts_with(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05])
}

/// Bytes of the longest call.
pub const CALL_BYTES: usize = 7;
/// The shortest instruction without effect.
pub const NOP: &[u8] = &[0x90];

/// Returns whether code ends with a call: `call rel32`, or `call r/m64` with any operand.
pub fn ends_with_call(code: &[u8; CALL_BYTES]) -> bool {
    const RELATIVE: u8 = 0xe8;
    let is_indirect = |start: usize| code.get(start..).is_some_and(is_indirect_call);
    code[CALL_BYTES - 5] == RELATIVE || (0..CALL_BYTES - 1).any(is_indirect)
}

/// Returns whether this is one whole instruction `call r/m64` without prefixes.
fn is_indirect_call(code: &[u8]) -> bool {
    let &[0xff, operand, ref rest @ ..] = code else { return false };
    let (mode, register) = (operand >> 6, operand & 7);
    let has_index = mode != 3 && register == 4;
    let base = if has_index { rest.first().map_or(0, |index| index & 7) } else { register };
    let displacement = match mode {
        0 if base == 5 => 4,
        0 | 3 => 0,
        1 => 1,
        _ => 4,
    };
    operand >> 3 & 7 == 2 && rest.len() == usize::from(has_index) + displacement
}

/// Returns whether the code around a return address is a function of CPython's `-X perf`, which
/// keeps no frame pointer.
pub fn is_trampoline_of_python(before: &[u8], behind: &[u8]) -> bool {
    // sub $8, %rsp; call *%rcx; add $8, %rsp; ret
    before.ends_with(&[0x48, 0x83, 0xec, 8, 0xff, 0xd1])
        && behind.starts_with(&[0x48, 0x83, 0xc4, 8, 0xc3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_forms_are_recognised() {
        let calls: [&[u8]; 8] = [
            &[0xe8, 1, 2, 3, 4],             // call rel32
            &[0xff, 0xd0],                   // call *%rax
            &[0x41, 0xff, 0xd4],             // call *%r12
            &[0xff, 0x50, 0x18],             // call *0x18(%rax)
            &[0xff, 0x54, 0x24, 8],          // call *8(%rsp)
            &[0xff, 0x15, 1, 2, 3, 4],       // call *disp32(%rip)
            &[0xff, 0x94, 0x24, 1, 2, 3, 4], // call *disp32(%rsp)
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4], // call *disp32(,%rax,8)
        ];
        let others: [&[u8]; 5] = [
            &[0xe9, 1, 2, 3, 4],       // jmp rel32
            &[0xff, 0xe0],             // jmp *%rax
            &[0xff, 0x50, 0x18, 0x90], // a call and nop
            &[0xff, 0x15, 1, 2, 3],    // a part of a call
            &[],
        ];
        let ends = |code: &[u8]| {
            let mut before = [0x90; CALL_BYTES];
            before[CALL_BYTES - code.len()..].copy_from_slice(code);
            ends_with_call(&before)
        };
        assert!(calls.into_iter().all(ends));
        assert!(!others.into_iter().any(ends));
    }
}
