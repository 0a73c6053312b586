//! Starts a program in a forked process, which waits until its settings are known.
//!
//! The process waits for its environment, which depends on its pid, and for other preparations. A
//! pipe that exec closes reports whether the program has started.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::unistd::{Pid, getpid, getppid, pipe2};

use crate::exec::{self, Timers};

/// The exit status of a process whose program could not be started, like that of a shell.
const NOT_STARTED: u8 = 127;

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub file: PathBuf,
    /// Its arguments, starting with its name.
    pub words: Vec<OsString>,
}

impl Program {
    /// Executes the program in this process.
    ///
    /// Returns only on failure, with the reason.
    pub fn exec(&self, environment: &[OsString]) -> io::Error {
        self.become_it(environment, getppid()).unwrap_or_else(|error| error)
    }

    /// Errors: a string contains a zero byte, which the kernel does not support.
    fn become_it(&self, environment: &[OsString], parent: Pid) -> io::Result<io::Error> {
        let file = text(self.file.as_os_str())?;
        let words = self.words.iter().map(|word| text(word)).collect::<io::Result<Vec<_>>>()?;
        let environment = environment.iter().map(|e| text(e)).collect::<io::Result<Vec<_>>>()?;
        Ok(exec::become_program(&file, &words, &environment, parent))
    }
}

fn text(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// A process that waits to execute a program. Dropping it earlier ends the process.
pub struct Held {
    /// The process.
    pub pid: Pid,
    /// Its pid in its own pid namespace, which differs if it is the first process of a namespace.
    pub own_pid: u32,
    /// `None` once the program has started.
    pipes: Option<Pipes>,
}

/// The parent's ends.
struct Pipes {
    settings: File,
    outcome: File,
}

/// Creates a pipe: its read end and its write end. Exec closes both.
pub(crate) fn pipe() -> io::Result<(File, File)> {
    let (read, write): (OwnedFd, OwnedFd) = pipe2(OFlag::O_CLOEXEC)?;
    Ok((read.into(), write.into()))
}

impl Held {
    /// Forks the process. The interval timers of this process move to it.
    ///
    /// Errors: no further process can be created.
    pub fn fork(program: &Program) -> io::Result<Held> {
        let (read_settings, settings) = pipe()?;
        let (outcome, write_outcome) = pipe()?;
        let mut pipes = Some(Pipes { settings, outcome });
        let timers = Timers::take();
        let is_apart = is_first_of_namespace();
        let pid = exec::fork(|| {
            pipes = None; // in the child, which waits for the end of this pipe
            if is_apart && report(&write_outcome, getpid().as_raw()).is_err() {
                return NOT_STARTED;
            }
            start(program, &read_settings, &write_outcome, &timers)
        })?;
        let mut held = Held { pid, own_pid: 0, pipes };
        drop((read_settings, write_outcome));
        held.own_pid = if is_apart { held.read_pid()? } else { pid.as_raw() as u32 };
        Ok(held)
    }

    fn read_pid(&self) -> io::Result<u32> {
        let mut bytes = [0; size_of::<u32>()];
        if let Some(pipes) = &self.pipes {
            (&pipes.outcome).read_exact(&mut bytes)?;
        }
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Sends the process its environment, and waits until the program has started.
    ///
    /// Errors: why it could not be started. The process has ended then.
    pub fn release(&mut self, environment: &[OsString]) -> io::Result<()> {
        let Some(Pipes { settings, outcome }) = &mut self.pipes else {
            return Ok(());
        };
        let mut block = Vec::new();
        for entry in environment {
            block.extend_from_slice(entry.as_bytes());
            block.push(0);
        }
        settings.write_all(&block.len().to_ne_bytes())?;
        settings.write_all(&block)?;
        let mut error = Vec::new();
        outcome.read_to_end(&mut error)?;
        if let Ok(error) = error.try_into().map(i32::from_ne_bytes) {
            return Err(io::Error::from_raw_os_error(error));
        }
        self.pipes = None; // exec closed the other end
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.pipes.take().is_some() {
            let _ = exec::wait_for(self.pid); // it ends by itself: its pipe is closed
        }
    }
}

/// Returns whether children of this process are in another pid namespace than the process, as after
/// `unshare --pid`.
fn is_first_of_namespace() -> bool {
    let inode = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map(|m| m.ino()).ok();
    inode("pid") != inode("pid_for_children")
}

/// The new process: waits for its settings and executes the program.
fn start(program: &Program, settings: &File, outcome: &File, timers: &Timers) -> u8 {
    let parent = getppid();
    let Ok(environment) = receive(settings) else {
        return NOT_STARTED; // the parent has ended, or has given up
    };
    timers.start();
    let error = program.become_it(&environment, parent).unwrap_or_else(|error| error);
    let _ = report(outcome, error.raw_os_error().unwrap_or(libc::EINVAL));
    NOT_STARTED
}

fn report(mut outcome: &File, number: i32) -> io::Result<()> {
    outcome.write_all(&number.to_ne_bytes())
}

/// Errors: the settings end early.
fn receive(mut settings: &File) -> io::Result<Vec<OsString>> {
    let mut length = [0; size_of::<usize>()];
    settings.read_exact(&mut length)?;
    let mut block = vec![0; usize::from_ne_bytes(length)];
    settings.read_exact(&mut block)?;
    let entries = block.split_inclusive(|&byte| byte == 0);
    let bytes = entries.map(|entry| entry.strip_suffix(&[0]).unwrap_or(entry).to_vec());
    Ok(bytes.map(OsString::from_vec).collect())
}
