//! A program in its own process: forked, held until its settings are known, and then started.
//!
//! The process waits for its environment, which depends on its pid, and for whatever is to be done
//! before the program begins. A pipe that exec closes reports whether it began.

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

/// The exit status of a process whose program could not be started, as that of a shell.
const NOT_STARTED: u8 = 127;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub file: PathBuf,
    /// Its arguments, its name first.
    pub words: Vec<OsString>,
}

impl Program {
    /// Becomes the program in the place of this process.
    ///
    /// Returns only if that is not possible, and why.
    pub fn exec(&self, environment: &[OsString]) -> io::Error {
        self.become_it(environment, getppid()).unwrap_or_else(|error| error)
    }

    /// Errors: a text has a zero byte in it, which the kernel cannot be given.
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

/// A process that waits to become a program. If it is dropped before, it ends.
pub struct Held {
    /// The process.
    pub pid: Pid,
    /// Its pid as it sees it itself: another one if it is the first of a pid namespace.
    pub own_pid: u32,
    /// None once the program has started.
    pipes: Option<Pipes>,
}

/// The parent's ends.
struct Pipes {
    settings: File,
    outcome: File,
}

/// A pipe: where it is read, where it is written. Exec closes both.
pub(crate) fn pipe() -> io::Result<(File, File)> {
    let (read, write): (OwnedFd, OwnedFd) = pipe2(OFlag::O_CLOEXEC)?;
    Ok((read.into(), write.into()))
}

impl Held {
    /// Forks the process. The interval timers of this process become its own.
    ///
    /// Errors: there is no room for a process.
    pub fn fork(program: &Program) -> io::Result<Held> {
        let (read_settings, settings) = pipe()?;
        let (outcome, write_outcome) = pipe()?;
        let mut pipes = Some(Pipes { settings, outcome });
        let timers = Timers::take();
        let is_apart = is_first_of_namespace();
        let pid = exec::fork(|| {
            pipes = None; // in the child: else it would hold the pipe open that it waits for
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

    /// Gives the process its environment and waits until the program has started.
    ///
    /// Errors: why it could not be started. The process is over then.
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

/// Whether the children of this process are in another pid namespace than itself, as after
/// `unshare --pid`.
fn is_first_of_namespace() -> bool {
    let inode = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map(|m| m.ino()).ok();
    inode("pid") != inode("pid_for_children")
}

/// The new process: waits for its settings and becomes the program.
fn start(program: &Program, settings: &File, outcome: &File, timers: &Timers) -> u8 {
    let parent = getppid();
    let Ok(environment) = receive(settings) else {
        return NOT_STARTED; // the parent is gone, or has given up
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
