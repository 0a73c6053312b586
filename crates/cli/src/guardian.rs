//! A process that cleans up after a command that is killed while it writes a recording.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use heaptide_supervise::exec;
use nix::fcntl::OFlag;
use nix::unistd::{Pid, pipe2, setpgid};

use crate::place::clear_up;

/// The name of the process in `ps`.
const NAME: &std::ffi::CStr = c"merge-guardian";

/// Attempts of the guardian to clean up, and the pause after each.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The guardian process; it ends when this is dropped.
pub struct Guardian {
    pid: Pid,
    /// The write end of the pipe. The kernel closes it if this process dies.
    alive: Option<OwnedFd>,
}

impl Guardian {
    /// Starts a process that cleans up at a recording's path when this process ends. Signals to
    /// this process, its group or its terminal do not affect the guardian.
    ///
    /// Errors: the pipe or the process cannot be created.
    pub fn start(place: &Path) -> io::Result<Guardian> {
        let (end, alive) = pipe2(OFlag::O_CLOEXEC)?;
        let end = File::from(end);
        let pid = exec::fork_helper(&[end.as_fd()], || {
            exec::rename(NAME, 0);
            let _ = exec::block_signals();
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            let _ = (&end).read(&mut [0]); // returns when all write ends are closed
            // The pipe may be closed shortly before the lock is released.
            for _ in 0..TRIES {
                if clear_up(place) {
                    return 0;
                }
                std::thread::sleep(PAUSE);
            }
            1
        })?;
        Ok(Guardian { pid, alive: Some(alive) })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.alive = None;
        let _ = exec::wait_for(self.pid);
    }
}
