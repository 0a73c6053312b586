//! System calls for starting another program, in addition to those of [`crate::sys::kernel`].

#[cfg(not(miri))]
use crate::sys::arch::clone_call;
use crate::sys::arch::numbers::{CLOSE_RANGE, DUP3, EXECVE, FCNTL, RT_SIGACTION, SETSID, WAIT4};
#[cfg(not(miri))]
use crate::sys::kernel::result_of;
use crate::sys::kernel::{Errno, Fd, Path, RLIMIT_NOFILE, call, close, limit, set_signal_mask};

/// The child shares the address space of the parent.
pub const CLONE_VM: usize = 0x100;
/// The child shares the table of open files of the parent.
pub const CLONE_FILES: usize = 0x400;
/// The parent waits until the child executes a program or ends.
pub const CLONE_VFORK: usize = 0x4000;
/// The signal that a child sends to its parent when it ends.
pub const SIGCHLD: usize = 17;

/// Starts a child process that runs `entry(argument)` on the stack that ends at `top`, and exits
/// with the returned status. Returns the child's id.
///
/// # Safety
/// `top` is 16-aligned. The memory below it suffices for `entry`, and nothing else uses it until
/// the child has ended or executes a program. With [`CLONE_VM`], `entry` uses nothing that depends
/// on the thread.
#[cfg(not(miri))]
pub unsafe fn clone(
    flags: usize,
    top: *mut u8,
    entry: extern "C" fn(*mut u8) -> i32,
    argument: *mut u8,
) -> Result<u32, Errno> {
    // SAFETY: promised by the caller.
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

/// Waits until a child of the calling thread has ended, including a child that sends no signal.
/// Returns its status as wait4 does, and removes it from the process table.
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

/// Resets all signals to their default actions.
pub fn reset_handlers() {
    const SIGNALS: usize = 64;
    let default = [0u64; 4];
    for signal in 1..=SIGNALS {
        let a = [signal, default.as_ptr() as usize, 0, size_of::<u64>(), 0, 0];
        // SAFETY: the kernel reads an action of 32 bytes: no handler, no flags, no mask.
        let _ = unsafe { call(RT_SIGACTION, a) };
    }
}

/// Unblocks all signals.
pub fn unblock_signals() {
    set_signal_mask(0, &mut 0);
}

/// Moves the process to a session of its own, without a terminal.
pub fn start_session() {
    // SAFETY: no arguments.
    let _ = unsafe { call(SETSID, [0; 6]) };
}

/// Gives a descriptor a number with which programs inherit it, in place of the number's former
/// descriptor. Returns whether that was possible.
pub fn put_at(fd: Fd, number: i32) -> bool {
    const F_SETFD: usize = 2;
    let (call_number, a) = if fd.0 == number {
        // Clears the close-on-exec flag.
        (FCNTL, [fd.0 as usize, F_SETFD, 0, 0, 0, 0])
    } else {
        (DUP3, [fd.0 as usize, number as usize, 0, 0, 0, 0])
    };
    // SAFETY: no memory is involved.
    unsafe { call(call_number, a) }.is_ok()
}

/// Closes all descriptors from `first` on.
pub fn close_from(first: usize) {
    /// Maximum number of descriptors that are closed one by one, before Linux 5.9.
    const TRIED_MAX: u64 = 65536;
    // SAFETY: no memory is involved.
    if unsafe { call(CLOSE_RANGE, [first, u32::MAX as usize, 0, 0, 0, 0]) }.is_ok() {
        return;
    }
    for number in first as u64..limit(RLIMIT_NOFILE).min(TRIED_MAX) {
        close(Fd(number as i32));
    }
}

/// Executes another program; returns only if that fails, with the error.
///
/// # Safety
/// Both lists consist of zero-terminated strings, and end with null.
pub unsafe fn execute(
    path: Path<'_>,
    arguments: *const *const u8,
    environment: *const *const u8,
) -> Option<Errno> {
    let a = [path.as_ptr() as usize, arguments as usize, environment as usize, 0, 0, 0];
    // SAFETY: promised by the caller.
    unsafe { call(EXECVE, a) }.err()
}
