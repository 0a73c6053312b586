//! System calls, made directly, without libc wrappers: the guest's errno does not change and no
//! call can be interposed.

use crate::sys::arch::numbers::*;
#[cfg(not(miri))]
use crate::sys::arch::system_call;
use crate::sys::arch::{PAGE_BYTES_MAX, SHADOW_STACK_STATUS, Stat};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use heaptide_format::PAGE;

/// The error number of a failed call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

pub const ENOENT: Errno = Errno(2);
const EINTR: Errno = Errno(4);
pub(super) const ENOSYS: Errno = Errno(38);
pub const EEXIST: Errno = Errno(17);
pub const EOPNOTSUPP: Errno = Errno(95);
pub const ESRCH: Errno = Errno(3);
pub const EFAULT: Errno = Errno(14);
pub const EFBIG: Errno = Errno(27);
pub const EPERM: Errno = Errno(1);
pub const E2BIG: Errno = Errno(7);
pub const ENOMEM: Errno = Errno(12);
pub const ENOSPC: Errno = Errno(28);
pub const ENAMETOOLONG: Errno = Errno(36);

pub const O_RDONLY: usize = 0;
pub const O_RDWR: usize = 2;
pub const O_CREAT: usize = 0o100;
const O_WRONLY: usize = 1;
const O_TRUNC: usize = 0o1000;
pub const O_EXCL: usize = 0o200;
pub const O_NONBLOCK: usize = 0o4000;
pub const O_CLOEXEC: usize = 0o2_000_000;

pub const RLIMIT_FSIZE: usize = 1;
pub const RLIMIT_DATA: usize = 2;
pub const RLIMIT_NOFILE: usize = 7;
pub const RLIMIT_MEMLOCK: usize = 8;
pub const RLIMIT_AS: usize = 9;

pub const MADV_DONTNEED: usize = 4;
pub const MADV_DONTFORK: usize = 10;
pub const MADV_DOFORK: usize = 11;
pub const MADV_NOHUGEPAGE: usize = 15;
pub const MADV_DONTDUMP: usize = 16;
pub const MADV_WIPEONFORK: usize = 18;
pub const MADV_POPULATE_WRITE: usize = 23;

/// Paths are relative to the current directory.
const AT_FDCWD: usize = -100isize as usize;

const PROT_RW: usize = 3;
/// The protection of code.
pub const PROT_RX: usize = 5;
/// The protection of code that is being changed.
pub const PROT_RWX: usize = 7;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;

/// Converts the kernel's return value to a result.
#[inline(always)]
pub(super) fn result_of(r: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&r) { Err(Errno(-r as i32)) } else { Ok(r as usize) }
}

/// Makes a system call.
///
/// # Safety
/// The arguments are valid for the call: pointers that it reads or writes are valid as long as it
/// requires.
#[cfg(not(miri))]
#[inline(always)]
pub(super) unsafe fn call(n: usize, a: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: promised by the caller.
    result_of(unsafe { system_call(n, a) })
}

/// Replaces the kernel under miri, which has no system calls: only mapping memory succeeds.
///
/// # Safety
/// As above.
#[cfg(miri)]
pub(super) unsafe fn call(n: usize, a: [usize; 6]) -> Result<usize, Errno> {
    const PAGE_BYTES: usize = PAGE as usize;
    match n {
        MMAP if a[4] as i32 == -1 => {
            let layout =
                std::alloc::Layout::from_size_align(a[1].next_multiple_of(PAGE_BYTES), PAGE_BYTES);
            let layout = layout.map_err(|_| ENOSYS)?;
            // SAFETY: a mapping has at least one page.
            Ok(unsafe { std::alloc::alloc_zeroed(layout) }.expose_provenance())
        }
        MUNMAP | MADVISE | SCHED_YIELD => Ok(0),
        GETPID => Ok(1),
        FACCESSAT2 => Err(ENOENT),
        _ => Err(ENOSYS),
    }
}

/// An open file. It is not closed on drop: the recorder keeps one open and closes the others with
/// [`close`].
#[derive(Clone, Copy)]
pub struct Fd(pub i32);

/// A path or name, including the zero byte that ends it.
#[derive(Clone, Copy)]
pub struct Path<'a>(&'a [u8]);

impl<'a> Path<'a> {
    /// Returns its address, for a list of strings.
    pub fn as_ptr(self) -> *const u8 {
        self.0.as_ptr()
    }

    /// Returns the bytes up to the first zero; none if there is no zero.
    pub fn new(bytes: &'a [u8]) -> Option<Path<'a>> {
        let end = bytes.iter().position(|&b| b == 0)?;
        Some(Path(&bytes[..end + 1]))
    }
}

pub fn open(path: Path<'_>, flags: usize) -> Result<Fd, Errno> {
    let a = [AT_FDCWD, path.0.as_ptr() as usize, flags | O_CLOEXEC, 0o644, 0, 0];
    // SAFETY: `path` is zero-terminated.
    unsafe { call(OPENAT, a) }.map(|fd| Fd(fd as i32))
}

/// Creates a file that does not exist. Its owner can read and write it, whatever the umask is,
/// since the file is opened again by its name to let it grow.
///
/// Errors: those of the kernel.
pub fn create(path: Path<'_>) -> Result<Fd, Errno> {
    const OWNER: u32 = 0o600;
    const RIGHTS: u32 = 0o777;
    let fd = open(path, O_RDWR | O_CREAT | O_EXCL)?;
    let mode = stat(fd).map_or(OWNER, |stat| stat.mode);
    if mode & OWNER != OWNER {
        let rights = (mode & RIGHTS | OWNER) as usize;
        // SAFETY: changes no memory.
        let _ = unsafe { call(FCHMOD, [fd.0 as usize, rights, 0, 0, 0, 0]) };
    }
    Ok(fd)
}

pub fn close(fd: Fd) {
    // SAFETY: closing accesses no memory; the recorder opened `fd`.
    let _ = unsafe { call(CLOSE, [fd.0 as usize, 0, 0, 0, 0, 0]) };
}

/// Opens a file for writing, as `fopen` with mode "w" does.
pub fn replace(path: Path<'_>) -> Result<Fd, Errno> {
    const ALL_MAY_WRITE: usize = 0o666;
    let flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    let a = [AT_FDCWD, path.0.as_ptr() as usize, flags, ALL_MAY_WRITE, 0, 0];
    // SAFETY: `path` is zero-terminated.
    unsafe { call(OPENAT, a) }.map(|fd| Fd(fd as i32))
}

/// Writes at the current position. Returns whether all of it was written.
pub fn write_all(fd: Fd, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let a = [fd.0 as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
        // SAFETY: the kernel only reads `bytes`.
        match unsafe { call(WRITE, a) } {
            Ok(0) => return false,
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Reads until `buffer` is full or the file ends. Returns the number of bytes read.
pub fn read_full(fd: Fd, buffer: &mut [u8]) -> usize {
    let mut n = 0;
    while n < buffer.len() {
        match read(fd, &mut buffer[n..]) {
            Ok(0) | Err(_) => break,
            Ok(m) => n += m,
        }
    }
    n
}

pub fn read(fd: Fd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let a = [fd.0 as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the kernel writes at most `buffer.len()` bytes into it.
    unsafe { call(READ, a) }
}

/// Reads a file up to the buffer's length. Returns its bytes.
pub fn read_file<'b>(path: Path<'_>, buffer: &'b mut [u8]) -> Result<&'b [u8], Errno> {
    let fd = open(path, O_RDONLY)?;
    let n = read_full(fd, buffer);
    close(fd);
    Ok(&buffer[..n])
}

pub fn write_at(fd: Fd, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    let a = [fd.0 as usize, bytes.as_ptr() as usize, bytes.len(), offset as usize, 0, 0];
    // SAFETY: the kernel only reads `bytes`.
    unsafe { call(PWRITE, a) }
}

/// Reads once at an offset. Returns the number of bytes read.
pub fn read_at(fd: Fd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let at = buffer.as_mut_ptr() as usize;
    let a = [fd.0 as usize, at, buffer.len(), offset as usize, 0, 0];
    // SAFETY: the kernel writes at most `buffer.len()` bytes into it.
    unsafe { call(PREAD, a) }
}

fn stat(fd: Fd) -> Result<Stat, Errno> {
    let mut stat = core::mem::MaybeUninit::<Stat>::zeroed();
    // SAFETY: the kernel writes the struct; any bytes are valid.
    unsafe {
        call(FSTAT, [fd.0 as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0])?;
        Ok(stat.assume_init())
    }
}

/// Returns device and inode of an open file.
pub fn identity(fd: Fd) -> Result<(u64, u64), Errno> {
    stat(fd).map(|stat| (stat.device, stat.inode))
}

/// Returns the size of an open file.
pub fn file_size(fd: Fd) -> Option<u64> {
    stat(fd).ok().map(|stat| stat.size)
}

/// Returns whether an open file is a regular one.
pub fn is_regular(fd: Fd) -> bool {
    const S_IFMT: u32 = 0o170_000;
    const S_IFREG: u32 = 0o100_000;
    stat(fd).is_ok_and(|stat| stat.mode & S_IFMT == S_IFREG)
}

/// Returns whether the process gains another user's or group's privileges by executing an open
/// file: then the loader ignores `LD_PRELOAD`.
pub fn gains_rights(fd: Fd) -> bool {
    const S_ISUID: u32 = 0o4000;
    const S_ISGID: u32 = 0o2000;
    const S_IXGRP: u32 = 0o10;
    // SAFETY: no arguments.
    let id = |number| unsafe { call(number, [0; 6]) }.unwrap_or(0) as u32;
    stat(fd).is_ok_and(|stat| {
        let bits = |bits: u32| stat.mode & bits == bits;
        bits(S_ISUID) && stat.user != id(GETUID)
            || bits(S_ISGID | S_IXGRP) && stat.group != id(GETGID)
    })
}

/// Returns whether the process may read, write or search a file (a sum of 4, 2 and 1), with its
/// current privileges.
pub fn may_access(path: Path<'_>, mode: usize) -> bool {
    const AT_EACCESS: usize = 0x200;
    let a = [AT_FDCWD, path.0.as_ptr() as usize, mode, AT_EACCESS, 0, 0];
    // SAFETY: zero-terminated.
    let answer = unsafe { call(FACCESSAT2, a) };
    // Linux before 5.8 does not have this call, and filters of containers that do not know it
    // return EPERM. Neither concerns the file, and the attempt to access it will show.
    answer.is_ok() || is_refused(answer)
}

/// Returns whether the kernel does not have a call, or a filter rejects it.
pub fn is_refused<T>(answer: Result<T, Errno>) -> bool {
    matches!(answer, Err(ENOSYS | EPERM))
}

pub fn fallocate(fd: Fd, offset: u64, length: u64) -> Result<(), Errno> {
    let a = [fd.0 as usize, 0, offset as usize, length as usize, 0, 0];
    // SAFETY: no memory is involved.
    unsafe { call(FALLOCATE, a) }.map(|_| ())
}

/// Copies a descriptor to a number not below `least`, close-on-exec.
pub fn copy_from(fd: Fd, least: usize) -> Result<Fd, Errno> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    // SAFETY: no memory is involved.
    unsafe { call(FCNTL, [fd.0 as usize, F_DUPFD_CLOEXEC, least, 0, 0, 0]) }.map(|fd| Fd(fd as i32))
}

/// Moves `fd` to a free number not below `least`, close-on-exec.
pub fn move_up(fd: Fd, least: usize) -> Fd {
    match copy_from(fd, least) {
        Ok(high) => {
            close(fd);
            high
        }
        Err(_) => fd,
    }
}

/// Creates a directory with these permissions, minus those in the umask.
pub fn mkdir(path: Path<'_>, rights: usize) -> Result<(), Errno> {
    // SAFETY: `path` is zero-terminated.
    unsafe { call(MKDIRAT, [AT_FDCWD, path.0.as_ptr() as usize, rights, 0, 0, 0]) }.map(|_| ())
}

/// Removes a directory, if it is empty.
pub fn rmdir(path: Path<'_>) {
    const AT_REMOVEDIR: usize = 0x200;
    // SAFETY: `path` is zero-terminated.
    let _ = unsafe { call(UNLINKAT, [AT_FDCWD, path.0.as_ptr() as usize, AT_REMOVEDIR, 0, 0, 0]) };
}

pub fn rename(from: Path<'_>, to: Path<'_>) -> Result<(), Errno> {
    let a = [AT_FDCWD, from.0.as_ptr() as usize, AT_FDCWD, to.0.as_ptr() as usize, 0, 0];
    // SAFETY: both are zero-terminated.
    unsafe { call(RENAMEAT, a) }.map(|_| ())
}

pub fn unlink(path: Path<'_>) {
    // SAFETY: zero-terminated.
    let _ = unsafe { call(UNLINKAT, [AT_FDCWD, path.0.as_ptr() as usize, 0, 0, 0, 0]) };
}

pub const MEMBARRIER_PRIVATE_EXPEDITED: usize = 8;
pub const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: usize = 16;

/// Makes all threads of the process pass a memory barrier. Returns false if the kernel cannot.
pub fn membarrier(command: usize) -> bool {
    // SAFETY: no memory is involved.
    unsafe { call(MEMBARRIER, [command, 0, 0, 0, 0, 0]) }.is_ok()
}

pub fn readlink<'b>(path: Path<'_>, buffer: &'b mut [u8]) -> Result<&'b [u8], Errno> {
    let to = buffer.as_mut_ptr() as usize;
    let a = [AT_FDCWD, path.0.as_ptr() as usize, to, buffer.len(), 0, 0];
    // SAFETY: the kernel writes at most `buffer.len()` bytes.
    let n = unsafe { call(READLINKAT, a) }?;
    Ok(&buffer[..n])
}

/// Maps zeroed private memory, which is not counted until it is used; null if there is none.
pub fn map_private(bytes: usize) -> *mut u8 {
    map(bytes, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, Fd(-1))
}

/// Maps the first `bytes` of a file, shared, with room for it to grow; null on failure. Only pages
/// within the file may be accessed.
pub fn map_shared(fd: Fd, bytes: usize) -> *mut u8 {
    map(bytes, PROT_RW, MAP_SHARED | MAP_NORESERVE, fd)
}

fn map(bytes: usize, protection: usize, flags: usize, fd: Fd) -> *mut u8 {
    // SAFETY: without MAP_FIXED a new mapping replaces none.
    match unsafe { call(MMAP, [0, bytes, protection, flags, fd.0 as isize as usize, 0]) } {
        Ok(address) => address as *mut u8,
        Err(_) => core::ptr::null_mut(),
    }
}

/// Maps a part of a file for reading; `offset` is a multiple of the page size.
pub fn map_file(fd: Fd, offset: u64, bytes: usize) -> Option<*mut u8> {
    const PROT_READ: usize = 1;
    let a = [0, bytes, PROT_READ, MAP_PRIVATE, fd.0 as usize, offset as usize];
    // SAFETY: without MAP_FIXED a new mapping replaces none.
    unsafe { call(MMAP, a) }.ok().map(|address| address as *mut u8)
}

/// Maps zeroed private memory at an address, which is a multiple of the page size; none if that is
/// in use.
pub fn map_at(address: u64, bytes: usize) -> Option<*mut u8> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, which replaces none.
    let got = unsafe { call(MMAP, [address as usize, bytes, PROT_RW, flags, usize::MAX, 0]) };
    let start = got.ok()? as *mut u8;
    if start as u64 == address {
        return Some(start);
    }
    // SAFETY: an older kernel, which treats the address as a hint: fresh memory.
    unsafe { unmap(start, bytes) };
    None
}

/// Changes the protection of memory. Returns false on failure.
///
/// # Safety
/// Whole pages, of which nothing is used in a way that is forbidden afterwards.
pub unsafe fn protect(start: u64, bytes: usize, protection: usize) -> bool {
    // SAFETY: promised by the caller.
    unsafe { call(MPROTECT, [start as usize, bytes, protection, 0, 0, 0]) }.is_ok()
}

/// Returns whether the thread has a shadow stack, which rejects return addresses that no call has
/// pushed.
pub fn has_shadow_stack() -> bool {
    const ENABLED: u64 = 1;
    let mut status = 0u64;
    let (number, operation) = SHADOW_STACK_STATUS;
    // SAFETY: the kernel writes one word.
    let call = unsafe { call(number, [operation, &raw mut status as usize, 0, 0, 0, 0]) };
    call.is_ok() && status & ENABLED != 0
}

/// Unmaps memory.
///
/// # Safety
/// `start..start + bytes` is a mapping of the recorder that nothing uses any more.
pub unsafe fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: promised by the caller.
    let _ = unsafe { call(MUNMAP, [start as usize, bytes, 0, 0, 0, 0]) };
}

/// Gives the kernel advice about memory.
///
/// # Safety
/// The range is a mapping of the recorder, and `advice` keeps its contents if the caller needs
/// them.
pub unsafe fn advise(start: *mut u8, bytes: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: promised by the caller.
    unsafe { call(MADVISE, [start as usize, bytes, advice, 0, 0, 0]) }.map(|_| ())
}

/// Returns a byte for each page of `start..start + bytes`, which are whole pages; its lowest bit is
/// set if the page is resident. The number of pages is limited by `buffer`. Empty if some page is
/// not mapped.
pub fn present_pages(start: u64, bytes: u64, buffer: &mut [u8]) -> &[u8] {
    let page = page_bytes();
    let pages = ((bytes / page) as usize).min(buffer.len());
    let a = [start as usize, pages * page as usize, buffer.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the kernel writes a byte for each page.
    match unsafe { call(MINCORE, a) } {
        Ok(_) => &buffer[..pages],
        Err(_) => &[],
    }
}

pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETPID, [0; 6]) }.unwrap_or(0) as u32
}

pub fn getppid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETPPID, [0; 6]) }.unwrap_or(0) as u32
}

pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETTID, [0; 6]) }.unwrap_or(0) as u32
}

/// Returns whether a thread of this process no longer exists.
pub fn thread_is_gone(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 only checks.
    let answer = unsafe { call(TGKILL, [pid as usize, tid as usize, 0, 0, 0, 0]) };
    answer == Err(ESRCH)
}

/// Reads memory of this process that may not be mapped. Returns false if it is not, or if the
/// kernel does not allow it.
pub fn read_own(address: u64, bytes: &mut [u8]) -> bool {
    try_read_own(address, bytes) == Ok(bytes.len())
}

/// Reads memory of this process that may not be mapped. Returns how many bytes of it are.
///
/// Errors: [`EFAULT`] if none is mapped; another one if the kernel does not allow the call.
pub fn try_read_own(address: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
    let to = [bytes.as_mut_ptr() as usize, bytes.len()];
    let from = [address as usize, bytes.len()];
    let arguments = [getpid() as usize, to.as_ptr() as usize, 1, from.as_ptr() as usize, 1, 0];
    // SAFETY: the kernel writes at most as many bytes as there is room for, and checks the source.
    unsafe { call(PROCESS_VM_READV, arguments) }
}

/// Blocks all signals of the calling thread. Returns the former mask.
pub fn block_signals() -> u64 {
    let mut before = 0;
    set_signal_mask(u64::MAX, &mut before);
    before
}

/// Restores the former signal mask.
pub fn restore_signals(before: u64) {
    set_signal_mask(before, &mut 0);
}

pub(super) fn set_signal_mask(mask: u64, before: &mut u64) {
    const SIG_SETMASK: usize = 2;
    let (mask, before) = (&raw const mask as usize, before as *mut u64 as usize);
    // SAFETY: the kernel reads and writes masks of 8 bytes.
    let _ = unsafe { call(RT_SIGPROCMASK, [SIG_SETMASK, mask, before, size_of::<u64>(), 0, 0]) };
}

/// Wakes one thread of this process that waits for a change of `word`.
pub fn wake_one(word: &AtomicI32) {
    const FUTEX_WAKE_PRIVATE: usize = 1 | 128;
    let at = core::ptr::from_ref(word) as usize;
    // SAFETY: waking reads nothing but the address.
    let _ = unsafe { call(FUTEX, [at, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0]) };
}

/// Waits until `word`, which another process may have changed, is no longer `value` and that woke
/// this thread, or for `ns` nanoseconds, or until a signal arrives.
pub fn wait_for_change(word: &AtomicU32, value: u32, ns: u64) {
    const FUTEX_WAIT: usize = 0;
    let time = [ns / 1_000_000_000, ns % 1_000_000_000];
    let (at, time) = (core::ptr::from_ref(word) as usize, time.as_ptr() as usize);
    // SAFETY: the kernel reads the word and a timespec.
    let _ = unsafe { call(FUTEX, [at, FUTEX_WAIT, value as usize, time, 0, 0]) };
}

/// Lets any process of the user trace this one, or again only ancestors, where that is the rule
/// (Yama). Elsewhere nothing happens.
pub fn allow_tracing(by_any: bool) {
    const PR_SET_PTRACER: usize = 0x5961_6d61;
    const PR_SET_PTRACER_ANY: usize = usize::MAX;
    let by = if by_any { PR_SET_PTRACER_ANY } else { 0 };
    // SAFETY: takes integers.
    let _ = unsafe { call(PRCTL, [PR_SET_PTRACER, by, 0, 0, 0, 0]) };
}

pub fn sched_yield() {
    // SAFETY: no arguments.
    let _ = unsafe { call(SCHED_YIELD, [0; 6]) };
}

/// Returns the start time of the process in clock ticks since boot; 0 if it is unknown.
pub fn start_ticks() -> u64 {
    const FIELD: usize = 19;
    own_state(FIELD).unwrap_or(0)
}

/// Returns whether the process has no other thread. False if that is unknown.
pub fn is_alone() -> bool {
    const FIELD: usize = 17;
    own_state(FIELD) == Some(1)
}

/// Returns whether the process has a seccomp filter, its own or an inherited one. True if that is
/// unknown.
pub fn has_filter() -> bool {
    const NAME: &[u8] = b"\nSeccomp:\t";
    let mut buffer = [0u8; 4096];
    let Some(Ok(status)) = Path::new(b"/proc/self/status\0").map(|p| read_file(p, &mut buffer))
    else {
        return true;
    };
    let found = status.windows(NAME.len()).position(|window| window == NAME);
    found.and_then(|at| status.get(at + NAME.len())) != Some(&b'0')
}

/// Returns a number of `/proc/self/stat`, by its index among the fields after the name, which ends
/// with the last bracket; none if it cannot be read.
fn own_state(field: usize) -> Option<u64> {
    let mut buffer = [0u8; 512];
    let stat = read_file(Path::new(b"/proc/self/stat\0")?, &mut buffer).ok()?;
    let behind_name = stat.rsplit(|&b| b == b')').next().unwrap_or(b"").trim_ascii_start();
    behind_name.split(|&b| b == b' ').nth(field).map(leading_number)
}

/// Returns whether the process has privileges that its user does not have, as from a set-user-ID
/// file. False if that cannot be read.
pub fn has_gained_rights() -> bool {
    const AT_SECURE: u64 = 23;
    auxiliary(AT_SECURE).is_some_and(|value| value != 0)
}

/// Returns an entry of the auxiliary vector; none if it cannot be read.
fn auxiliary(tag: u64) -> Option<u64> {
    let mut buffer = [0u8; 1024];
    let vector = read_file(Path::new(b"/proc/self/auxv\0")?, &mut buffer).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let mut entries = vector.chunks_exact(16);
    entries.find(|entry| word(&entry[..8]) == tag).map(|entry| word(&entry[8..]))
}

/// Returns the size of a page of memory. With some kernels of aarch64, it differs from
/// [`heaptide_format::PAGE`], which determines the layout of files.
pub fn page_bytes() -> u64 {
    const AT_PAGESZ: u64 = 6;
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    if PAGE_BYTES_MAX == PAGE {
        return PAGE;
    }
    let known = KNOWN.load(Relaxed);
    if known != 0 {
        return known;
    }
    let bytes = auxiliary(AT_PAGESZ).filter(|bytes| bytes.is_power_of_two()).unwrap_or(PAGE);
    let bytes = bytes.clamp(PAGE, PAGE_BYTES_MAX);
    KNOWN.store(bytes, Relaxed);
    bytes
}

/// Returns the inode of the process's pid namespace; 0 if it is unknown.
pub fn pid_namespace() -> u64 {
    let mut buffer = [0u8; 64];
    let link = Path::new(b"/proc/self/ns/pid\0").map(|path| readlink(path, &mut buffer));
    let Some(Ok(link)) = link else {
        return 0;
    };
    link.strip_prefix(b"pid:[").map_or(0, leading_number)
}

fn leading_number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|b| b.is_ascii_digit());
    digits.fold(0, |n, &b| n.wrapping_mul(10).wrapping_add((b - b'0') as u64))
}

/// Returns the calling thread's name.
pub fn thread_name() -> [u8; 16] {
    const PR_GET_NAME: usize = 16;
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes 16 bytes.
    let _ = unsafe { call(PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// `struct rlimit`: the limit in force, and the one up to which it may be raised.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Limit {
    pub soft: u64,
    pub hard: u64,
}

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;

/// Returns the limits of a resource; unlimited if they are unknown.
pub fn limits(resource: usize) -> Limit {
    let mut limits = Limit { soft: UNLIMITED, hard: UNLIMITED };
    // SAFETY: the kernel writes struct rlimit.
    let _ = unsafe { call(PRLIMIT, [0, resource, 0, &raw mut limits as usize, 0, 0]) };
    limits
}

/// Sets the limits of a resource. Returns false if that is not allowed.
pub fn set_limits(resource: usize, limits: &Limit) -> bool {
    // SAFETY: the kernel reads struct rlimit.
    unsafe { call(PRLIMIT, [0, resource, limits as *const Limit as usize, 0, 0, 0]) }.is_ok()
}

/// Returns the limit of a resource that is in force; unlimited if it is unknown.
pub fn limit(resource: usize) -> u64 {
    limits(resource).soft
}

/// Virtual, resident and shared bytes of the process. Shared ones are resident, too.
pub struct MemorySize {
    pub all: u64,
    pub resident: u64,
    pub shared: u64,
}

/// Returns how much memory the process has; none if it cannot be read.
pub fn memory_size() -> Option<MemorySize> {
    let page = page_bytes();
    let mut buffer = [0u8; 128];
    let text = Path::new(b"/proc/self/statm\0").map(|path| read_file(path, &mut buffer));
    let pages = text?.ok()?.split(|&b| b == b' ').map(leading_number);
    let mut bytes = pages.map(|pages| pages.wrapping_mul(page));
    Some(MemorySize { all: bytes.next()?, resident: bytes.next()?, shared: bytes.next()? })
}

/// Capabilities of a thread: effective, permitted and inheritable ones, first the low 32, then the
/// high 32.
type Capabilities = [[u32; 3]; 2];

/// The header of the calls about them: version 3, and the calling thread.
const CAPABILITIES: [u32; 2] = [0x2008_0522, 0];

/// Returns those of the calling thread; none if they are unknown.
fn capabilities() -> Option<Capabilities> {
    let mut sets = Capabilities::default();
    let (head, at) = (CAPABILITIES, sets.as_mut_ptr() as usize);
    // SAFETY: the kernel reads the header and writes two sets of three words.
    let known = unsafe { call(CAPGET, [head.as_ptr() as usize, at, 0, 0, 0, 0]) };
    known.is_ok().then_some(sets)
}

fn set_capabilities(sets: &Capabilities) {
    let (head, at) = (CAPABILITIES, sets.as_ptr() as usize);
    // SAFETY: the kernel reads the header and two sets of three words.
    let _ = unsafe { call(CAPSET, [head.as_ptr() as usize, at, 0, 0, 0, 0]) };
}

/// Returns whether the process may lock memory without limit.
pub fn may_lock_all() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    capabilities().is_some_and(|[[effective, ..], _]| effective & 1 << CAP_IPC_LOCK != 0)
}

/// Calls `look` with the privileges that a program has after exec: a user other than root loses
/// capabilities that it had until then.
pub fn as_after_exec<R>(look: impl FnOnce() -> R) -> R {
    // SAFETY: no arguments.
    let is_root = unsafe { call(GETEUID, [0; 6]) } == Ok(0);
    let kept = if is_root { None } else { capabilities() };
    let has_some = kept.filter(|[low, high]| low[0] | high[0] != 0);
    let Some(before) = has_some else {
        return look();
    };
    let [[_, low, low_kept], [_, high, high_kept]] = before;
    set_capabilities(&[[0, low, low_kept], [0, high, high_kept]]);
    let seen = look();
    set_capabilities(&before);
    seen
}

/// Locks a range of memory, as far as possible.
pub fn lock(start: u64, bytes: u64, on_fault: bool) {
    let a = [start as usize, bytes as usize, on_fault as usize, 0, 0, 0];
    // SAFETY: locking changes no contents. Before Linux 4.4 there is no mlock2.
    unsafe {
        if call(MLOCK2, a) == Err(ENOSYS) {
            let _ = call(MLOCK, a);
        }
    }
}

pub fn host_name() -> [u8; 65] {
    const FIELD: usize = 65;
    let mut names = [0u8; 6 * FIELD];
    // SAFETY: the kernel writes struct utsname, six fields of 65 bytes; the node name is the
    // second.
    let _ = unsafe { call(UNAME, [names.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) };
    let mut host = [0u8; FIELD];
    host.copy_from_slice(&names[FIELD..2 * FIELD]);
    host
}

/// Reads a clock by a system call, in nanoseconds; for when the vDSO is not available.
pub fn clock_ns(clock: usize) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes struct timespec, two u64.
    let _ = unsafe { call(CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

pub const CLOCK_REALTIME: usize = 0;
pub const CLOCK_MONOTONIC: usize = 1;
/// CPU time of the calling thread.
pub const CLOCK_THREAD_CPUTIME: usize = 3;

/// Ends the process, in place of a function that libc lacks.
pub fn exit_group(status: i32) {
    // SAFETY: no memory is involved.
    let _ = unsafe { call(EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) };
}

/// Returns the size and the key of a segment of shared memory (System V); none if the kernel
/// reports no data.
pub fn shared_segment(id: i32) -> Option<(u64, u32)> {
    /// `struct shmid_ds`; `key` is the first field of its first field, `shm_perm`.
    #[repr(C)]
    struct Segment {
        key: u32,
        permissions: [u32; 11],
        bytes: u64,
        rest: [u64; 7],
    }
    const IPC_STAT: usize = 2;
    let mut segment = Segment { key: 0, permissions: [0; 11], bytes: 0, rest: [0; 7] };
    let a = [id as isize as usize, IPC_STAT, &raw mut segment as usize, 0, 0, 0];
    // SAFETY: the kernel fills a struct of this size.
    unsafe { call(SHMCTL, a) }.ok()?;
    Some((segment.bytes, segment.key))
}
