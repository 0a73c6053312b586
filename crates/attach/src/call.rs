//! Makes calls in a stopped thread. Before each call, a signal frame on the stack restores the
//! thread: if this command is killed, the thread finishes the call, and the kernel then restores
//! its registers.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;

use crate::error::field;
use crate::machine::{self, Before, Call, Places};
use crate::memory::Memory;
use crate::ptrace::{self, Event};
use crate::threads::Stopped;

/// Bytes for the stack of calls, with settings and names below it.
const ROOM: u64 = 512 << 10;
/// Bytes at its start for arguments.
const ARGUMENTS: u64 = 64 << 10;
/// Bytes of a thread's own stack to use before the separate stack exists.
const OWN_STACK: u64 = 16 << 10;
/// All signals.
const ALL_SIGNALS: u64 = u64::MAX;

/// A thread that makes calls. When this is dropped, it continues at its previous state.
#[derive(Debug)]
pub struct Caller<'a> {
    memory: &'a Memory,
    thread: Stopped,
    places: Places,
    before: Before,
    /// Memory in the program for calls.
    room: u64,
    /// Whether the thread makes the call that restores its registers before its state is set.
    makes_last: bool,
    /// Whether the thread is at the call that restores its registers, or has made it.
    is_returning: bool,
    /// The last process that it made.
    made: Option<Pid>,
}

/// The result of a call.
#[derive(Clone, Copy, Debug)]
struct Returned {
    /// The value that it returned.
    value: u64,
}

impl<'a> Caller<'a> {
    /// Allocates space for calls in a thread.
    ///
    /// Errors: there is no space, or the thread ended.
    pub fn new(memory: &'a Memory, thread: Stopped, places: Places) -> io::Result<Caller<'a>> {
        let before = Before {
            registers: machine::settled(thread.tid, thread.registers)?,
            extended: machine::extended_state(thread.tid)?,
            mask: ptrace::signal_mask(thread.tid)?,
        };
        // The call that restores registers also ends a wait with the remaining time.
        let is_kept = machine::is_timed(&before.registers) && !has_filter(thread.tid);
        let makes_last = machine::MAKES_LAST_CALL && !is_kept;
        let (room, is_returning, made) = (0, false, None);
        let mut caller =
            Caller { memory, thread, places, before, room, makes_last, is_returning, made };
        let top = machine::below_red_zone(&caller.before.registers);
        // A stack that ends here must fail this attempt, not crash the program.
        memory.write(top - OWN_STACK, &[0; 8])?;
        const READ_AND_WRITE: u64 = 3;
        const PRIVATE_ANONYMOUS: u64 = 0x22;
        let arguments = [0, ROOM, READ_AND_WRITE, PRIVATE_ANONYMOUS, u64::MAX, 0];
        let made = caller.system_call(top, machine::MMAP, arguments, WITHIN)?;
        caller.room = made;
        Ok(caller)
    }

    /// Returns the address for arguments.
    pub fn arguments(&self) -> u64 {
        self.room
    }

    /// Writes bytes to the space for arguments.
    ///
    /// Errors: there are more bytes than space.
    pub fn put(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > ARGUMENTS {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        self.memory.write(self.room, bytes)
    }

    /// Calls a function whose result is ignored.
    ///
    /// Errors: the thread ended, or the call exceeds the time limit; then the thread finishes it
    /// alone.
    pub fn call(&mut self, function: u64, arguments: [u64; 2], within: Duration) -> io::Result<()> {
        let [first, second] = arguments;
        let arguments = [first, second, 0, 0, 0, 0];
        let call = Call { function, number: 0, arguments, is_asked: false };
        self.make(self.room + ROOM, call, within)?;
        Ok(())
    }

    /// Calls a function that makes many system calls. Stopping at each of them takes far longer
    /// than the calls, so the thread is stopped only when `is_done` returns true; then the function
    /// waits until `go_on` was called.
    ///
    /// Errors: as for [`Caller::call`].
    pub fn call_long(
        &mut self,
        function: u64,
        arguments: [u64; 2],
        within: Duration,
        (is_done, go_on): (impl Fn() -> io::Result<bool>, impl Fn() -> io::Result<()>),
    ) -> io::Result<()> {
        let [first, second] = arguments;
        let arguments = [first, second, 0, 0, 0, 0];
        let call = Call { function, number: 0, arguments, is_asked: false };
        let until = Instant::now() + within;
        self.begin(self.room + ROOM, call)?;
        ptrace::resume(self.thread.tid, 0)?;
        self.stop_when(is_done, until)?;
        go_on()?;
        ptrace::resume_to_call(self.thread.tid, 0)?;
        self.follow(call, until)?;
        Ok(())
    }

    /// Stops the running thread when a condition holds.
    fn stop_when(
        &mut self,
        is_done: impl Fn() -> io::Result<bool>,
        until: Instant,
    ) -> io::Result<()> {
        let tid = self.thread.tid;
        let mut is_interrupted = false;
        loop {
            if !is_interrupted && is_done()? {
                nix::sys::ptrace::interrupt(tid)?;
                is_interrupted = true;
            }
            match ptrace::event(tid)? {
                Event::Stopped if is_interrupted => return Ok(()),
                Event::Stopped | Event::Call | Event::Forked | Event::Executed => {
                    ptrace::resume(tid, 0)?;
                }
                Event::Signal(signal) => ptrace::resume(tid, signal)?,
                Event::Nothing => self.await_event(until)?,
                Event::Gone => return Err(self.gone()),
            }
        }
    }

    /// Calls a function that returns an address.
    ///
    /// Errors: as for [`Caller::call`].
    pub fn call_for_address(&mut self, function: u64, within: Duration) -> io::Result<u64> {
        let call = Call { function, number: 0, arguments: [0; 6], is_asked: true };
        Ok(self.make(self.room + ROOM, call, within)?.value)
    }

    /// Copies descriptors into the process through a socket pair, which works across namespaces.
    /// Returns their numbers there.
    ///
    /// Errors: the process or the kernel rejects the calls.
    pub fn give(&mut self, pid: Pid, given: &[BorrowedFd<'_>]) -> io::Result<Vec<u64>> {
        const UNIX: u64 = 1;
        const DATAGRAM_CLOSED_BY_EXEC: u64 = 0o2_000_002;
        const CLOSED_BY_EXEC: u64 = 0x4000_0000;
        let sockets = self.room;
        let pair = [UNIX, DATAGRAM_CLOSED_BY_EXEC, 0, sockets, 0, 0];
        self.kernel(machine::SOCKETPAIR, pair)?;
        let pair = self.memory.word(sockets)?;
        let (ours, theirs) = (pair & 0xffff_ffff, pair >> 32);
        let numbers: Vec<i32> = given.iter().map(AsRawFd::as_raw_fd).collect();
        let socket = ptrace::descriptor_of(pid, ours as i32)?;
        let text = [IoSlice::new(b"x")];
        let rights = [ControlMessage::ScmRights(&numbers)];
        // The program may have put another socket there, which must not block this command.
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(socket.as_raw_fd(), &text, &rights, flags, None)?;
        // struct msghdr, struct iovec, a byte, and space for the descriptors.
        let (header, vector, byte, control) =
            (self.room + 64, self.room + 128, self.room + 160, self.room + 192);
        let bytes = (16 + 4 * given.len() as u64).next_multiple_of(8);
        let words = [0, 0, vector, 1, control, bytes, 0];
        let words: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.memory.write(header, &words)?;
        self.memory.write(vector, &[byte.to_ne_bytes(), 1u64.to_ne_bytes()].concat())?;
        self.kernel(machine::RECVMSG, [theirs, header, CLOSED_BY_EXEC, 0, 0, 0])?;
        let received = given.iter().enumerate().map(|(index, _)| {
            let at = control + 16 + 4 * index as u64;
            let mut number = [0; 4];
            self.memory.read(at, &mut number)?;
            Ok(u64::from(u32::from_ne_bytes(number)))
        });
        let received = received.collect::<io::Result<Vec<u64>>>()?;
        for socket in [ours, theirs] {
            self.close(socket)?;
        }
        Ok(received)
    }

    /// Moves a descriptor of the process above the numbers that programs may expect to be free.
    /// Returns its number.
    ///
    /// Errors: the thread ended.
    pub fn move_up(&mut self, descriptor: u64) -> io::Result<u64> {
        const DUPLICATE_CLOSED_BY_EXEC: u64 = 1030;
        const LEAST: u64 = 900;
        let arguments = [descriptor, DUPLICATE_CLOSED_BY_EXEC, LEAST, 0, 0, 0];
        match self.kernel(machine::FCNTL, arguments) {
            Ok(moved) => {
                self.close(descriptor)?;
                Ok(moved)
            }
            Err(_) => Ok(descriptor),
        }
    }

    /// Closes a descriptor of the process.
    ///
    /// Errors: the thread ended.
    pub fn close(&mut self, descriptor: u64) -> io::Result<()> {
        self.kernel(machine::CLOSE, [descriptor, 0, 0, 0, 0, 0])?;
        Ok(())
    }

    /// Frees memory of the process.
    ///
    /// Errors: the thread ended.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> io::Result<()> {
        self.kernel(machine::MUNMAP, [address, bytes, 0, 0, 0, 0])?;
        Ok(())
    }

    /// Makes a copy of the process that never runs, and that is killed when this command ends.
    /// Returns its process id as seen from here, and in the program. The program is not told when
    /// it ends, and must reap it ([`Caller::reap`]).
    ///
    /// Its stack pointer is invalid: if this command is killed before the kernel binds the copy to
    /// it, the copy dies at its first instruction, instead of running as a second program.
    ///
    /// Errors: the kernel refuses it.
    pub fn fork(&mut self) -> io::Result<(Pid, u64)> {
        const NO_STACK: u64 = 16;
        let tid = self.thread.tid;
        ptrace::trace_forks(tid, true)?;
        let number = self.kernel(machine::CLONE, [0, NO_STACK, 0, 0, 0, 0]);
        ptrace::trace_forks(tid, false)?;
        let (number, made) = (number?, self.made.take());
        let copy = made.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let until = Instant::now() + WITHIN;
        while ptrace::event(copy)? != Event::Stopped {
            if Instant::now() > until {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            ptrace::await_event();
        }
        ptrace::bind(copy)?;
        Ok((copy, number))
    }

    /// Reaps a child of the process that has ended.
    ///
    /// Errors: the process has no such child.
    pub fn reap(&mut self, child: u64) -> io::Result<()> {
        const ANY_CHILD: u64 = 0x4000_0000;
        const WITHOUT_WAITING: u64 = 1;
        self.kernel(machine::WAIT4, [child, 0, ANY_CHILD | WITHOUT_WAITING, 0, 0, 0])?;
        Ok(())
    }

    /// Makes a system call.
    fn kernel(&mut self, number: u64, arguments: [u64; 6]) -> io::Result<u64> {
        self.system_call(self.room + ROOM, number, arguments, WITHIN)
    }

    fn system_call(
        &mut self,
        top: u64,
        number: u64,
        arguments: [u64; 6],
        within: Duration,
    ) -> io::Result<u64> {
        let function = self.places.system_call;
        let call = Call { function, number, arguments, is_asked: false };
        let returned = self.make(top, call, within)?;
        machine::result(returned.value)
    }

    fn make(&mut self, top: u64, call: Call, within: Duration) -> io::Result<Returned> {
        let until = Instant::now() + within;
        self.begin(top, call)?;
        ptrace::resume_to_call(self.thread.tid, 0)?;
        self.follow(call, until)
    }

    /// Lets the thread begin a call when it is resumed.
    fn begin(&mut self, top: u64, call: Call) -> io::Result<()> {
        let tid = self.thread.tid;
        let registers = machine::prepare(self.memory, &self.before, top, self.places, call)?;
        machine::set_registers(tid, registers)?;
        // From here on the thread restores itself.
        self.is_returning = false;
        ptrace::set_signal_mask(tid, ALL_SIGNALS)
    }

    /// Follows the thread from one system call to the next, until it is about to restore itself.
    fn follow(&mut self, call: Call, until: Instant) -> io::Result<Returned> {
        let (tid, places) = (self.thread.tid, self.places);
        let mut returned = Returned { value: 0 };
        loop {
            match ptrace::event(tid)? {
                Event::Call => {
                    let registers = machine::registers(tid)?;
                    if let Some(value) = machine::returned_by(&registers, places, call) {
                        returned.value = value;
                    }
                    if machine::is_returning(&registers, places) {
                        self.is_returning = true;
                        if self.makes_last {
                            self.pass_last_call(until)?;
                        }
                        return Ok(returned);
                    }
                    ptrace::resume_to_call(tid, 0)?;
                }
                Event::Signal(signal) => ptrace::resume_to_call(tid, signal)?,
                Event::Forked => {
                    self.made = Some(ptrace::made(tid)?);
                    ptrace::resume_to_call(tid, 0)?;
                }
                Event::Stopped | Event::Executed => ptrace::resume_to_call(tid, 0)?,
                Event::Gone => return Err(self.gone()),
                Event::Nothing => self.await_event(until)?,
            }
        }
    }

    /// Lets the thread make the call that restores its registers, and stops it at the end of that
    /// call, where its registers can be set.
    fn pass_last_call(&mut self, until: Instant) -> io::Result<()> {
        let tid = self.thread.tid;
        ptrace::resume_to_call(tid, 0)?;
        loop {
            match ptrace::event(tid)? {
                Event::Call => return Ok(()),
                Event::Signal(signal) => ptrace::resume_to_call(tid, signal)?,
                Event::Stopped | Event::Forked | Event::Executed => {
                    ptrace::resume_to_call(tid, 0)?;
                }
                Event::Gone => return Err(self.gone()),
                Event::Nothing => self.await_event(until)?,
            }
        }
    }

    /// The thread has ended.
    fn gone(&mut self) -> io::Error {
        self.thread.note_end();
        io::Error::from_raw_os_error(nix::libc::ESRCH)
    }

    /// Waits for an event of the running thread.
    ///
    /// Errors: the time is up. The thread runs, and restores itself.
    fn await_event(&mut self, until: Instant) -> io::Result<()> {
        if Instant::now() > until {
            self.thread.note_end();
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        ptrace::await_event();
        Ok(())
    }

    /// Frees the memory for calls.
    ///
    /// Errors: the thread ended.
    fn give_back(&mut self) -> io::Result<()> {
        let room = std::mem::take(&mut self.room);
        if room != 0 && self.is_returning {
            let top = machine::below_red_zone(&self.before.registers);
            self.system_call(top, machine::MUNMAP, [room, ROOM, 0, 0, 0, 0], WITHIN)?;
        }
        Ok(())
    }

    /// Restores the thread's previous state.
    fn put_back(&mut self) -> io::Result<()> {
        let tid = self.thread.tid;
        if self.is_returning {
            machine::leave_call(tid, self.places)?;
            machine::set_extended_state(tid, &self.before.extended)?;
            ptrace::set_signal_mask(tid, self.before.mask)?;
            machine::set_registers(tid, machine::continued(&self.before.registers))?;
        }
        Ok(())
    }
}

/// Returns whether a thread has a filter of system calls, which also judges calls that it cancels.
fn has_filter(tid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    field(&status, "Seccomp").is_none_or(|mode| mode != "0")
}

/// The time limit of a system call.
const WITHIN: Duration = Duration::from_secs(5);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let _ = self.give_back(); // the thread may have been killed
        let _ = self.put_back();
    }
}
