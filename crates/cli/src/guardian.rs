//! A process that clears up behind a command that is killed while it writes a recording.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use heaptide_supervise::exec;
use nix::fcntl::OFlag;
use nix::unistd::{Pid, pipe2, setpgid};

use crate::place::clear_up;

/// Its name in `ps`.
const NAME: &std::ffi::CStr = c"merge-guardian";

/// So often, and after such pauses, the guardian tries to clear up.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The guardian, until it is dropped.
pub struct Guardian {
    pid: Pid,
    /// Closed by the kernel, too, when this process ends.
    alive: Option<OwnedFd>,
}

impl Guardian {
    /// Starts a process that clears up a recording's place when this one ends. Signals to this
    /// process, to its group and from its terminal leave it alone.
    ///
    /// Errors: there is no room for a process.
    pub fn start(place: &Path) -> io::Result<Guardian> {
        let (end, alive) = pipe2(OFlag::O_CLOEXEC)?;
        let end = File::from(end);
        let pid = exec::fork_helper(&[end.as_fd()], || {
            exec::rename(NAME, 0);
            let _ = exec::block_signals();
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            let _ = (&end).read(&mut [0]); // nothing is ever written: it ends when all have
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
