//! System calls and function calls in a process with one thread, which has not begun.
//!
//! It executes an instruction at the entry of the program, whose bytes are restored at the end.

use std::io;
use std::time::Instant;

use nix::libc;
use nix::unistd::Pid;

use crate::error::{Error, field};
use crate::machine::{self, Registers};
use crate::memory::Memory;
use crate::ptrace::{self, Event};

/// `syscall`
const CALL: [u8; 2] = [0x0f, 0x05];
/// `int3`
const STOP: u8 = 0xcc;

const OPENAT: u64 = 257;
const MPROTECT: u64 = 10;
const RT_SIGACTION: u64 = 13;

const PROT_NONE: u64 = 0;
const PRIVATE: u64 = 2;
const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x20;

/// A process that makes calls.
#[derive(Debug)]
pub struct Remote<'a> {
    pid: Pid,
    memory: &'a Memory,
    /// When waiting ends; `None` while the program runs code of the library.
    until: Option<Instant>,
    /// The entry of the program, and the bytes there.
    entry: u64,
    before: [u8; CALL.len()],
    /// Where the program is.
    registers: Registers,
    /// The signals that it blocks.
    mask: u64,
    /// Whether it ignores the signal of stops, which the kernel changes to its default action.
    ignores_stops: bool,
    /// Stop signals that arrived.
    held_back: Vec<i32>,
}

impl<'a> Remote<'a> {
    /// Stops a process that has just executed a program at the program's first instruction.
    ///
    /// Errors: the process ended.
    pub fn start(pid: Pid, memory: &'a Memory, until: Instant) -> io::Result<Remote<'a>> {
        let registers = machine::registers(pid)?;
        let entry = registers.rip;
        let mut before = [0; CALL.len()];
        memory.read(entry, &mut before)?;
        let mask = ptrace::signal_mask(pid)?;
        let ignored = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ignored = field(&ignored, "SigIgn").and_then(|set| u64::from_str_radix(set, 16).ok());
        let ignores_stops = ignored.is_some_and(|set| set & bit(libc::SIGTRAP) != 0);
        let (until, held_back) = (Some(until), Vec::new());
        let mut remote =
            Remote { pid, memory, until, entry, before, registers, mask, ignores_stops, held_back };
        ptrace::set_signal_mask(pid, !bit(libc::SIGTRAP))?;
        // The system call that executed the program would change registers at its end.
        remote.await_call()?;
        memory.write(entry, &CALL)?;
        Ok(remote)
    }

    /// Returns the memory of the process.
    pub fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// Returns the stack pointer of the program.
    pub fn stack_pointer(&self) -> u64 {
        self.registers.rsp
    }

    /// Reserves memory. Returns its address.
    ///
    /// Errors: there is none.
    pub fn map(&mut self, bytes: u64) -> io::Result<u64> {
        let arguments = [0, bytes, PROT_NONE, PRIVATE | ANONYMOUS, u64::MAX, 0];
        self.system_call(machine::MMAP, arguments)
    }

    /// Maps a part of a file at an address.
    ///
    /// Errors: the kernel's.
    pub fn map_file(
        &mut self,
        start: u64,
        bytes: u64,
        protection: u64,
        file: u64,
        offset: u64,
    ) -> io::Result<()> {
        let arguments = [start, bytes, protection, PRIVATE | FIXED, file, offset];
        self.system_call(machine::MMAP, arguments).map(|_| ())
    }

    /// Changes the protection of memory.
    ///
    /// Errors: the kernel's.
    pub fn protect(&mut self, start: u64, bytes: u64, protection: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.system_call(MPROTECT, [start, bytes, protection, 0, 0, 0]).map(|_| ())
    }

    /// Makes reserved memory readable and writable.
    ///
    /// Errors: the kernel's.
    pub fn protect_as_data(&mut self, start: u64, bytes: u64) -> io::Result<()> {
        const PAGE: u64 = 4096;
        const READ_AND_WRITE: u64 = 3;
        let low = start & !(PAGE - 1);
        self.protect(low, (start + bytes).next_multiple_of(PAGE) - low, READ_AND_WRITE)
    }

    /// Opens a file for reading, whose path is in the memory of the process.
    ///
    /// Errors: the kernel's.
    pub fn open(&mut self, path_at: u64) -> io::Result<u64> {
        const HERE: u64 = (-100i64) as u64;
        const CLOSED_BY_EXEC: u64 = 0o2_000_000;
        self.system_call(OPENAT, [HERE, path_at, CLOSED_BY_EXEC, 0, 0, 0])
    }

    /// Closes a descriptor.
    ///
    /// Errors: the kernel's.
    pub fn close(&mut self, descriptor: u64) -> io::Result<()> {
        self.system_call(machine::CLOSE, [descriptor, 0, 0, 0, 0, 0]).map(|_| ())
    }

    fn system_call(&mut self, number: u64, arguments: [u64; 6]) -> io::Result<u64> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let base = self.registers;
        let begun = Registers {
            rip: self.entry,
            rax: number,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..machine::without_call(&base)
        };
        machine::set_registers(self.pid, begun)?;
        self.await_call()?;
        let ended = self.await_call()?;
        machine::result(ended.rax)
    }

    /// Lets the program run from its entry until it reaches one of these addresses, at which
    /// instructions begin.
    ///
    /// Errors: it ended before, or needs too long.
    pub fn run_to_one_of(&mut self, stops: &[u64]) -> Result<(), Error> {
        let failed = |error: io::Error| Error::new(format!("it cannot be controlled: {error}"));
        self.put_entry_back().map_err(failed)?;
        let mut replaced = Vec::new();
        for &stop in stops {
            let mut before = [0];
            self.memory.read(stop, &mut before).map_err(failed)?;
            self.memory.write(stop, &[STOP]).map_err(failed)?;
            replaced.push((stop, before));
        }
        machine::set_registers(self.pid, machine::without_call(&self.registers)).map_err(failed)?;
        let stopped = self.await_stop();
        if stopped.is_err() {
            self.interrupt().map_err(failed)?;
        }
        for (stop, before) in &replaced {
            self.memory.write(*stop, before).map_err(failed)?;
        }
        let mut registers = stopped.map_err(|error| {
            Error::new(format!("it reached neither `main` nor an allocation: {error}"))
        })?;
        registers.rip -= 1;
        self.registers = registers;
        if !stops.contains(&registers.rip) {
            return Err(Error::new("it stopped at an instruction of its own"));
        }
        Ok(())
    }

    /// Calls functions without arguments, one after the other. They cannot be interrupted, so this
    /// waits for them without a limit, as a program waits for its loader.
    ///
    /// Errors: the process ended.
    pub fn call_each(&mut self, functions: &[u64]) -> io::Result<()> {
        self.until = None;
        let extended = machine::extended_state(self.pid)?;
        let base = self.registers;
        let rsp = (machine::below_red_zone(&base) & !15) - 8;
        self.memory.write(self.entry, &[STOP])?;
        for &function in functions {
            self.memory.write(rsp, &self.entry.to_ne_bytes())?;
            let begun = Registers { rip: function, rsp, ..machine::without_call(&base) };
            machine::set_registers(self.pid, begun)?;
            self.await_stop()?;
        }
        self.put_entry_back()?;
        machine::set_extended_state(self.pid, &extended)
    }

    /// Restores the program, which is stopped.
    ///
    /// Errors: the process ended.
    pub fn restore(mut self) -> io::Result<()> {
        if self.ignores_stops {
            self.ignore_stops()?;
        }
        self.put_entry_back()?;
        machine::set_registers(self.pid, machine::without_call(&self.registers))?;
        ptrace::set_signal_mask(self.pid, self.mask)?;
        for signal in &self.held_back {
            let signal = nix::sys::signal::Signal::try_from(*signal)?;
            nix::sys::signal::kill(self.pid, signal)?;
        }
        Ok(())
    }

    /// Lets the process ignore the signal of stops again.
    fn ignore_stops(&mut self) -> io::Result<()> {
        const IGNORED: u64 = 1;
        const SET_BYTES: u64 = 8;
        let action = machine::below_red_zone(&self.registers) - 32;
        let words = [IGNORED, 0, 0, 0];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.memory.write(action, &bytes)?;
        self.memory.write(self.entry, &CALL)?;
        let arguments = [libc::SIGTRAP as u64, action, 0, SET_BYTES, 0, 0];
        self.system_call(RT_SIGACTION, arguments).map(|_| ())
    }

    /// Lets the process run to the start or the end of a system call, and returns its registers.
    fn await_call(&mut self) -> io::Result<Registers> {
        ptrace::resume_to_call(self.pid, 0)?;
        loop {
            match self.next_event()? {
                Event::Call => return machine::registers(self.pid),
                Event::Signal(signal) => ptrace::resume_to_call(self.pid, signal)?,
                _ => ptrace::resume_to_call(self.pid, 0)?,
            }
        }
    }

    fn put_entry_back(&self) -> io::Result<()> {
        self.memory.write(self.entry, &self.before)
    }

    /// Lets the process run until it has executed `int3`, and returns its registers.
    fn await_stop(&mut self) -> io::Result<Registers> {
        ptrace::resume(self.pid, 0)?;
        loop {
            match self.next_event()? {
                Event::Signal(libc::SIGTRAP) => return machine::registers(self.pid),
                Event::Signal(signal) => ptrace::resume(self.pid, signal)?,
                _ => ptrace::resume(self.pid, 0)?,
            }
        }
    }

    /// Waits for an event of the process. Keeps stop signals for later.
    ///
    /// Errors: the process ended, or the time is up.
    fn next_event(&mut self) -> io::Result<Event> {
        loop {
            match ptrace::event_of_child(self.pid)? {
                Event::Signal(signal @ (libc::SIGSTOP | libc::SIGCONT)) => {
                    self.held_back.push(signal);
                    return Ok(Event::Stopped);
                }
                Event::Nothing if self.until.is_some_and(|until| Instant::now() > until) => {
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
                Event::Nothing => ptrace::await_event(),
                Event::Gone => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                event => return Ok(event),
            }
        }
    }

    /// Stops the running process.
    fn interrupt(&mut self) -> io::Result<()> {
        nix::sys::ptrace::interrupt(self.pid)?;
        loop {
            match ptrace::event_of_child(self.pid)? {
                Event::Stopped | Event::Signal(_) => break,
                Event::Nothing => ptrace::await_event(),
                Event::Gone => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                _ => ptrace::resume(self.pid, 0)?,
            }
        }
        self.registers = machine::registers(self.pid)?;
        Ok(())
    }
}

/// Returns the bit of a signal in the kernel's set.
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}
