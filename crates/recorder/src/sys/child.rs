//! Runs a program as a child that the recorded program does not notice: it receives no signal, and
//! its waits for any child do not find it.
//!
//! When a child executes a program, the kernel makes it announce its end by SIGCHLD, regardless of
//! the flags it was cloned with. So there are two children. The first shares the memory and the
//! files of the program, executes nothing and announces nothing. It starts the second, which
//! executes the program, and waits for it. Only a wait with `__WALL` or `__WCLONE` finds the first
//! one, and the recorder makes that.

use crate::sys::exec_calls;
use crate::sys::kernel::{self, Fd, Path};

/// Size of the stack of each child.
const STACK_BYTES: usize = 32 << 10;

/// A program to run.
pub struct Command<'a> {
    pub path: Path<'a>,
    /// Zero-terminated strings, the last followed by null.
    pub arguments: *const *const u8,
    /// Likewise.
    pub environment: *const *const u8,
    /// The program's standard output, or `/dev/null` if none; standard input and error are
    /// `/dev/null`. No other descriptor is inherited.
    pub output: Option<Fd>,
}

/// The argument and result of the first child.
struct Job<'a> {
    command: &'a Command<'a>,
    /// The end of the second child's stack.
    top: *mut u8,
    /// The status of the second child from wait4; negative until it has ended.
    status: i32,
}

impl Command<'_> {
    /// Runs the program to its end. Returns its exit status; none if it could not be started, or
    /// was killed. The calling thread must have all signals blocked.
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
        // SAFETY: fresh memory for its stack. The child only makes system calls, and this thread
        // waits for its end before it uses the memory or the job again.
        let started = unsafe {
            exec_calls::clone(
                exec_calls::CLONE_VM | exec_calls::CLONE_FILES,
                first,
                supervise,
                argument,
            )
        };
        // If another thread waits for children of every kind, it may reap this child first. Then it
        // has ended, too.
        let _ = started.and_then(exec_calls::wait_for);
        // SAFETY: written by the first child, which has ended.
        let status = unsafe { (&raw const job.status).read_volatile() };
        // SAFETY: both children have ended: the first one waits for the second.
        unsafe { kernel::unmap(memory, 2 * STACK_BYTES) };
        let exited = status >= 0 && status & 0x7f == 0;
        exited.then_some(status >> 8 & 0xff)
    }
}

/// Runs in the first child.
extern "C" fn supervise(job: *mut u8) -> i32 {
    // SAFETY: the caller of `clone` passes a job, and waits.
    let job = unsafe { &mut *(job as *mut Job<'_>) };
    // If the program ignored SIGCHLD, nothing could wait for the second child.
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

/// Runs in the second child, which has its own table of open files.
extern "C" fn execute(command: *mut u8) -> i32 {
    const FAILED: i32 = 127;
    // SAFETY: a command, whose owner waits.
    let command = unsafe { &*(command as *const Command<'_>) };
    // Signals to the program's group, such as that of Ctrl-C, must not reach this process.
    exec_calls::start_session();
    if command.output.is_some_and(|output| !exec_calls::put_at(output, 1)) {
        return FAILED;
    }
    // The limit of open files may leave no number free other than one that is closed here.
    kernel::close(Fd(0));
    let nowhere = Path::new(b"/dev/null\0").map(|path| kernel::open(path, kernel::O_RDWR));
    let Some(Ok(nowhere)) = nowhere else { return FAILED };
    let unset = if command.output.is_some() { &[0, 2][..] } else { &[0, 1, 2] };
    if !unset.iter().all(|&number| exec_calls::put_at(nowhere, number)) {
        return FAILED;
    }
    exec_calls::close_from(3);
    exec_calls::unblock_signals();
    // SAFETY: promised by the caller of `run`.
    let _ = unsafe { exec_calls::execute(command.path, command.arguments, command.environment) };
    FAILED
}
