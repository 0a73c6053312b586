//! The functions that stand in front of the guest's: one table, and what each kind of function does.
//!
//! An entry that can allocate is a few instructions that hand the caller's stack pointer and frame pointer on
//! and jump: the body returns straight to the caller, and the unwinder starts in the caller's frame. Every body
//! has one shape: enter, real call, record (or record, real call, for a free). Nested calls go through uncounted,
//! so that the outermost operation is one event.

use crate::lane::{self, Inside};
use crate::process::{State, process};
use crate::real::{Real, find};
use crate::record::{self, Entry, Moving};
use crate::{end, profile, stacks, sys};
use core::arch::{asm, naked_asm};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// What a hook is: its symbol, how it is entered, and its body.
///
/// - `allocate`: three arguments and the entry's registers go to the body.
/// - `throwing`: likewise; if the body returns null the real function is jumped to, to do what it does then
///   (call the new-handler, throw) with no frame of ours in between.
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
    (@ plain $symbol:ident $body:path) => {};
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
    plain free = free;
    plain cfree = cfree;
    throwing _Znwm = new_body;
    throwing _Znam = new_body;
    throwing _ZnwmSt11align_val_t = new_aligned_body;
    throwing _ZnamSt11align_val_t = new_aligned_body;
    allocate _ZnwmRKSt9nothrow_t = new_nothrow_body;
    allocate _ZnamRKSt9nothrow_t = new_nothrow_body;
    allocate _ZnwmSt11align_val_tRKSt9nothrow_t = new_nothrow_body;
    allocate _ZnamSt11align_val_tRKSt9nothrow_t = new_nothrow_body;
    allocate _ZdlPv = delete_body;
    allocate _ZdaPv = delete_body;
    allocate _ZdlPvm = delete_body;
    allocate _ZdaPvm = delete_body;
    allocate _ZdlPvRKSt9nothrow_t = delete_body;
    allocate _ZdaPvRKSt9nothrow_t = delete_body;
    allocate _ZdlPvSt11align_val_t = delete_body;
    allocate _ZdaPvSt11align_val_t = delete_body;
    allocate _ZdlPvmSt11align_val_t = delete_body;
    allocate _ZdaPvmSt11align_val_t = delete_body;
    allocate _ZdlPvSt11align_val_tRKSt9nothrow_t = delete_body;
    allocate _ZdaPvSt11align_val_tRKSt9nothrow_t = delete_body;
    allocate mallocx = mallocx_body;
    allocate rallocx = rallocx_body;
    plain xallocx = xallocx;
    plain sallocx = sallocx;
    allocate dallocx = dallocx_body;
    allocate sdallocx = dallocx_body;
    plain dlclose = dlclose;
    plain dlopen = dlopen;
    plain munmap = munmap;
    plain pthread_setname_np = pthread_setname_np;
    plain prctl = prctl;
    plain syscall = syscall;
    plain _exit = _exit;
    plain _Exit = _Exit;
    plain quick_exit = quick_exit;
    plain chroot = chroot;
    plain setuid = setuid;
    plain seteuid = seteuid;
    plain setreuid = setreuid;
    plain setresuid = setresuid;
}

static REAL_MALLOC: Real = Real::new(b"malloc\0");
static REAL_FREE: Real = Real::new(b"free\0");
static REAL_USABLE: Real = Real::new(b"malloc_usable_size\0");
static REAL_REALLOC: Real = Real::new(b"realloc\0");
static REAL_POSIX_MEMALIGN: Real = Real::new(b"posix_memalign\0");

/// Finds the allocator. False if it cannot be recorded: there is none, or it does not say how large its blocks
/// are (an allocator in front of libc's that lacks malloc_usable_size must not be asked by libc's).
pub fn resolve_allocator() -> bool {
    let (malloc, usable) = (find(b"malloc\0"), find(b"malloc_usable_size\0"));
    let (Some(malloc), Some(usable)) = (malloc, usable) else {
        return false;
    };
    if malloc.is_in(b"libc.so.6") && HEADERS.load(Relaxed) == 0 {
        HEADERS.store(Headers::Checking as u32, Relaxed);
    }
    malloc.object == usable.object
}

type Address = *mut u8;

/// Calls a real function as this type; the value for "there is none" otherwise.
macro_rules! call_real {
    ($real:expr, $type:ty, ($($argument:expr),*), $none:expr) => {{
        let address = $real.get();
        if address == 0 {
            $none
        } else {
            let function: $type = core::mem::transmute(address);
            function($($argument),*)
        }
    }};
}

const NULL: Address = core::ptr::null_mut();

/// The usable size of a live block.
#[inline(always)]
fn usable(block: Address) -> u64 {
    if HEADERS.load(Relaxed) != Headers::Trusted as u32 {
        return usable_by_call(block);
    }
    // SAFETY: glibc's block has its chunk's size in the word before it, flags in the low bits: bit 1 says that
    // the chunk is a mapping, which has two words of overhead instead of one.
    let size = unsafe { *(block as *const u64).sub(1) };
    (size & !7) - 8 - ((size & 2) << 2)
}

/// glibc's malloc_usable_size is a look at the chunk's header; doing that here saves two calls an event. It is
/// done only once the two have agreed on this many blocks of this very process.
const AGREEMENTS: u32 = 64;

/// New → Checking → Trusted or Refused.
enum Headers {
    Checking = 1,
    Trusted = 2,
    Refused = 3,
}

static HEADERS: AtomicU32 = AtomicU32::new(0);
static AGREED: AtomicU32 = AtomicU32::new(0);

#[cold]
#[inline(never)]
fn usable_by_call(block: Address) -> u64 {
    // SAFETY: `block` is a live block of the allocator that REAL_USABLE belongs to.
    let asked =
        unsafe { call_real!(REAL_USABLE, extern "C" fn(Address) -> usize, (block), 0) as u64 };
    if HEADERS.load(Relaxed) == Headers::Checking as u32 {
        // SAFETY: glibc's allocator, which has a header there.
        let size = unsafe { *(block as *const u64).sub(1) };
        if (size & !7).wrapping_sub(8 + ((size & 2) << 2)) != asked {
            HEADERS.store(Headers::Refused as u32, Relaxed);
        } else if AGREED.fetch_add(1, Relaxed) >= AGREEMENTS {
            HEADERS.store(Headers::Trusted as u32, Relaxed);
        }
    }
    asked
}

#[inline(always)]
fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// The common shape: enter, call, record.
#[inline(always)]
fn allocate(requested: usize, entry: Entry, call: impl Fn() -> Address) -> Address {
    allocate_or(requested, entry, &call, &call)
}

/// The same with another way for a nested call.
#[inline(always)]
fn allocate_or(
    requested: usize,
    entry: Entry,
    call: impl FnOnce() -> Address,
    nested: impl FnOnce() -> Address,
) -> Address {
    let Some(mut inside) = Inside::enter(entry.sp) else {
        return nested();
    };
    let block = call();
    if block.is_null() {
        if !is_retry(entry) {
            record::failed(&mut inside, entry);
        }
    } else {
        let requested = requested as u64;
        record::allocated(
            &mut inside,
            block,
            requested,
            usable_new(block, requested),
            entry,
        );
    }
    block
}

/// Whether the caller is a real throwing operator new: it only runs after a failure that was counted, to ask
/// again and then throw.
#[cold]
fn is_retry(entry: Entry) -> bool {
    static FORMS: [Real; 4] = [
        Real::new(b"_Znwm\0"),
        Real::new(b"_Znam\0"),
        Real::new(b"_ZnwmSt11align_val_t\0"),
        Real::new(b"_ZnamSt11align_val_t\0"),
    ];
    FORMS.iter().any(|form| form.holds(entry.caller()))
}

/// The usable size of a new block. tcmalloc says 0 until it has set itself up, and the right size later: what it
/// will say is what it would give for the request.
#[inline(always)]
fn usable_new(block: Address, requested: u64) -> u64 {
    match usable(block) {
        0 if requested > 0 => usable_by_request(requested),
        bytes => bytes,
    }
}

#[cold]
fn usable_by_request(requested: u64) -> u64 {
    static NALLOCX: Real = Real::new(b"nallocx\0");
    type F = extern "C" fn(usize, i32) -> usize;
    // SAFETY: nallocx's contract: a size and no flags.
    let bytes = unsafe { call_real!(NALLOCX, F, (requested as usize, 0), 0) };
    if bytes == 0 { requested } else { bytes as u64 }
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
    let call = || unsafe {
        call_real!(
            real,
            extern "C" fn(usize, usize) -> Address,
            (count, size),
            NULL
        )
    };
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
        call_real!(
            real,
            extern "C" fn(usize, usize) -> Address,
            (alignment, size),
            NULL
        )
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
unsafe fn aligned(alignment: usize, size: usize) -> Address {
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
        let Some(mut inside) = Inside::enter(sp) else {
            return call_real!(real, F, (out, alignment, size), ENOMEM);
        };
        let status = call_real!(real, F, (out, alignment, size), ENOMEM);
        if status != 0 {
            record::failed(&mut inside, entry);
        } else if !(*out).is_null() {
            record::allocated(
                &mut inside,
                *out,
                size as u64,
                usable_new(*out, size as u64),
                entry,
            );
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
    let call = || unsafe {
        call_real!(
            real,
            extern "C" fn(Address, usize) -> Address,
            (old, size),
            NULL
        )
    };
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
    // SAFETY: reallocarray's own contract; an old libc without it has realloc. An overflow is the real
    // function's to refuse, with errno set; where there is none, an impossible size has realloc do that.
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
fn reallocate(old: Address, size: usize, entry: Entry, call: impl Fn() -> Address) -> Address {
    if old.is_null() {
        return allocate(size, entry, call);
    }
    let Some(mut inside) = Inside::enter(entry.sp) else {
        return reallocate_nested(old, call);
    };
    let moving = Moving::begin(&mut inside, old, usable(old));
    let block = call();
    if !block.is_null() {
        moving.done(
            &mut inside,
            block,
            size as u64,
            usable_new(block, size as u64),
            entry,
        );
    } else if size == 0 {
        moving.freed(&mut inside);
    } else {
        moving.failed(&mut inside, entry);
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

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: Address) {
    // The recorder is left before the real call, which then is a jump: no free calls another one in front of us
    // for the same block, and if it did, the block is no longer known.
    if !block.is_null() {
        match Inside::enter(stack_pointer()) {
            Some(mut inside) => record::freed(&mut inside, block, usable(block)),
            None => record::freed_nested(block, || usable(block)),
        }
    }
    // SAFETY: free's own contract.
    unsafe { call_real!(REAL_FREE, extern "C" fn(Address), (block), ()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cfree(block: Address) {
    // SAFETY: free's own contract, under its old name.
    unsafe { free(block) }
}

/// The shape of a free: enter, record, call.
#[inline(always)]
fn release(block: Address, call: impl FnOnce()) {
    if block.is_null() {
        return;
    }
    let Some(mut inside) = Inside::enter(stack_pointer()) else {
        record::freed_nested(block, || usable(block));
        return call();
    };
    record::freed(&mut inside, block, usable(block));
    call();
}

/// Operator new. A C++ runtime's is malloc and, if that fails, the new-handler and an exception: so malloc is
/// called here, and the rest is left to the real one by returning null. Other allocators' are asked by their
/// nothrow form, which returns null where the throwing one would do more. A nested call is the real one's own:
/// a nothrow form may be made of the throwing one.
unsafe extern "C" fn new_body(
    size: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    static NOTHROW: Real = Real::new(b"_ZnwmRKSt9nothrow_t\0");
    type F = extern "C" fn(usize, *const u8) -> Address;
    // SAFETY: the contracts of malloc and of operator new; the nothrow tag is an empty object.
    let call = || unsafe {
        if real.is_runtime() {
            call_real!(
                REAL_MALLOC,
                extern "C" fn(usize) -> Address,
                (size.max(1)),
                NULL
            )
        } else {
            call_real!(NOTHROW, F, (size, (&raw const TAG)), NULL)
        }
    };
    allocate_or(size, Entry { sp, bp }, call, || {
        // The jump that follows needs it.
        real.get();
        NULL
    })
}

static TAG: u8 = 0;

unsafe extern "C" fn new_aligned_body(
    size: usize,
    alignment: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    static NOTHROW: Real = Real::new(b"_ZnwmSt11align_val_tRKSt9nothrow_t\0");
    type F = extern "C" fn(usize, usize, *const u8) -> Address;
    real.get();
    // SAFETY: the contract of aligned operator new.
    let call = || unsafe { call_real!(NOTHROW, F, (size, alignment, (&raw const TAG)), NULL) };
    allocate_or(size, Entry { sp, bp }, call, || {
        // The jump that follows needs it.
        real.get();
        NULL
    })
}

/// The nothrow forms: two or three arguments, null on failure.
unsafe extern "C" fn new_nothrow_body(
    size: usize,
    second: usize,
    third: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    type F = extern "C" fn(usize, usize, usize) -> Address;
    // SAFETY: the operator's contract; a surplus third argument is ignored.
    let call = || unsafe { call_real!(real, F, (size, second, third), NULL) };
    allocate(size, Entry { sp, bp }, call)
}

/// Operator delete in all forms. A C++ runtime's is free.
unsafe extern "C" fn delete_body(
    block: Address,
    second: usize,
    third: usize,
    _: u64,
    _: u64,
    real: &Real,
) {
    type F = extern "C" fn(Address, usize, usize);
    // SAFETY: the operator's contract; surplus arguments are ignored.
    release(block, || unsafe {
        if real.get() == 0 || real.is_runtime() {
            call_real!(REAL_FREE, extern "C" fn(Address), (block), ())
        } else {
            call_real!(real, F, (block, second, third), ())
        }
    });
}

/// jemalloc's flags: the logarithm of the alignment in the low bits, then "zeroed".
const MALLOCX_LG_ALIGN: usize = 63;
const MALLOCX_ZERO: usize = 64;

unsafe extern "C" fn mallocx_body(
    size: usize,
    flags: usize,
    _: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    // SAFETY: mallocx's contract.
    let call = || unsafe {
        if real.get() == 0 {
            return mallocx_without(size, flags);
        }
        call_real!(
            real,
            extern "C" fn(usize, usize) -> Address,
            (size, flags),
            NULL
        )
    };
    allocate(size, Entry { sp, bp }, call)
}

/// A program that finds our symbol where there is no jemalloc gets what the call means.
///
/// # Safety
/// mallocx's contract.
unsafe fn mallocx_without(size: usize, flags: usize) -> Address {
    // SAFETY: as the caller promises.
    unsafe {
        let block = match flags & MALLOCX_LG_ALIGN {
            0..=4 => call_real!(REAL_MALLOC, extern "C" fn(usize) -> Address, (size), NULL),
            lg => aligned(1 << lg, size),
        };
        if flags & MALLOCX_ZERO != 0 && !block.is_null() {
            core::ptr::write_bytes(block, 0, size);
        }
        block
    }
}

unsafe extern "C" fn rallocx_body(
    old: Address,
    size: usize,
    flags: usize,
    sp: u64,
    bp: u64,
    real: &Real,
) -> Address {
    type F = extern "C" fn(Address, usize, usize) -> Address;
    // SAFETY: rallocx's contract; without jemalloc a stricter alignment takes a new block.
    let call = || unsafe {
        if real.get() != 0 {
            return call_real!(real, F, (old, size, flags), NULL);
        }
        let had = usable(old) as usize;
        let block = mallocx_without(size, flags);
        if !block.is_null() {
            core::ptr::copy_nonoverlapping(old, block, had.min(size));
            call_real!(REAL_FREE, extern "C" fn(Address), (old), ());
        }
        block
    };
    reallocate(old, size, Entry { sp, bp }, call)
}

/// Resizes in place or not at all, and says the size: a reallocation of the block's bytes, charged to its site.
#[unsafe(no_mangle)]
unsafe extern "C" fn xallocx(block: Address, size: usize, extra: usize, flags: i32) -> usize {
    static REAL: Real = Real::new(b"xallocx\0");
    type F = extern "C" fn(Address, usize, usize, i32) -> usize;
    // SAFETY: xallocx's contract.
    unsafe {
        let Some(mut inside) = Inside::enter(stack_pointer()) else {
            return call_real!(REAL, F, (block, size, extra, flags), usable(block) as usize);
        };
        let before = usable(block);
        let after = call_real!(REAL, F, (block, size, extra, flags), before as usize);
        if after as u64 != before {
            record::resized(&mut inside, block, size as u64, before, usable(block));
        }
        after
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sallocx(block: Address, flags: i32) -> usize {
    static REAL: Real = Real::new(b"sallocx\0");
    type F = extern "C" fn(Address, i32) -> usize;
    // SAFETY: sallocx's contract.
    unsafe { call_real!(REAL, F, (block, flags), usable(block) as usize) }
}

/// dallocx(block, flags) and sdallocx(block, size, flags).
unsafe extern "C" fn dallocx_body(
    block: Address,
    second: usize,
    third: usize,
    _: u64,
    _: u64,
    real: &Real,
) {
    type F = extern "C" fn(Address, usize, usize);
    // SAFETY: the function's contract; a surplus third argument is ignored.
    release(block, || unsafe {
        if real.get() == 0 {
            call_real!(REAL_FREE, extern "C" fn(Address), (block), ())
        } else {
            call_real!(real, F, (block, second, third), ())
        }
    });
}

/// A jump: the loader finds the caller, whose RUNPATH counts, by the return address.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen() {
    naked_asm!(
".cfi_startproc",
        "push rdi", ".cfi_adjust_cfa_offset 8",
        "push rsi", ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8", ".cfi_adjust_cfa_offset -8",
        "pop rsi", ".cfi_adjust_cfa_offset -8",
        "pop rdi", ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
before = sym before_dlopen)
}

extern "C" fn before_dlopen() -> usize {
    static REAL: Real = Real::new(b"dlopen\0");
    process().modules.loads.fetch_add(1, Relaxed);
    match REAL.get() {
        0 => nothing_opened as *const () as usize,
        address => address,
    }
}

extern "C" fn nothing_opened() -> Address {
    NULL
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(handle: Address) -> i32 {
    static REAL: Real = Real::new(b"dlclose\0");
    // SAFETY: dlclose's contract.
    let status = unsafe { call_real!(REAL, extern "C" fn(Address) -> i32, (handle), -1) };
    let p = process();
    if p.state() == State::Active
        && p.may_call()
        && let Some(mut inside) = Inside::enter(stack_pointer())
    {
        p.modules.loads.fetch_add(1, Relaxed);
        p.modules.drop_unmapped(p, inside.lane().buffer());
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(start: Address, bytes: usize) -> i32 {
    static REAL: Real = Real::new(b"munmap\0");
    // SAFETY: munmap's contract.
    let status = unsafe {
        call_real!(
            REAL,
            extern "C" fn(Address, usize) -> i32,
            (start, bytes),
            -1
        )
    };
    if stacks::OTHER_STACKS.load(Relaxed) {
        process().generation.fetch_add(1, Release);
    }
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setname_np(thread: u64, name: Address) -> i32 {
    static REAL: Real = Real::new(b"pthread_setname_np\0");
    const ENOSYS: i32 = 38;
    // SAFETY: the function's contract.
    let status = unsafe {
        call_real!(
            REAL,
            extern "C" fn(u64, Address) -> i32,
            (thread, name),
            ENOSYS
        )
    };
    if status == 0 && process().state() == State::Active {
        if thread == crate::tls::thread_pointer() {
            lane::renamed_self();
        } else {
            lane::renamed_other(thread);
        }
    }
    status
}

const PR_SET_NAME: i32 = 15;
const PR_SET_SECCOMP: i32 = 22;
const SECCOMP_MODE_STRICT: usize = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(operation: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    static REAL: Real = Real::new(b"prctl\0");
    type F = extern "C" fn(i32, usize, usize, usize, usize) -> i32;
    if operation == PR_SET_SECCOMP {
        lane::before_confinement(a == SECCOMP_MODE_STRICT);
    }
    // SAFETY: prctl's contract; it takes as many arguments as the operation has.
    let status = unsafe { call_real!(REAL, F, (operation, a, b, c, d), -1) };
    if operation == PR_SET_NAME && status == 0 && process().state() == State::Active {
        lane::renamed_self();
    }
    status
}

/// Looks for the one call that matters here, and jumps.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall() {
    naked_asm!(
".cfi_startproc",
        "cmp rdi, {seccomp}", "je 2f",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax", "je 2f", "jmp rax",
        "2:",
        "push rdi", ".cfi_adjust_cfa_offset 8",
        "push rsi", ".cfi_adjust_cfa_offset 8",
        "push rdx", ".cfi_adjust_cfa_offset 8",
        "push rcx", ".cfi_adjust_cfa_offset 8",
        "push r8", ".cfi_adjust_cfa_offset 8",
        "push r9", ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "add rsp, 8", ".cfi_adjust_cfa_offset -8",
        "pop r9", ".cfi_adjust_cfa_offset -8",
        "pop r8", ".cfi_adjust_cfa_offset -8",
        "pop rcx", ".cfi_adjust_cfa_offset -8",
        "pop rdx", ".cfi_adjust_cfa_offset -8",
        "pop rsi", ".cfi_adjust_cfa_offset -8",
        "pop rdi", ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
seccomp = const SYS_SECCOMP, real = sym REAL_SYSCALL, before = sym before_syscall)
}

const SYS_SECCOMP: usize = 317;
static REAL_SYSCALL: Real = Real::new(b"syscall\0");

extern "C" fn before_syscall(number: usize, operation: usize) -> usize {
    const SECCOMP_SET_MODE_STRICT: usize = 0;
    if number == SYS_SECCOMP {
        lane::before_confinement(operation == SECCOMP_SET_MODE_STRICT);
    }
    match REAL_SYSCALL.get() {
        0 => nothing_opened as *const () as usize,
        address => address,
    }
}

macro_rules! ending {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(status: i32) {
            static REAL: Real = Real::new(concat!(stringify!($name), "\0").as_bytes());
            end::note(Some(status));
            // SAFETY: the function's contract; it does not return.
            unsafe { call_real!(REAL, extern "C" fn(i32), (status), ()) };
            sys::exit_group(status);
        }
    };
}

ending!(_exit);
ending!(_Exit);
ending!(quick_exit);

/// Calls that may take the way to the profile from us.
macro_rules! departing {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(a: usize, b: usize, c: usize) -> i32 {
            static REAL: Real = Real::new(concat!(stringify!($name), "\0").as_bytes());
            type F = extern "C" fn(usize, usize, usize) -> i32;
            let p = process();
            if p.state() == State::Active && p.may_call() {
                profile::keep_descriptor(p);
            }
            // SAFETY: the function's contract; surplus arguments are ignored.
            unsafe { call_real!(REAL, F, (a, b, c), -1) }
        }
    };
}

departing!(chroot);
departing!(setuid);
departing!(seteuid);
departing!(setreuid);
departing!(setresuid);
