//! Helper processes of the command, which end with it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use heaptide_supervise::exec;
use nix::fcntl::OFlag;
use nix::unistd::{Pid, pipe2, setpgid};

/// A helper process. It is asked to end, and waited for, when this is dropped.
pub struct Helper {
    pid: Pid,
    /// The write end of the pipe. The kernel closes it if the command dies.
    alive: Option<OwnedFd>,
}

impl Helper {
    /// Starts a process with this name in `ps`, which does `work` and ends with its result. `work`
    /// gets the read end of a pipe: it is at its end when this is dropped, or the command has
    /// died. Of the command's descriptors, it has only `kept`. Signals to the command, its group or
    /// its terminal do not affect the helper. No other thread may be running.
    ///
    /// Errors: the pipe or the process cannot be created.
    pub fn start(
        name: &CStr,
        kept: &[BorrowedFd],
        work: impl FnOnce(BorrowedFd) -> u8,
    ) -> io::Result<Helper> {
        let (end, alive) = pipe2(OFlag::O_CLOEXEC)?;
        let kept: Vec<BorrowedFd> = kept.iter().copied().chain([end.as_fd()]).collect();
        let pid = exec::fork_helper(&kept, || {
            exec::rename(name, 0);
            let _ = exec::block_signals();
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            work(end.as_fd())
        })?;
        Ok(Helper { pid, alive: Some(alive) })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.alive = None;
        let _ = exec::wait_for(self.pid);
    }
}
