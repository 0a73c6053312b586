//! The functions that stand in front of the guest's: one table, and what each kind of function
//! does.
//!
//! An entry that can allocate is a few instructions that hand the caller's stack pointer and frame
//! pointer on and jump: the body returns straight to the caller, and the unwinder starts in the
//! caller's frame. Every body has one shape: enter, real call, record (or record, real call, for a
//! free). Nested calls go through uncounted, so that the outermost operation is one event.

use crate::api::monitors;
use crate::event::fast_path::{self, Done};
use crate::event::lane::Inside;
use crate::event::record::{self, Entry, Moving};
use crate::event::stacks::here;
use crate::event::trace;
use crate::hooks::{auxiliary, exec_hooks, jemalloc, limits, mlock, operators};
use crate::sys::allocator::{Address, NULL, REAL_FREE, REAL_MALLOC, call_real, usable, usable_new};
use crate::sys::next_symbol::Real;
use core::arch::naked_asm;

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
            static REAL: Real = Real::new(concat!(stringify!($symbol), "\0").as_bytes());
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
            static REAL: Real = Real::new(concat!(stringify!($symbol), "\0").as_bytes());
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
stacks = sym trace::FREE_STACKS, body = sym $body, with_stack = sym free_with_stack)
        }
    };
    (@ plain $symbol:ident $body:path) => {
        const _: *const () = $body as *const ();
    };
}

hooks! {
    allocate malloc = malloc_body;
    allocate calloc = calloc_body;
    allocate realloc = realloc_body;
    allocate reallocarray = reallocarray_body;
    allocate memalign = memalign_body;
    allocate aligned_alloc = memalign_body;
    allocate posix_memalign = posix_memalign_body;
    allocate valloc = valloc_body;
    allocate pvalloc = valloc_body;
    release free = free_body;
    plain cfree = cfree;
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

static REAL_REALLOC: Real = Real::new(b"realloc\0");
static REAL_POSIX_MEMALIGN: Real = Real::new(b"posix_memalign\0");

/// The common shape: enter, call, record.
#[inline(always)]
pub fn allocate(requested: usize, entry: Entry, call: impl Fn() -> Address) -> Address {
    allocate_or(requested, entry, &call, &call)
}

/// The same with another way for a nested call.
#[inline(always)]
pub fn allocate_or(
    requested: usize,
    entry: Entry,
    call: impl FnOnce() -> Address,
    nested: impl FnOnce() -> Address,
) -> Address {
    let Some(mut inside) = Inside::enter(entry) else {
        return nested();
    };
    let block = call();
    if block.is_null() {
        if !operators::is_retry(inside.entry()) {
            record::failed(&mut inside);
        }
    } else {
        let requested = requested as u64;
        match fast_path::allocated(inside.lane(), block, requested) {
            Done::Counted => {}
            Done::ToTell => monitors::tell_allocated(inside.lane(), block, requested),
            Done::WantsStack => record::allocated_here(&mut inside, block, requested),
            Done::No => allocated(&mut inside, block, requested),
        }
    }
    block
}

#[inline(never)]
fn allocated(inside: &mut Inside, block: Address, requested: u64) {
    let usable = usable_new(block, requested);
    // A size that overflowed in an allocator that gives a block all the same.
    record::allocated(inside, block, requested.min(usable), usable);
}

unsafe extern "C" fn malloc_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    _: &Real,
) -> Address {
    // SAFETY: malloc's own contract.
    let call = || unsafe { call_real!(REAL_MALLOC, extern "C" fn(usize) -> Address, (size), NULL) };
    allocate(size, Entry { sp, bp }, call)
}

unsafe extern "C" fn calloc_body(
    count: usize,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: calloc's own contract.
    let call =
        || unsafe { call_real!(real, extern "C" fn(usize, usize) -> Address, (count, size), NULL) };
    allocate(count.wrapping_mul(size), Entry { sp, bp }, call)
}

unsafe extern "C" fn memalign_body(
    alignment: usize,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: the function's own contract.
    let call = || unsafe {
        call_real!(real, extern "C" fn(usize, usize) -> Address, (alignment, size), NULL)
    };
    allocate(size, Entry { sp, bp }, call)
}

unsafe extern "C" fn valloc_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: the function's own contract; musl lacks both, and posix_memalign serves.
    let call = || unsafe {
        if real.get() == 0 {
            return aligned(4096, size);
        }
        call_real!(real, extern "C" fn(usize) -> Address, (size), NULL)
    };
    allocate(size, Entry { sp, bp }, call)
}

/// # Safety
/// posix_memalign's contract.
pub unsafe fn aligned(alignment: usize, size: usize) -> Address {
    type F = extern "C" fn(*mut Address, usize, usize) -> i32;
    let mut block = NULL;
    // SAFETY: as the caller promises.
    let status = unsafe { call_real!(REAL_POSIX_MEMALIGN, F, (&mut block, alignment, size), 12) };
    if status == 0 { block } else { NULL }
}

unsafe extern "C" fn posix_memalign_body(
    out: *mut Address,
    alignment: usize,
    size: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> i32 {
    type F = extern "C" fn(*mut Address, usize, usize) -> i32;
    const ENOMEM: i32 = 12;
    let entry = Entry { sp, bp };
    // SAFETY: posix_memalign's own contract; `out` holds a block only if it succeeds.
    unsafe {
        let Some(mut inside) = Inside::enter(entry) else {
            return call_real!(real, F, (out, alignment, size), ENOMEM);
        };
        let status = call_real!(real, F, (out, alignment, size), ENOMEM);
        if status != 0 {
            record::failed(&mut inside);
        } else if !(*out).is_null() {
            allocated(&mut inside, *out, size as u64);
        }
        status
    }
}

unsafe extern "C" fn realloc_body(
    old: Address,
    size: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: realloc's own contract.
    let call =
        || unsafe { call_real!(real, extern "C" fn(Address, usize) -> Address, (old, size), NULL) };
    reallocate(old, size, Entry { sp, bp }, call)
}

unsafe extern "C" fn reallocarray_body(
    old: Address,
    count: usize,
    size: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    type F = extern "C" fn(Address, usize, usize) -> Address;
    let bytes = count.checked_mul(size);
    // SAFETY: reallocarray's own contract; an old libc without it has realloc. An overflow is the
    // real function's to refuse, with errno set; where there is none, an impossible size has
    // realloc do that.
    let call = || unsafe {
        if real.get() == 0 {
            type R = extern "C" fn(Address, usize) -> Address;
            return call_real!(REAL_REALLOC, R, (old, bytes.unwrap_or(usize::MAX)), NULL);
        }
        call_real!(real, F, (old, count, size), NULL)
    };
    // A size that overflows is never 0, so a null result then is a failure.
    reallocate(old, bytes.unwrap_or(usize::MAX), Entry { sp, bp }, call)
}

/// The shape of a reallocation: enter, forget the old block, call, record.
#[inline(always)]
pub fn reallocate(old: Address, size: usize, entry: Entry, call: impl Fn() -> Address) -> Address {
    if old.is_null() {
        return allocate(size, entry, call);
    }
    let Some(mut inside) = Inside::enter(entry) else {
        return reallocate_nested(old, call);
    };
    let moving = Moving::begin(&mut inside, old, usable(old));
    let block = call();
    if !block.is_null() {
        moving.done(&mut inside, block, size as u64, usable_new(block, size as u64));
    } else if size == 0 {
        moving.freed(&mut inside);
    } else {
        moving.failed(&mut inside);
    }
    block
}

/// By a signal handler or the allocator itself: the new block is nobody's, the old one is settled.
#[cold]
fn reallocate_nested(old: Address, call: impl FnOnce() -> Address) -> Address {
    let moving = record::MovingNested::begin(old, usable);
    let block = call();
    moving.end(block);
    block
}

unsafe extern "C" fn free_body(block: Address) {
    // The recorder is left before the real call, which then is a jump: no free calls another one in
    // front of us for the same block, and if it did, the block is no longer known.
    if fast_path::free(block) {
        // SAFETY: a thread has a lane, so the allocator was found.
        let real: extern "C" fn(Address) = unsafe { core::mem::transmute(REAL_FREE.known()) };
        return real(block);
    }
    // SAFETY: free's own contract.
    unsafe { free_somehow(block) }
}

unsafe extern "C" fn free_with_stack(block: Address, sp: u64, bp: u64) {
    // SAFETY: free's own contract.
    let call = || unsafe { call_real!(REAL_FREE, extern "C" fn(Address), (block), ()) };
    if block.is_null() { call() } else { release(block, Entry { sp, bp }, call) }
}

#[inline(never)]
unsafe fn free_somehow(block: Address) {
    freed(block);
    // SAFETY: as the caller promises.
    unsafe { call_real!(REAL_FREE, extern "C" fn(Address), (block), ()) }
}

#[inline(always)]
fn freed(block: Address) {
    if !block.is_null() {
        match Inside::enter(here()) {
            Some(mut inside) => record::freed(&mut inside, block, usable(block)),
            None => record::freed_nested(block, || usable(block)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(block: Address) {
    // SAFETY: free's own contract, under its old name.
    unsafe { free(block) }
}

/// The shape of a free: enter, record, call.
#[inline(always)]
pub fn release(block: Address, entry: Entry, call: impl FnOnce()) {
    if block.is_null() {
        return;
    }
    if fast_path::free(block) {
        return call();
    }
    let Some(mut inside) = Inside::enter(entry) else {
        record::freed_nested(block, || usable(block));
        return call();
    };
    trace::stands_here(&mut inside);
    record::freed(&mut inside, block, usable(block));
    call();
}
