//! A program that runs as a child which the recorded program does not notice: no signal arrives,
//! and no wait for any child finds it.
//!
//! The kernel makes a child that executes a program one that announces its end by SIGCHLD, whatever
//! it was cloned with. So there are two: the first shares the memory and the files of the program,
//! executes nothing and announces nothing. It starts the second, which executes, and waits for it.
//! Only a wait with `__WALL` or `__WCLONE` finds the first one, and that is the recorder's.

use crate::sys::exec_calls;
use crate::sys::kernel::{self, Fd, Path};

/// Bytes of a stack of either child.
const STACK_BYTES: usize = 32 << 10;

/// A program to run.
pub struct Command<'a> {
    pub path: Path<'a>,
    /// Zero-terminated strings, the last followed by null.
    pub arguments: *const *const u8,
    /// The same.
    pub environment: *const *const u8,
    /// Its standard output, if it is not `/dev/null`, as its input and its errors are. Nothing else
    /// that is open is handed on.
    pub output: Option<Fd>,
}

/// A command, and what the first child has to know and to tell.
struct Job<'a> {
    command: &'a Command<'a>,
    /// The end of the second child's stack.
    top: *mut u8,
    /// The status of the second child as wait4 reports it; negative until it has ended.
    status: i32,
}

impl Command<'_> {
    /// Runs the program to its end. Returns its exit status; none if it could not be started, or
    /// was killed. The calling thread has all signals blocked.
    ///
    /// # Safety
    /// Both lists are as described.
    pub unsafe fn run(&self) -> Option<i32> {
        let memory = kernel::map_private(2 * STACK_BYTES);
        if memory.is_null() {
            return None;
        }
        let (first, second) =
            (memory.wrapping_add(STACK_BYTES), memory.wrapping_add(2 * STACK_BYTES));
        let mut job = Job { command: self, top: second, status: -1 };
        let argument = &raw mut job as *mut u8;
        // SAFETY: fresh memory for its stack; it makes nothing but system calls, and this thread
        // waits for its end before it uses either again.
        let started = unsafe {
            exec_calls::clone(
                exec_calls::CLONE_VM | exec_calls::CLONE_FILES,
                first,
                supervise,
                argument,
            )
        };
        // Another thread that waits for children of every kind may be faster: it has ended, too.
        let _ = started.and_then(exec_calls::wait_for);
        // SAFETY: the first child wrote it, which has ended.
        let status = unsafe { (&raw const job.status).read_volatile() };
        // SAFETY: both children have ended: the first one waits for the second.
        unsafe { kernel::unmap(memory, 2 * STACK_BYTES) };
        let exited = status >= 0 && status & 0x7f == 0;
        exited.then_some(status >> 8 & 0xff)
    }
}

/// The first child.
extern "C" fn supervise(job: *mut u8) -> i32 {
    // SAFETY: the caller of `clone` hands over a job, and waits.
    let job = unsafe { &mut *(job as *mut Job<'_>) };
    // The program may ignore SIGCHLD; then nobody could wait for the second child.
    exec_calls::reset_handlers();
    let command = core::ptr::from_ref(job.command) as *mut u8;
    let flags = exec_calls::CLONE_VM | exec_calls::CLONE_VFORK | exec_calls::SIGCHLD;
    // SAFETY: fresh memory for its stack, which it leaves by executing a program.
    let started = unsafe { exec_calls::clone(flags, job.top, execute, command) };
    if let Ok(status) = started.and_then(exec_calls::wait_for) {
        job.status = status;
    }
    0
}

/// The second child: what it opens and closes is its own.
extern "C" fn execute(command: *mut u8) -> i32 {
    const FAILED: i32 = 127;
    // SAFETY: a command, whose owner waits.
    let command = unsafe { &*(command as *const Command<'_>) };
    // Signals to the program's group, as Ctrl-C, are not for this one.
    exec_calls::start_session();
    if command.output.is_some_and(|output| !exec_calls::put_at(output, 1)) {
        return FAILED;
    }
    // There may be no other number free than one that is closed.
    kernel::close(Fd(0));
    let nowhere = Path::new(b"/dev/null\0").map(|path| kernel::open(path, kernel::O_RDWR));
    let Some(Ok(nowhere)) = nowhere else { return FAILED };
    let unset = if command.output.is_some() { &[0, 2][..] } else { &[0, 1, 2] };
    if !unset.iter().all(|&number| exec_calls::put_at(nowhere, number)) {
        return FAILED;
    }
    exec_calls::close_from(3);
    exec_calls::unblock_signals();
    // SAFETY: as the caller of `run` promises.
    let _ = unsafe { exec_calls::execute(command.path, command.arguments, command.environment) };
    FAILED
}
