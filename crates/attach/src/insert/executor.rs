//! Who will execute a static program.

use nix::unistd::Pid;

/// Who will execute a program.
#[derive(Clone, Copy, Debug)]
pub enum Executor {
    /// A thread of a process.
    Thread {
        /// The process.
        process: Pid,
        /// The thread.
        thread: Pid,
    },
    /// The next process that a thread makes.
    NewOf(Pid),
}

impl Executor {
    /// Returns the thread to trace.
    pub fn thread(self) -> Pid {
        match self {
            Executor::Thread { thread, .. } | Executor::NewOf(thread) => thread,
        }
    }

    /// The first thread of a process.
    pub fn process(pid: Pid) -> Executor {
        Executor::Thread { process: pid, thread: pid }
    }
}
