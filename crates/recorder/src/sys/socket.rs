//! System calls for a connection to a command on this machine.

use crate::sys::arch::numbers::{CONNECT, GETSOCKOPT, PPOLL, PRCTL, SOCKET};
use crate::sys::kernel::{Fd, O_CLOEXEC, O_NONBLOCK, call};

/// Creates a local stream socket, which exec closes and which does not wait for a connection.
pub fn local_socket() -> Option<Fd> {
    const AF_UNIX: usize = 1;
    const STREAM_CLOSED_BY_EXEC: usize = 1 | O_CLOEXEC | O_NONBLOCK;
    // SAFETY: only numbers.
    let fd = unsafe { call(SOCKET, [AF_UNIX, STREAM_CLOSED_BY_EXEC, 0, 0, 0, 0]) };
    fd.ok().map(|fd| Fd(fd as i32))
}

/// Connects a socket. Returns false if that fails.
///
/// # Safety
/// `address` has `bytes` bytes.
pub unsafe fn connect(socket: Fd, address: *const u8, bytes: usize) -> bool {
    // SAFETY: the kernel reads these bytes.
    unsafe { call(CONNECT, [socket.0 as usize, address as usize, bytes, 0, 0, 0]) }.is_ok()
}

/// Returns the process that listens where a socket is connected; `None` if it cannot be seen from
/// here.
pub fn peer(socket: Fd) -> Option<i32> {
    const SOL_SOCKET: usize = 1;
    const SO_PEERCRED: usize = 17;
    let (mut credentials, mut bytes) = ([0i32; 3], size_of::<[i32; 3]>() as u32);
    let (to, length) = (credentials.as_mut_ptr() as usize, &raw mut bytes as usize);
    let a = [socket.0 as usize, SOL_SOCKET, SO_PEERCRED, to, length, 0];
    // SAFETY: the kernel writes at most `bytes` bytes: process, user, group.
    unsafe { call(GETSOCKOPT, a) }.ok()?;
    Some(credentials[0]).filter(|&process| process > 0)
}

/// Allows a process to trace this one, where the kernel allows only that of parents.
pub fn allow_tracer(process: i32) {
    const PR_SET_PTRACER: usize = 0x5961_6d61;
    // SAFETY: only numbers.
    let _ = unsafe { call(PRCTL, [PR_SET_PTRACER, process as usize, 0, 0, 0, 0]) };
}

/// Waits until something can be read. Returns false if nothing can be after this time.
pub fn is_readable_within(fd: Fd, milliseconds: usize) -> bool {
    const POLLIN: u64 = 1;
    let mut waited = (fd.0 as u32 as u64) | POLLIN << 32;
    let time = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    let a = [&raw mut waited as usize, 1, time.as_ptr() as usize, 0, 0, 0];
    // SAFETY: the kernel reads a `struct pollfd` and a time, and writes the former.
    let ready = unsafe { call(PPOLL, a) };
    ready == Ok(1)
}
