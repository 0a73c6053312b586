//! The functions that stand in front of the program's: one table.
//!
//! An entry that can allocate is a few instructions that hand the caller's stack pointer and frame
//! pointer on and jump: the body returns straight to the caller, and the unwinder starts in the
//! caller's frame.

use crate::allocator::Address;
use crate::next_symbol::real;
use crate::{auxiliary, exec_hooks, jemalloc, limits, malloc, mlock, operators};
use core::arch::naked_asm;
use heaptide_recorder::event::trace;

/// What a hook is: its symbol, how it is entered, and its body.
///
/// - `allocate`: three arguments and the entry's registers go to the body.
/// - `throwing`: likewise; if the body returns null the real function is jumped to, to do what it
///   does then (call the new-handler, throw) with no frame of ours in between.
/// - `release`: the block goes to the body; where frees have stacks, to another one with the
///   entry's registers.
/// - `plain`: an ordinary function.
macro_rules! hooks {
    ($($kind:ident $symbol:ident = $body:path;)*) => {
        $(hooks!(@ $kind $symbol $body);)*
    };
    (@ allocate $symbol:ident $body:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol() {
            real! {
                static REAL = stringify!($symbol), ();
            }
            naked_asm!(
".cfi_startproc",
                "mov rcx, rsp", "mov r8, rbp", "lea r9, [rip + {real}]", "jmp {body}",
                ".cfi_endproc",
real = sym REAL, body = sym $body)
        }
    };
    (@ throwing $symbol:ident $body:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol() {
            real! {
                static REAL = stringify!($symbol), ();
            }
            naked_asm!(
".cfi_startproc",
                "mov rcx, rsp", "mov r8, rbp", "lea r9, [rip + {real}]",
                "push rdi", ".cfi_adjust_cfa_offset 8",
                "push rsi", ".cfi_adjust_cfa_offset 8",
                "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
                "call {body}",
                "add rsp, 8", ".cfi_adjust_cfa_offset -8",
                "pop rsi", ".cfi_adjust_cfa_offset -8",
                "pop rdi", ".cfi_adjust_cfa_offset -8",
                "test rax, rax", "je 2f", "ret",
                "2:", "jmp qword ptr [rip + {real}]",
                ".cfi_endproc",
real = sym REAL, body = sym $body)
        }
    };
    (@ release $symbol:ident $body:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(block: Address) {
            naked_asm!(
".cfi_startproc",
                "cmp byte ptr [rip + {stacks}], 0", "jne 2f", "jmp {body}",
                "2:", "mov rsi, rsp", "mov rdx, rbp", "jmp {with_stack}",
                ".cfi_endproc",
stacks = sym trace::FREE_STACKS, body = sym $body, with_stack = sym malloc::free_with_stack)
        }
    };
    (@ plain $symbol:ident $body:path) => {
        const _: *const () = $body as *const ();
    };
}

hooks! {
    allocate malloc = malloc::malloc_body;
    allocate calloc = malloc::calloc_body;
    allocate realloc = malloc::realloc_body;
    allocate reallocarray = malloc::reallocarray_body;
    allocate memalign = malloc::memalign_body;
    allocate aligned_alloc = malloc::memalign_body;
    allocate posix_memalign = malloc::posix_memalign_body;
    allocate valloc = malloc::valloc_body;
    allocate pvalloc = malloc::valloc_body;
    release free = malloc::free_body;
    release cfree = malloc::free_body;
    throwing _Znwm = operators::new_body;
    throwing _Znam = operators::new_array_body;
    throwing _ZnwmSt11align_val_t = operators::new_aligned_body;
    throwing _ZnamSt11align_val_t = operators::new_aligned_array_body;
    allocate _ZnwmRKSt9nothrow_t = operators::new_nothrow_body;
    allocate _ZnamRKSt9nothrow_t = operators::new_nothrow_body;
    allocate _ZnwmSt11align_val_tRKSt9nothrow_t = operators::new_nothrow_body;
    allocate _ZnamSt11align_val_tRKSt9nothrow_t = operators::new_nothrow_body;
    allocate _ZdlPv = operators::delete_body;
    allocate _ZdaPv = operators::delete_body;
    allocate _ZdlPvm = operators::delete_body;
    allocate _ZdaPvm = operators::delete_body;
    allocate _ZdlPvRKSt9nothrow_t = operators::delete_body;
    allocate _ZdaPvRKSt9nothrow_t = operators::delete_body;
    allocate _ZdlPvSt11align_val_t = operators::delete_body;
    allocate _ZdaPvSt11align_val_t = operators::delete_body;
    allocate _ZdlPvmSt11align_val_t = operators::delete_body;
    allocate _ZdaPvmSt11align_val_t = operators::delete_body;
    allocate _ZdlPvSt11align_val_tRKSt9nothrow_t = operators::delete_body;
    allocate _ZdaPvSt11align_val_tRKSt9nothrow_t = operators::delete_body;
    allocate mallocx = jemalloc::mallocx_body;
    allocate rallocx = jemalloc::rallocx_body;
    plain xallocx = jemalloc::xallocx;
    plain sallocx = jemalloc::sallocx;
    allocate dallocx = jemalloc::dallocx_body;
    allocate sdallocx = jemalloc::dallocx_body;
    plain dlclose = auxiliary::dlclose;
    plain dlopen = auxiliary::dlopen;
    plain munmap = auxiliary::munmap;
    plain pthread_setname_np = auxiliary::pthread_setname_np;
    plain prctl = auxiliary::prctl;
    plain syscall = auxiliary::syscall;
    plain _exit = auxiliary::_exit;
    plain _Exit = auxiliary::_Exit;
    plain quick_exit = auxiliary::quick_exit;
    plain chroot = auxiliary::chroot;
    plain setuid = auxiliary::setuid;
    plain seteuid = auxiliary::seteuid;
    plain setreuid = auxiliary::setreuid;
    plain setresuid = auxiliary::setresuid;
    plain setgid = auxiliary::setgid;
    plain setegid = auxiliary::setegid;
    plain setregid = auxiliary::setregid;
    plain setresgid = auxiliary::setresgid;
    plain setfsuid = auxiliary::setfsuid;
    plain setfsgid = auxiliary::setfsgid;
    plain setgroups = auxiliary::setgroups;
    plain initgroups = auxiliary::initgroups;
    plain capset = auxiliary::capset;
    plain unshare = auxiliary::unshare;
    plain setns = auxiliary::setns;
    plain pivot_root = auxiliary::pivot_root;
    plain mlockall = mlock::mlockall;
    plain setrlimit = limits::setrlimit;
    plain setrlimit64 = limits::setrlimit64;
    plain getrlimit = limits::getrlimit;
    plain getrlimit64 = limits::getrlimit64;
    plain prlimit = limits::prlimit;
    plain prlimit64 = limits::prlimit64;
    plain execve = exec_hooks::execve;
    plain execv = exec_hooks::execv;
    plain execvp = exec_hooks::execvp;
    plain execvpe = exec_hooks::execvpe;
    plain execl = exec_hooks::execl;
    plain execlp = exec_hooks::execlp;
    plain execle = exec_hooks::execle;
    plain fexecve = exec_hooks::fexecve;
    plain execveat = exec_hooks::execveat;
    plain posix_spawn = exec_hooks::posix_spawn;
    plain posix_spawnp = exec_hooks::posix_spawnp;
}
