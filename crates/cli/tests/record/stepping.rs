//! Executes a program in single steps, one thread at a time, or a command from system call to call.

use crate::harness::clean;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The kernel's number of the event that a thread has started another.
const CLONE: i32 = ptrace::Event::PTRACE_EVENT_CLONE as i32;

/// Offsets of debug registers in the kernel's `struct user`: the address of the first breakpoint,
/// and the register that enables it.
const BREAKPOINT: usize = 848;
const ENABLED: usize = BREAKPOINT + 7 * 8;

/// Waits until it may continue, so that it can be traced, and executes a command, with a library
/// preloaded unless its path is empty.
const START: &str = r#"read -r go && { test -z "$0" || export LD_PRELOAD="$0"; } && exec "$@""#;

/// A traced program. It is killed when dropped.
pub struct Stepper {
    child: Child,
    follows: Follows,
    /// The threads, of which only the last runs: a thread runs from its start to its end while the
    /// one that started it waits.
    threads: Vec<Pid>,
    /// The signal that the current thread receives when it continues.
    signal: Option<Signal>,
    /// How the program ended.
    end: Option<WaitStatus>,
    /// Whether the program is stopped at a system call.
    is_at_call: bool,
    /// The vDSO. It reads the clock again if that was set meanwhile: in single steps on a busy
    /// machine, for ever. So it runs at full speed.
    clock: Range<u64>,
}

/// Which threads run under control.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    Newest,
    Second,
}

/// How far a thread runs.
#[derive(Clone, Copy)]
enum To {
    Instruction,
    Call,
    Breakpoint,
}

impl Stepper {
    /// Starts a program with the library preloaded, and stops it before its first instruction.
    pub fn start(program: &Command, library: &Path) -> Stepper {
        stay_on_this_processor();
        Stepper::seize(program, library, Follows::Newest)
    }

    /// Starts a command likewise.
    pub fn start_command(command: &Command) -> Stepper {
        Stepper::seize(command, Path::new(""), Follows::Second)
    }

    fn seize(program: &Command, library: &Path, follows: Follows) -> Stepper {
        let mut command = clean(Command::new("/bin/sh"));
        command.args(["-c", START]).arg(library).arg(program.get_program());
        command
            .args(program.get_args())
            .current_dir(program.get_current_dir().unwrap_or(".".as_ref()));
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a shell");
        let pid = Pid::from_raw(child.id() as i32);
        let options = Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(pid, options).expect("a child can be traced");
        child.stdin.take().expect("a pipe").write_all(b"go\n").expect("the shell reads");
        let stop = wait(pid);
        assert!(matches!(stop, WaitStatus::PtraceEvent(..)), "not executed: {stop:?}");
        let clock = code(pid, "[vdso]");
        Stepper {
            child,
            threads: vec![pid],
            follows,
            signal: None,
            end: None,
            is_at_call: false,
            clock,
        }
    }

    /// Returns the number of the system call at whose end the program is stopped.
    pub fn finished_call(&self) -> Option<u64> {
        /// The result of a call that has not been executed yet.
        const BEGINS: u64 = (-38i64).cast_unsigned();
        let registers = ptrace::getregs(self.current()).expect("registers of a stopped thread");
        (self.is_at_call && registers.rax != BEGINS).then_some(registers.orig_rax)
    }

    /// Sends a signal, lets the program continue, and waits for its end.
    pub fn end_by(&mut self, signal: Signal) {
        kill(self.process(), signal).expect("a stopped process");
        let current = self.current();
        let is_over = ptrace::detach(current, None).is_err();
        if is_over && current != self.process() {
            wait(current); // the process ends after its threads
        }
        self.end = Some(wait(self.process()));
    }

    /// Returns the exit status of a program that has ended; none if a signal ended it.
    pub fn status(&self) -> Option<i32> {
        match self.end {
            Some(WaitStatus::Exited(_, code)) => Some(code),
            _ => None,
        }
    }

    /// Returns the address of the next instruction.
    pub fn address(&self) -> u64 {
        ptrace::getregs(self.current()).expect("registers of a stopped thread").rip
    }

    /// Describes an address by its file and the offset there.
    pub fn place(&self, address: u64) -> String {
        let maps = maps(self.process());
        let line = maps.lines().find(|line| range(line).contains(&address)).unwrap_or_default();
        let mut fields = line.split_whitespace().skip(2);
        let offset = fields.next().and_then(|offset| u64::from_str_radix(offset, 16).ok());
        let file = fields.nth(2).unwrap_or("?");
        format!("{file}+{:#x}", address - range(line).start + offset.unwrap_or(0))
    }

    /// Runs to the start or the end of a system call. Returns whether the program still runs.
    pub fn run_to_call(&mut self) -> bool {
        self.run(To::Call)
    }

    /// Executes an instruction. Returns whether the program still runs.
    pub fn step(&mut self) -> bool {
        if self.clock.contains(&self.address()) {
            return self.leave_clock();
        }
        self.run(To::Instruction)
    }

    fn current(&self) -> Pid {
        *self.threads.last().expect("a thread")
    }

    /// Runs from the first instruction of a function of the vDSO to its caller.
    fn leave_clock(&mut self) -> bool {
        let current = self.current();
        let stack = ptrace::getregs(current).expect("registers").rsp;
        let caller = ptrace::read(current, stack as ptrace::AddressType).expect("an address");
        set_breakpoint(current, caller);
        let runs = self.run(To::Breakpoint);
        if runs {
            set_breakpoint(current, 0);
        }
        runs
    }

    fn run(&mut self, to: To) -> bool {
        let current = self.current();
        let signal = self.signal.take();
        let resumed = match to {
            To::Instruction => ptrace::step(current, signal),
            To::Call => ptrace::syscall(current, signal),
            To::Breakpoint => ptrace::cont(current, signal),
        };
        resumed.expect("a stopped thread continues");
        let stop = wait(current);
        self.is_at_call = matches!(stop, WaitStatus::PtraceSyscall(_));
        match stop {
            WaitStatus::Stopped(_, Signal::SIGTRAP) | WaitStatus::PtraceSyscall(_) => {}
            WaitStatus::Stopped(_, signal) => self.signal = Some(signal),
            WaitStatus::PtraceEvent(_, _, CLONE) => {
                let new = ptrace::getevent(current).expect("the id of the new thread");
                self.follow(Pid::from_raw(new as i32));
            }
            WaitStatus::PtraceEvent(..) => {}
            end => {
                self.threads.pop();
                if self.threads.is_empty() {
                    self.end =
                        Some(if current == self.process() { end } else { wait(self.process()) });
                }
            }
        }
        !self.threads.is_empty()
    }

    /// Continues with a thread that the current one has started. Of a command, only its second
    /// thread runs from call to call, which does its work.
    fn follow(&mut self, new: Pid) {
        wait(new);
        let current = self.current();
        if self.follows == Follows::Newest {
            self.threads.push(new);
        } else if current == self.process() {
            ptrace::detach(current, None).expect("a stopped thread");
            self.threads = vec![new];
        } else {
            ptrace::detach(new, None).expect("a stopped thread");
        }
    }

    fn process(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        if self.end.is_none() {
            let _ = self.child.kill();
            // The process ends after its traced threads.
            for thread in self.threads.iter().rev() {
                let _ = waitpid(*thread, Some(WaitPidFlag::__WALL));
            }
            let _ = self.child.wait();
        }
    }
}

/// Keeps this thread and its children on one processor: a step is a switch there, but between two
/// processors it has to wake one of them.
fn stay_on_this_processor() {
    let processor = nix::sched::sched_getcpu().expect("the number of a processor");
    let mut one = CpuSet::new();
    one.set(processor).expect("a processor of the set");
    sched_setaffinity(Pid::from_raw(0), &one).expect("the thread stays here");
}

fn wait(thread: Pid) -> WaitStatus {
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("a traced thread stops")
}

/// Sets the address of the only breakpoint; 0 removes it.
fn set_breakpoint(thread: Pid, address: i64) {
    let set = |offset: usize, value| ptrace::write_user(thread, offset as *mut _, value);
    set(BREAKPOINT, address).expect("a debug register");
    set(ENABLED, i64::from(address != 0)).expect("a debug register");
}

fn maps(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default()
}

/// Returns the addresses of a line of `/proc/PID/maps`.
fn range(line: &str) -> Range<u64> {
    let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
    let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
    range.map_or(0..0, |(start, end)| number(start)..number(end))
}

/// Returns where the code of a file is mapped.
fn code(pid: Pid, name: &str) -> Range<u64> {
    let maps = maps(pid);
    let mut lines = maps.lines().filter(|line| line.contains(name) && line.contains("r-xp"));
    lines.next().map_or(0..0, range)
}
