//! The threads of a process: stopping, inspecting and resuming them.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::error::field;
use crate::frames::{Frame, frames};
use crate::machine::{self, Registers};
use crate::memory::Memory;
use crate::modules::Modules;
use crate::ptrace::{self, Event};

/// How long a thread may take to stop. A thread that waits for a vfork child takes longer.
const STOPS_WITHIN: Duration = Duration::from_millis(500);

/// A stopped thread. It resumes when this is dropped.
#[derive(Debug)]
pub struct Stopped {
    /// Its thread id.
    pub tid: Pid,
    /// Its registers.
    pub registers: Registers,
    is_gone: bool,
}

/// Returns the threads of a process that have not ended.
///
/// Errors: the process has ended.
pub fn threads(pid: Pid) -> io::Result<Vec<Pid>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        if !matches!(state, None | Some('Z' | 'X')) {
            threads.push(Pid::from_raw(tid));
        }
    }
    Ok(threads)
}

/// Returns the number of a process or thread that it sees itself, which is another one in a
/// container; `None` if it has ended.
pub fn number_inside(id: Pid) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    field(&status, "NSpid")?.split_whitespace().next_back()?.parse().ok()
}

/// Returns the thread of a process that sees itself as this number; `None` if it has ended.
pub fn thread_of(pid: Pid, inside: u32) -> Option<Pid> {
    threads(pid).ok()?.into_iter().find(|&tid| number_inside(tid) == Some(inside))
}

impl Stopped {
    /// Stops a thread; `None` if it has ended.
    ///
    /// Errors: it may not be traced, or does not stop in time.
    pub fn new(tid: Pid) -> io::Result<Option<Stopped>> {
        match ptrace::seize(tid) {
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => return Ok(None),
            other => other?,
        }
        Stopped::interrupt(tid)?;
        Stopped::wait(tid)
    }

    fn interrupt(tid: Pid) -> io::Result<()> {
        match nix::sys::ptrace::interrupt(tid) {
            Err(nix::errno::Errno::ESRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Waits until a thread stops on request.
    fn wait(tid: Pid) -> io::Result<Option<Stopped>> {
        let until = Instant::now() + STOPS_WITHIN;
        loop {
            match ptrace::event(tid)? {
                Event::Stopped => {
                    let mut registers = machine::registers(tid)?;
                    // Immediately, because this command may be killed.
                    if let Some(again) = machine::made_again(&registers) {
                        machine::set_registers(tid, again)?;
                        registers = again;
                    }
                    return Ok(Some(Stopped { tid, registers, is_gone: false }));
                }
                Event::Gone => return Ok(None),
                Event::Call | Event::Forked | Event::Executed => ptrace::resume(tid, 0)?,
                Event::Signal(signal) => ptrace::resume(tid, signal)?,
                Event::Nothing if Instant::now() > until => {
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
                Event::Nothing => ptrace::await_event(),
            }
        }
    }

    /// Returns the frames of its stack.
    pub fn frames(&self, memory: &Memory, modules: &Modules) -> Vec<Frame> {
        frames(memory, modules, &self.registers)
    }

    /// Records that the thread no longer exists.
    pub fn note_end(&mut self) {
        self.is_gone = true;
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        let _ = ptrace::detach(self.tid); // it may have been killed
    }
}

/// Stops all threads of a process except those already stopped, including threads that start
/// meanwhile.
///
/// Errors: one may not be traced, or does not stop in time. Then all of these resume.
pub fn stop_others(pid: Pid, are_stopped: &[Pid]) -> io::Result<Vec<Stopped>> {
    let mut stopped: Vec<Stopped> = Vec::new();
    loop {
        let all = threads(pid)?;
        let is_new = |tid: &Pid| {
            !are_stopped.contains(tid) && stopped.iter().all(|stopped| stopped.tid != *tid)
        };
        let new: Vec<Pid> = all.into_iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(stopped);
        }
        let mut seized = Vec::new();
        for tid in new {
            match ptrace::seize(tid) {
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    Stopped::interrupt(tid)?;
                    seized.push(tid);
                }
            }
        }
        for tid in seized {
            stopped.extend(Stopped::wait(tid)?);
        }
    }
}
