//! System calls that start another program, beside those of [`crate::sys::kernel`].

#[cfg(not(miri))]
use crate::sys::arch::clone_call;
use crate::sys::arch::numbers::{CLOSE_RANGE, DUP3, EXECVE, FCNTL, RT_SIGACTION, SETSID, WAIT4};
#[cfg(not(miri))]
use crate::sys::kernel::result_of;
use crate::sys::kernel::{Errno, Fd, Path, RLIMIT_NOFILE, call, close, limit, set_signal_mask};

/// The address space is the parent's.
pub const CLONE_VM: usize = 0x100;
/// The table of open files is the parent's.
pub const CLONE_FILES: usize = 0x400;
/// The parent waits until the child executes a program or ends.
pub const CLONE_VFORK: usize = 0x4000;
/// What a child sends its parent when it ends.
pub const SIGCHLD: usize = 17;

/// Starts a child process that runs `entry(argument)` on the stack that ends at `top`, and ends
/// with the status that it returns. Returns the child's id.
///
/// # Safety
/// `top` is 16-aligned, with memory below it that `entry` gets on with and that nothing else uses
/// until the child has ended or executes a program. With [`CLONE_VM`] `entry` uses nothing that
/// depends on the thread.
#[cfg(not(miri))]
pub unsafe fn clone(
    flags: usize,
    top: *mut u8,
    entry: extern "C" fn(*mut u8) -> i32,
    argument: *mut u8,
) -> Result<u32, Errno> {
    // SAFETY: as the caller promises.
    result_of(unsafe { clone_call(flags, top, entry, argument) }).map(|id| id as u32)
}

/// # Safety
/// As above.
#[cfg(miri)]
pub unsafe fn clone(
    _: usize,
    _: *mut u8,
    _: extern "C" fn(*mut u8) -> i32,
    _: *mut u8,
) -> Result<u32, Errno> {
    Err(crate::sys::kernel::ENOSYS)
}

/// Waits until a child has ended that the calling thread started, also one that sends no signal;
/// returns its status as wait4 does. Takes it off the table of processes.
pub fn wait_for(child: u32) -> Result<i32, Errno> {
    const WALL: usize = 0x4000_0000;
    const EINTR: Errno = Errno(4);
    let mut status = 0i32;
    loop {
        let a = [child as usize, &raw mut status as usize, WALL, 0, 0, 0];
        // SAFETY: the kernel writes a status of 4 bytes.
        match unsafe { call(WAIT4, a) } {
            Err(EINTR) => {}
            done => return done.map(|_| status),
        }
    }
}

/// Has all signals do what they do by default.
pub fn reset_handlers() {
    const SIGNALS: usize = 64;
    let default = [0u64; 4];
    for signal in 1..=SIGNALS {
        let a = [signal, default.as_ptr() as usize, 0, size_of::<u64>(), 0, 0];
        // SAFETY: the kernel reads an action of 32 bytes: no handler, no flags, no mask.
        let _ = unsafe { call(RT_SIGACTION, a) };
    }
}

/// Holds no signal back.
pub fn unblock_signals() {
    set_signal_mask(0, &mut 0);
}

/// Makes the process a session of its own, without terminal.
pub fn start_session() {
    // SAFETY: no arguments.
    let _ = unsafe { call(SETSID, [0; 6]) };
}

/// Gives a descriptor a number, in place of what has it, by which programs inherit it. Whether that
/// was possible.
pub fn put_at(fd: Fd, number: i32) -> bool {
    const F_SETFD: usize = 2;
    let (call_number, a) = if fd.0 == number {
        // Takes the mark off it that it is to be closed then.
        (FCNTL, [fd.0 as usize, F_SETFD, 0, 0, 0, 0])
    } else {
        (DUP3, [fd.0 as usize, number as usize, 0, 0, 0, 0])
    };
    // SAFETY: no memory is involved.
    unsafe { call(call_number, a) }.is_ok()
}

/// Closes all descriptors from `first` on.
pub fn close_from(first: usize) {
    /// Numbers that are tried one by one, before Linux 5.9.
    const TRIED_MAX: u64 = 65536;
    // SAFETY: no memory is involved.
    if unsafe { call(CLOSE_RANGE, [first, u32::MAX as usize, 0, 0, 0, 0]) }.is_ok() {
        return;
    }
    for number in first as u64..limit(RLIMIT_NOFILE).min(TRIED_MAX) {
        close(Fd(number as i32));
    }
}

/// Becomes another program; returns only why that failed.
///
/// # Safety
/// Both lists are of zero-terminated strings, and end with null.
pub unsafe fn execute(
    path: Path<'_>,
    arguments: *const *const u8,
    environment: *const *const u8,
) -> Option<Errno> {
    let a = [path.as_ptr() as usize, arguments as usize, environment as usize, 0, 0, 0];
    // SAFETY: as the caller promises.
    unsafe { call(EXECVE, a) }.err()
}
