//! Hooks of functions that map and unmap memory. Their entries pass the caller's stack pointer and
//! frame pointer, like those of allocations. The real function is called first if it maps, and last
//! if it unmaps.

use crate::Preload;
use crate::arch;
use crate::next_symbol::{Real, call_real, real};
use crate::own_calls;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_recorder::event::inside::{Entry, Inside, here};
use heaptide_recorder::event::mappings::{self, Made, Remapping, Unmapping, What};
use heaptide_recorder::event::process::{State, process};
use heaptide_recorder::event::{python_interpreter, regions};
use heaptide_recorder::sys::{confined, kernel};

/// The result of a failed mapping call: `MAP_FAILED`, `(void *) -1`.
const FAILED: usize = usize::MAX;
/// The result of a failed call that returns a status.
const ERROR: i32 = -1;

/// Defines an entry: it calls the body with the six register arguments, and the caller's stack
/// pointer and frame pointer.
macro_rules! mapping_entry {
    ($symbol:ident $body:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol() {
            $crate::arch::call_with_registers!($body)
        }
    };
}
pub(crate) use mapping_entry;

type Mmap = extern "C" fn(usize, usize, i32, i32, i32, usize) -> usize;

real! {
    static MMAP = "mmap", Mmap;
    static MMAP64 = "mmap64", Mmap;
    static MUNMAP = "munmap", extern "C" fn(usize, usize) -> i32;
    static MREMAP = "mremap", extern "C" fn(usize, usize, usize, i32, usize) -> usize;
    static MPROTECT = "mprotect", extern "C" fn(usize, usize, i32) -> i32;
    static BRK = "brk", extern "C" fn(usize) -> i32;
    static SBRK = "sbrk", extern "C" fn(isize) -> usize;
    static SHMAT = "shmat", extern "C" fn(i32, usize, i32) -> usize;
    static SHMDT = "shmdt", extern "C" fn(usize) -> i32;
    static SYSCALL =
        "syscall", extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> usize;
}

pub extern "C" fn mmap_body(
    start: usize,
    bytes: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: usize,
    sp: u64,
    bp: u64,
) -> usize {
    let (at, what) = (Entry { sp, bp }, What::Mmap { protection, flags, fd });
    map(at, bytes, what, || mmap_by(&MMAP, (start, bytes, protection, flags, fd, offset)))
}

pub extern "C" fn mmap64_body(
    start: usize,
    bytes: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: usize,
    sp: u64,
    bp: u64,
) -> usize {
    let (at, what) = (Entry { sp, bp }, What::Mmap { protection, flags, fd });
    map(at, bytes, what, || {
        // In a C library without this name, mmap has 64-bit offsets.
        let real = if MMAP64.get() != 0 { &MMAP64 } else { &MMAP };
        mmap_by(real, (start, bytes, protection, flags, fd, offset))
    })
}

fn mmap_by(real: &Real<Mmap>, a: (usize, usize, i32, i32, i32, usize)) -> usize {
    call_real!(real, (a.0, a.1, a.2, a.3, a.4, a.5), FAILED)
}

fn map(entry: Entry, bytes: usize, what: What, call: impl FnOnce() -> usize) -> usize {
    let start = call();
    if start != FAILED && !own_calls::is_caller_of(entry) {
        let made = Made { start: start as u64, requested: bytes as u64, what };
        mappings::mapped::<Preload>(entry, made);
    }
    start
}

pub extern "C" fn munmap_body(
    start: usize,
    bytes: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> i32 {
    unmap(Entry { sp, bp }, start, bytes, || call_real!(MUNMAP, (start, bytes), ERROR))
}

fn unmap<T: PartialEq + From<u8>>(
    entry: Entry,
    start: usize,
    bytes: usize,
    call: impl FnOnce() -> T,
) -> T {
    if regions::regions().foreign.load(Relaxed)
        && process().state() == State::Active
        && let Some(mut inside) = Inside::enter::<Preload>(here())
    {
        regions::unmapped(inside.lane(), start as u64, bytes as u64);
    }
    python_interpreter::await_readers();
    let unmapping = Unmapping::begin::<Preload>(entry, start as u64, bytes as u64);
    let status = call();
    if let Some(unmapping) = unmapping {
        unmapping.end::<Preload>(status == T::from(0));
    }
    mappings::changed_memory();
    status
}

pub extern "C" fn mremap_body(
    old: usize,
    old_bytes: usize,
    bytes: usize,
    flags: i32,
    new: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> usize {
    remap(Entry { sp, bp }, (old, old_bytes, bytes, flags), || {
        call_real!(MREMAP, (old, old_bytes, bytes, flags, new), FAILED)
    })
}

fn remap(
    entry: Entry,
    (old, old_bytes, bytes, flags): (usize, usize, usize, i32),
    call: impl FnOnce() -> usize,
) -> usize {
    const MREMAP_DONTUNMAP: i32 = 4;
    if own_calls::is_caller_of(entry) {
        return call();
    }
    // With an old size of 0, shared memory is mapped again.
    let keeps_old = flags & MREMAP_DONTUNMAP != 0 || old_bytes == 0;
    let old = (old as u64, if keeps_old { 0 } else { old_bytes as u64 });
    let remapping = Remapping::begin::<Preload>(entry, old);
    let start = call();
    let made = (start != FAILED).then_some((start as u64, bytes as u64));
    remapping.end::<Preload>(made);
    start
}

pub extern "C" fn mprotect_body(
    start: usize,
    bytes: usize,
    protection: i32,
    _: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> i32 {
    protect(Entry { sp, bp }, (start, bytes, protection), || {
        call_real!(MPROTECT, (start, bytes, protection), ERROR)
    })
}

fn protect<T: PartialEq + From<u8>>(
    entry: Entry,
    (start, bytes, protection): (usize, usize, i32),
    call: impl FnOnce() -> T,
) -> T {
    let status = call();
    if status == T::from(0) {
        mappings::protected::<Preload>(entry, start as u64, bytes as u64, protection as u32);
    }
    status
}

pub extern "C" fn brk_body(
    to: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> i32 {
    let entry = Entry { sp, bp };
    if own_calls::is_caller_of(entry) {
        return call_real!(BRK, (to), ERROR);
    }
    let before = call_real!(SBRK, (0), FAILED);
    let status = call_real!(BRK, (to), ERROR);
    if status == 0 && before != FAILED {
        mappings::break_moved::<Preload>(entry, before as u64, to as u64);
    }
    status
}

pub extern "C" fn sbrk_body(
    by: isize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> usize {
    let entry = Entry { sp, bp };
    let before = call_real!(SBRK, (by), FAILED);
    if by != 0 && before != FAILED && !own_calls::is_caller_of(entry) {
        let after = before.wrapping_add_signed(by) as u64;
        mappings::break_moved::<Preload>(entry, before as u64, after);
    }
    before
}

pub extern "C" fn shmat_body(
    id: i32,
    at: usize,
    flags: i32,
    _: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> usize {
    const SHM_RDONLY: i32 = 0o10000;
    const SHM_EXEC: i32 = 0o100000;
    let start = call_real!(SHMAT, (id, at, flags), FAILED);
    if start == FAILED {
        return start;
    }
    let segment = if confined::may_call() { kernel::shared_segment(id) } else { None };
    if let Some((bytes, key)) = segment {
        let write = if flags & SHM_RDONLY != 0 { 0 } else { 2 };
        let execute = if flags & SHM_EXEC != 0 { 4 } else { 0 };
        let what = What::Shmat { protection: 1 | write | execute, key };
        let made = Made { start: start as u64, requested: bytes, what };
        mappings::mapped::<Preload>(Entry { sp, bp }, made);
    } else {
        mappings::lost();
    }
    start
}

pub extern "C" fn shmdt_body(
    at: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> i32 {
    let detaching = Unmapping::begin_detach::<Preload>(Entry { sp, bp }, at as u64);
    let status = call_real!(SHMDT, (at), ERROR);
    if let Some(detaching) = detaching {
        detaching.end::<Preload>(status == 0);
    }
    status
}

/// Defines entries for calls through `syscall`, whose hook jumps to them ([`crate::auxiliary`]):
/// the first argument is the call's number, so the call's sixth argument is their seventh.
macro_rules! by_syscall {
    ($($name:ident = $body:path;)*) => {
        $(
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                crate::arch::call_with_registers!($body)
            }
        )*
    };
}

by_syscall! {
    mmap_by_syscall = mmap_syscall_body;
    munmap_by_syscall = munmap_syscall_body;
    mremap_by_syscall = mremap_syscall_body;
    mprotect_by_syscall = mprotect_syscall_body;
}

extern "C" fn mmap_syscall_body(
    number: usize,
    start: usize,
    bytes: usize,
    protection: usize,
    flags: usize,
    fd: usize,
    sp: u64,
    bp: u64,
) -> usize {
    // SAFETY: `sp` is that of the entry of `syscall`, which has seven arguments.
    let offset = unsafe { arch::seventh_argument(sp) };
    let [protection, flags, fd] = [protection, flags, fd].map(|word| word as i32);
    let what = What::Mmap { protection, flags, fd };
    map(Entry { sp, bp }, bytes, what, || {
        let [protection, flags, fd] = [protection, flags, fd].map(|word| word as usize);
        call_real!(SYSCALL, (number, start, bytes, protection, flags, fd, offset), FAILED)
    })
}

extern "C" fn munmap_syscall_body(
    number: usize,
    start: usize,
    bytes: usize,
    _: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> usize {
    unmap(Entry { sp, bp }, start, bytes, || {
        call_real!(SYSCALL, (number, start, bytes, 0, 0, 0, 0), FAILED)
    })
}

extern "C" fn mremap_syscall_body(
    number: usize,
    old: usize,
    old_bytes: usize,
    bytes: usize,
    flags: usize,
    new: usize,
    sp: u64,
    bp: u64,
) -> usize {
    remap(Entry { sp, bp }, (old, old_bytes, bytes, flags as i32), || {
        call_real!(SYSCALL, (number, old, old_bytes, bytes, flags, new, 0), FAILED)
    })
}

extern "C" fn mprotect_syscall_body(
    number: usize,
    start: usize,
    bytes: usize,
    protection: usize,
    _: usize,
    _: usize,
    sp: u64,
    bp: u64,
) -> usize {
    protect(Entry { sp, bp }, (start, bytes, protection as i32), || {
        call_real!(SYSCALL, (number, start, bytes, protection, 0, 0, 0), FAILED)
    })
}
