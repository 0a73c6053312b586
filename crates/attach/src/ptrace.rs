//! Requests of ptrace that have no safe wrapper.
#![allow(unsafe_code, reason = "requests of ptrace that take addresses of our own memory")]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::Pid;

use crate::error::field;

/// The most bytes of a register set: AVX-512 and AMX take about 11 KiB.
const STATE_BYTES_MAX: usize = 16 << 10;
/// Bytes of the kernel's set of signals.
const MASK_BYTES: usize = 8;

/// Starts to trace a thread without stopping it, unless this thread already traces it. Stops at
/// system calls are marked as such.
///
/// Errors: the kernel's; ESRCH if the thread has ended.
pub fn seize(tid: Pid) -> io::Result<()> {
    match nix::sys::ptrace::seize(tid, nix::sys::ptrace::Options::PTRACE_O_TRACESYSGOOD) {
        Err(nix::errno::Errno::EPERM) => {
            let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
            let tracer = field(&status, "TracerPid").and_then(|tracer| tracer.parse().ok());
            let state = field(&status, "State");
            if tracer == Some(nix::unistd::gettid().as_raw()) {
                return Ok(()); // it did not stop in time earlier
            }
            // The kernel refuses to trace a thread that has ended.
            let is_over = state.is_none_or(|state| state.starts_with(['Z', 'X']));
            Err(io::Error::from_raw_os_error(if is_over { libc::ESRCH } else { libc::EPERM }))
        }
        other => Ok(other?),
    }
}

/// The options for a thread that is about to execute a program, where it will stop. The kernel
/// kills it if this thread ends before it is released.
fn for_exec() -> nix::sys::ptrace::Options {
    use nix::sys::ptrace::Options;
    let at_exec = Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL;
    Options::PTRACE_O_TRACESYSGOOD | at_exec
}

/// Starts to trace a thread that is about to execute a program, where it will stop. The kernel
/// kills it if this thread ends before it is released.
///
/// Errors: the kernel's.
pub fn seize_for_exec(tid: Pid) -> io::Result<()> {
    Ok(nix::sys::ptrace::seize(tid, for_exec())?)
}

/// Starts to trace a thread and the next process that it makes. Both will stop there.
///
/// Errors: the kernel's.
pub fn seize_for_spawn(tid: Pid) -> io::Result<()> {
    use nix::sys::ptrace::Options;
    let copies = Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACECLONE;
    Ok(nix::sys::ptrace::seize(tid, copies | Options::PTRACE_O_TRACEVFORK)?)
}

/// Changes the options of a stopped process to those of [`seize_for_exec`].
///
/// Errors: the kernel's.
pub fn trace_exec(pid: Pid) -> io::Result<()> {
    Ok(nix::sys::ptrace::setoptions(pid, for_exec())?)
}

/// Returns a register set of a stopped thread.
///
/// Errors: the kernel's.
pub fn register_set(tid: Pid, set: libc::c_int) -> io::Result<Vec<u8>> {
    let mut state = vec![0u8; STATE_BYTES_MAX];
    let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes, and their number.
    let result =
        unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid.as_raw(), set, &raw mut vector) };
    check(result)?;
    state.truncate(vector.iov_len);
    Ok(state)
}

/// Sets a register set of a stopped thread.
///
/// Errors: the kernel's.
pub fn set_register_set(tid: Pid, set: libc::c_int, state: &[u8]) -> io::Result<()> {
    let base = state.as_ptr().cast_mut().cast();
    let mut vector = libc::iovec { iov_base: base, iov_len: state.len() };
    // SAFETY: the kernel reads `iov_len` bytes.
    let result =
        unsafe { libc::ptrace(libc::PTRACE_SETREGSET, tid.as_raw(), set, &raw mut vector) };
    check(result)
}

/// An instruction of a seccomp filter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Instruction {
    /// Operation and mode.
    pub code: u16,
    /// Instructions to skip if a comparison is true.
    pub if_true: u8,
    /// Instructions to skip otherwise.
    pub if_false: u8,
    /// The operand.
    pub value: u32,
}

/// Returns a seccomp filter of a stopped thread, by its number; 0 is the newest.
///
/// Errors: the kernel's; ENOENT if there is none with this number.
pub fn seccomp_filter(tid: Pid, number: usize) -> io::Result<Vec<Instruction>> {
    const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
    let get = |to: *mut Instruction| {
        // SAFETY: the kernel writes all instructions; without an address, it returns their number.
        let count = unsafe { libc::ptrace(PTRACE_SECCOMP_GET_FILTER, tid.as_raw(), number, to) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    };
    let mut filter = vec![Instruction::default(); get(std::ptr::null_mut())?];
    get(filter.as_mut_ptr())?;
    Ok(filter)
}

/// Returns the signals that a stopped thread blocks, as a bit mask.
///
/// Errors: the kernel's.
pub fn signal_mask(tid: Pid) -> io::Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes MASK_BYTES bytes.
    let result = unsafe {
        libc::ptrace(libc::PTRACE_GETSIGMASK as _, tid.as_raw(), MASK_BYTES, &raw mut mask)
    };
    check(result)?;
    Ok(mask)
}

/// Sets the signals that a stopped thread blocks.
///
/// Errors: the kernel's.
pub fn set_signal_mask(tid: Pid, mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads MASK_BYTES bytes.
    let result = unsafe {
        libc::ptrace(libc::PTRACE_SETSIGMASK as _, tid.as_raw(), MASK_BYTES, &raw const mask)
    };
    check(result)
}

/// An event of a traced thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// No event.
    Nothing,
    /// It stopped, as requested or with its whole process.
    Stopped,
    /// It stopped at a system call, before or after it.
    Call,
    /// It is about to receive a signal.
    Signal(i32),
    /// It made a new process or thread.
    Forked,
    /// It executed a program, of which no instruction has run.
    Executed,
    /// It has ended.
    Gone,
}

/// Returns the event of a traced thread since the last call. Does not wait.
///
/// Errors: the kernel's.
pub fn event(tid: Pid) -> io::Result<Event> {
    const EVENT_STOP: i32 = 128;
    const CALL: i32 = libc::SIGTRAP | 0x80;
    let mut status = 0;
    let flags = libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: the kernel writes one number.
    let found = unsafe { libc::waitpid(tid.as_raw(), &raw mut status, flags) };
    match found {
        0 => return Ok(Event::Nothing),
        -1 => {
            let error = io::Error::last_os_error();
            let is_gone = error.raw_os_error() == Some(libc::ECHILD);
            return if is_gone { Ok(Event::Gone) } else { Err(error) };
        }
        _ => {}
    }
    if !libc::WIFSTOPPED(status) {
        return Ok(Event::Gone);
    }
    Ok(match (libc::WSTOPSIG(status), status >> 16) {
        (_, EVENT_STOP) => Event::Stopped,
        (
            libc::SIGTRAP,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE,
        ) => Event::Forked,
        (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => Event::Executed,
        (CALL, _) => Event::Call,
        (signal, _) => Event::Signal(signal),
    })
}

/// Returns the event of a traced process that is a child of this one, and of which the status at
/// its end is left to another thread. Does not wait.
///
/// Errors: the kernel's.
pub fn event_of_child(pid: Pid) -> io::Result<Event> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let any = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED;
    let flags = any | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(pid), flags)? {
        WaitStatus::StillAlive => Ok(Event::Nothing),
        WaitStatus::Exited(..) | WaitStatus::Signaled(..) => Ok(Event::Gone),
        _ => event(pid),
    }
}

/// Waits until a traced thread may have an event, for at most a short time. The kernel reports
/// events by SIGCHLD, which [`block_reports`] blocks; if another thread takes the signal, the time
/// passes.
pub fn await_event() {
    /// The interval at which threads are polled without the signal.
    const POLL_NS: libc::c_long = 100_000;
    let time = libc::timespec { tv_sec: 0, tv_nsec: POLL_NS };
    // SAFETY: the kernel reads a set of signals and a time.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time);
    }
}

/// Blocks the signal that reports events in this thread and in those that it starts. Returns the
/// previous set of blocked signals.
///
/// Errors: none are known.
pub fn block_reports() -> io::Result<SigSet> {
    let mut reports = SigSet::empty();
    reports.add(Signal::SIGCHLD);
    Ok(reports.thread_swap_mask(SigmaskHow::SIG_BLOCK)?)
}

/// Makes the kernel trace processes that a stopped thread makes, or not.
///
/// Errors: the kernel's.
pub fn trace_forks(tid: Pid, is_on: bool) -> io::Result<()> {
    use nix::sys::ptrace::Options;
    let forks = Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACECLONE;
    let options = if is_on { forks } else { Options::empty() };
    Ok(nix::sys::ptrace::setoptions(tid, options | Options::PTRACE_O_TRACESYSGOOD)?)
}

/// Makes the kernel kill a stopped process when this thread ends.
///
/// Errors: the kernel's.
pub fn bind(pid: Pid) -> io::Result<()> {
    Ok(nix::sys::ptrace::setoptions(pid, nix::sys::ptrace::Options::PTRACE_O_EXITKILL)?)
}

/// Returns the process that a thread made, as seen from here.
///
/// Errors: the kernel's.
pub fn made(tid: Pid) -> io::Result<Pid> {
    let made = nix::sys::ptrace::getevent(tid)?;
    Ok(Pid::from_raw(i32::try_from(made).unwrap_or_default()))
}

/// Resumes a stopped thread, with a signal or 0.
///
/// Errors: the kernel's.
pub fn resume(tid: Pid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT as _, tid, signal)
}

/// Resumes a stopped thread up to the start or the end of a system call, with a signal or 0.
///
/// Errors: the kernel's.
pub fn resume_to_call(tid: Pid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL as _, tid, signal)
}

/// Ends the tracing of a stopped thread, which then runs.
///
/// Errors: the kernel's.
pub fn detach(tid: Pid) -> io::Result<()> {
    request(libc::PTRACE_DETACH as _, tid, 0)
}

/// Duplicates a descriptor of a process.
///
/// Errors: the kernel's; kernels before 5.6 do not support the call.
pub fn descriptor_of(pid: Pid, descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: both calls take only numbers.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let process = owned(opened)?;
    // SAFETY: as above.
    let copied =
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) };
    owned(copied)
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    check(result)?;
    // SAFETY: the descriptor was just created, and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Makes a request of ptrace; its type differs between glibc and musl.
fn request(request: libc::c_uint, tid: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: for these requests the kernel accesses no memory of this process.
    check(unsafe { libc::ptrace(request as _, tid.as_raw(), 0usize, signal as usize) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
