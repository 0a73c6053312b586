//! System calls, made directly: no libc wrapper, so errno stays the guest's and nothing can be
//! interposed.

use core::arch::asm;

/// A failed call's error number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

pub const EEXIST: Errno = Errno(17);
pub const EOPNOTSUPP: Errno = Errno(95);
pub const ESRCH: Errno = Errno(3);
pub const EFBIG: Errno = Errno(27);

const READ: usize = 0;
const OPEN: usize = 2;
const CLOSE: usize = 3;
const FSTAT: usize = 5;
const MMAP: usize = 9;
const MUNMAP: usize = 11;
const PWRITE: usize = 18;
const SCHED_YIELD: usize = 24;
const MADVISE: usize = 28;
const GETPID: usize = 39;
const UNAME: usize = 63;
const FCNTL: usize = 72;
const RENAME: usize = 82;
const MKDIR: usize = 83;
const UNLINK: usize = 87;
const READLINK: usize = 89;
const GETPPID: usize = 110;
const PRCTL: usize = 157;
const GETTID: usize = 186;
const CLOCK_GETTIME: usize = 228;
const EXIT_GROUP: usize = 231;
const TGKILL: usize = 234;
const FALLOCATE: usize = 285;
const PRLIMIT: usize = 302;
const MEMBARRIER: usize = 324;

pub const O_RDONLY: usize = 0;
pub const O_RDWR: usize = 2;
pub const O_CREAT: usize = 0o100;
pub const O_EXCL: usize = 0o200;
pub const O_CLOEXEC: usize = 0o2_000_000;

pub const RLIMIT_FSIZE: usize = 1;
pub const RLIMIT_NOFILE: usize = 7;
pub const RLIMIT_AS: usize = 9;

pub const MADV_DONTNEED: usize = 4;
pub const MADV_DONTFORK: usize = 10;
pub const MADV_DONTDUMP: usize = 16;
pub const MADV_WIPEONFORK: usize = 18;
pub const MADV_POPULATE_WRITE: usize = 23;

const PROT_RW: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;

/// # Safety
/// The arguments are valid for the call: pointers it reads or writes are good for as long as it
/// says.
#[inline(always)]
unsafe fn call(n: usize, a: [usize; 6]) -> Result<usize, Errno> {
    let r: isize;
    // SAFETY: the kernel's convention; it changes rax, rcx, r11 and memory that the caller answers
    // for.
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => r, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if (-4095..0).contains(&r) { Err(Errno(-r as i32)) } else { Ok(r as usize) }
}

/// An open file. Not closed on drop: the recorder keeps one and closes the others by [`close`].
#[derive(Clone, Copy)]
pub struct Fd(pub i32);

/// A path or name, ended by a zero byte that is part of it.
#[derive(Clone, Copy)]
pub struct Path<'a>(&'a [u8]);

impl<'a> Path<'a> {
    /// The bytes up to the first zero, which there must be.
    pub fn new(bytes: &'a [u8]) -> Option<Path<'a>> {
        let end = bytes.iter().position(|&b| b == 0)?;
        Some(Path(&bytes[..end + 1]))
    }
}

pub fn open(path: Path<'_>, flags: usize) -> Result<Fd, Errno> {
    let a = [path.0.as_ptr() as usize, flags | O_CLOEXEC, 0o644, 0, 0, 0];
    // SAFETY: `path` is zero-terminated.
    unsafe { call(OPEN, a) }.map(|fd| Fd(fd as i32))
}

pub fn close(fd: Fd) {
    // SAFETY: closing touches no memory; `fd` is ours.
    let _ = unsafe { call(CLOSE, [fd.0 as usize, 0, 0, 0, 0, 0]) };
}

/// Reads until `buffer` is full or the file ends; returns the bytes read.
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

/// Opens, reads up to the buffer's length, closes; returns what was read.
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

/// Device and inode of an open file.
pub fn identity(fd: Fd) -> Result<(u64, u64), Errno> {
    let mut stat = [0u64; 18];
    // SAFETY: struct stat is 144 bytes on x86-64: device first, inode second.
    unsafe { call(FSTAT, [fd.0 as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
    Ok((stat[0], stat[1]))
}

pub fn fallocate(fd: Fd, offset: u64, length: u64) -> Result<(), Errno> {
    let a = [fd.0 as usize, 0, offset as usize, length as usize, 0, 0];
    // SAFETY: no memory is involved.
    unsafe { call(FALLOCATE, a) }.map(|_| ())
}

/// Moves `fd` to a free number not below `least`, close-on-exec.
pub fn move_up(fd: Fd, least: usize) -> Fd {
    const F_DUPFD_CLOEXEC: usize = 1030;
    // SAFETY: no memory is involved.
    match unsafe { call(FCNTL, [fd.0 as usize, F_DUPFD_CLOEXEC, least, 0, 0, 0]) } {
        Ok(high) => {
            close(fd);
            Fd(high as i32)
        }
        Err(_) => fd,
    }
}

pub fn mkdir(path: Path<'_>) -> Result<(), Errno> {
    // SAFETY: `path` is zero-terminated.
    unsafe { call(MKDIR, [path.0.as_ptr() as usize, 0o755, 0, 0, 0, 0]) }.map(|_| ())
}

pub fn rename(from: Path<'_>, to: Path<'_>) -> Result<(), Errno> {
    let a = [from.0.as_ptr() as usize, to.0.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: both are zero-terminated.
    unsafe { call(RENAME, a) }.map(|_| ())
}

pub fn unlink(path: Path<'_>) {
    // SAFETY: zero-terminated.
    let _ = unsafe { call(UNLINK, [path.0.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

pub const MEMBARRIER_PRIVATE_EXPEDITED: usize = 8;
pub const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: usize = 16;

/// Has every thread of the process pass a memory barrier; false if the kernel does not.
pub fn membarrier(command: usize) -> bool {
    // SAFETY: no memory is involved.
    unsafe { call(MEMBARRIER, [command, 0, 0, 0, 0, 0]) }.is_ok()
}

pub fn readlink<'b>(path: Path<'_>, buffer: &'b mut [u8]) -> Result<&'b [u8], Errno> {
    let a = [path.0.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the kernel writes at most `buffer.len()` bytes.
    let n = unsafe { call(READLINK, a) }?;
    Ok(&buffer[..n])
}

/// Zeroed private memory, reserved but not counted; null if there is none.
pub fn map_private(bytes: usize) -> *mut u8 {
    map(bytes, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, Fd(-1))
}

/// The first `bytes` of a file and room to grow to, mapped shared; null if refused. Only what the
/// file holds may be touched.
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

/// # Safety
/// `start..start + bytes` is a mapping of ours that nobody uses any more.
pub unsafe fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    let _ = unsafe { call(MUNMAP, [start as usize, bytes, 0, 0, 0, 0]) };
}

/// # Safety
/// The range is a mapping of ours, and `advice` leaves its contents as the caller needs them.
pub unsafe fn advise(start: *mut u8, bytes: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    unsafe { call(MADVISE, [start as usize, bytes, advice, 0, 0, 0]) }.map(|_| ())
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

/// Whether a thread of this process is gone.
pub fn thread_is_gone(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let answer = unsafe { call(TGKILL, [pid as usize, tid as usize, 0, 0, 0, 0]) };
    answer == Err(ESRCH)
}

pub fn sched_yield() {
    // SAFETY: no arguments.
    let _ = unsafe { call(SCHED_YIELD, [0; 6]) };
}

/// The calling thread's name.
pub fn thread_name() -> [u8; 16] {
    const PR_GET_NAME: usize = 16;
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes 16 bytes.
    let _ = unsafe { call(PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// The soft limit of a resource; `u64::MAX` when unlimited or unknown.
pub fn limit(resource: usize) -> u64 {
    let mut limits = [u64::MAX; 2];
    // SAFETY: the kernel writes struct rlimit, two u64.
    let _ = unsafe { call(PRLIMIT, [0, resource, 0, limits.as_mut_ptr() as usize, 0, 0]) };
    limits[0]
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

/// A clock by system call, in nanoseconds; for when the vDSO's is not at hand.
pub fn clock_ns(clock: usize) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes struct timespec, two u64.
    let _ = unsafe { call(CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

pub const CLOCK_REALTIME: usize = 0;
pub const CLOCK_MONOTONIC: usize = 1;

/// Ends the process; for a libc that lacks the function that was called.
pub fn exit_group(status: i32) {
    // SAFETY: no memory is involved.
    let _ = unsafe { call(EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) };
}
