//! A process in the command's process group, with all signals blocked: signals that are pending
//! there, too, were sent to the whole group, so the program received them.
//!
//! A signal contains no information on whether it was sent to a process or to its group. The kernel
//! signals all processes of a group at once, so the witness knows, regardless of load.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getpid, getppid};

use crate::exec;
use crate::signals::{RECORD_BYTES, Received, Signals};
use crate::start::pipe;

/// Its name in `ps`: `pkill heaptide` must not find it.
const NAME: &std::ffi::CStr = c"signal-witness";
/// How long a response may take before the witness counts as stopped, and then as dead.
const STOPPED_AFTER: Duration = Duration::from_millis(200);
const DEAD_AFTER: Duration = Duration::from_secs(5);
/// The interval at which the witness checks whether the program is stopped, while the command is
/// stopped.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Requests of the command, one byte each.
const SHOW: u8 = b's';
const WAKE: u8 = b'w';

/// The command's side.
pub(crate) struct Witness {
    pid: Pid,
    requests: File,
    answers: File,
}

impl Witness {
    /// Starts the witness. In `ps` it has the command line of the program, which is the last
    /// `words` arguments of ours: `pkill -f`, which signals by command line, matches both or
    /// neither.
    ///
    /// Errors: no further process can be created.
    pub(crate) fn start(signals: &Signals, program: Pid, words: usize) -> io::Result<Witness> {
        let (read_requests, requests) = pipe()?;
        let (answers, write_answers) = pipe()?;
        let command = getpid();
        let kept = [read_requests.as_fd(), write_answers.as_fd(), signals.as_fd()];
        let pid = exec::fork_helper(&kept, || {
            exec::die_with_parent();
            exec::rename(NAME, words);
            if getppid() == command {
                let _ = serve(&read_requests, &write_answers, signals, program);
            }
            0
        })?;
        Ok(Witness { pid, requests, answers })
    }

    /// Returns whether a process is the witness.
    pub(crate) fn is(&self, pid: Pid) -> bool {
        self.pid == pid
    }

    /// Returns the signals sent to the group since the last request.
    ///
    /// Errors: the witness is dead.
    pub(crate) fn seen(&mut self) -> io::Result<Vec<Received>> {
        self.requests.write_all(&[SHOW])?;
        let (own, mut seen) = (getpid().as_raw() as u32, Vec::new());
        loop {
            if !is_readable(&self.answers, STOPPED_AFTER)? {
                exec::kill(self.pid, libc::SIGCONT)?; // the group was stopped
                if !is_readable(&self.answers, DEAD_AFTER)? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            let mut record = [0; RECORD_BYTES];
            self.answers.read_exact(&mut record)?;
            match Received::decode(&record) {
                Some(signal) if signal.origin.process != own => seen.push(signal),
                Some(_) => {} // our own SIGCONT
                None => return Ok(seen),
            }
        }
    }

    /// Makes the witness continue this process, which is about to stop with the program, when the
    /// program is no longer stopped. The next request cancels that.
    pub(crate) fn wake_me(&mut self) -> io::Result<()> {
        self.requests.write_all(&[WAKE])
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = exec::kill(self.pid, libc::SIGKILL);
        let _ = exec::wait_for(self.pid);
    }
}

/// Returns whether there is data or an end of file before the timeout.
fn is_readable(file: &File, patience: Duration) -> io::Result<bool> {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    Ok(poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], timeout)? > 0)
}

/// Runs the witness: answers until the command has ended.
fn serve(requests: &File, answers: &File, signals: &Signals, program: Pid) -> io::Result<()> {
    let (mut requests, mut answers) = (requests, answers);
    loop {
        let mut request = [0];
        requests.read_exact(&mut request)?;
        match request[0] {
            SHOW => {
                let mut records = signals.records();
                records.push([0; RECORD_BYTES]);
                answers.write_all(records.as_flattened())?;
            }
            WAKE => {
                while is_stopped(program) && !is_readable(requests, LOOK_EVERY)? {}
                if !is_readable(requests, Duration::ZERO)? {
                    exec::kill(getppid(), libc::SIGCONT)?;
                }
            }
            _ => {}
        }
    }
}

/// Returns whether a process is stopped, by a signal or a debugger.
fn is_stopped(process: Pid) -> bool {
    let stat = fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let name_end = stat.iter().rposition(|&byte| byte == b')').unwrap_or(0);
    matches!(stat.get(name_end + 2), Some(b'T' | b't'))
}
