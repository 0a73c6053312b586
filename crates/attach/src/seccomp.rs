//! Seccomp filters of a process, which can end it for the system calls that attaching and recording
//! need: the filters are evaluated for these calls, as the kernel would do it.

use std::fs;
use std::io;

use nix::unistd::Pid;

use crate::error::{Error, field};
use crate::ptrace::{self, Instruction};
use crate::threads::{Stopped, threads};

/// The most filters of a thread. The kernel limits their instructions to 32768 in total.
const FILTERS_MAX: usize = 256;
/// The most instructions that are evaluated: a filter has at most 4096, and jumps only forward.
const STEPS_MAX: usize = 4096;
/// Words of scratch memory of a filter.
const SCRATCH: usize = 16;
/// Bytes of the data that a filter reads: number, architecture, instruction pointer, arguments.
const DATA_BYTES: usize = 64;
/// The architecture in that data.
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };

/// A system call that the library or the loader makes in the process.
type Call = (libc::c_long, &'static str, [u64; 6]);

const READ_AND_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_AND_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

const fn plain(number: libc::c_long, name: &'static str) -> Call {
    (number, name, [0; 6])
}

/// The calls, with arguments where filters of programs usually depend on them.
const CALLS: &[Call] = &[
    plain(libc::SYS_rt_sigreturn, "rt_sigreturn"),
    (libc::SYS_mmap, "mmap", [0, 4096, READ_AND_EXECUTE, libc::MAP_PRIVATE as u64, 3, 0]),
    (libc::SYS_mmap, "mmap", [0, 4096, READ_AND_WRITE, libc::MAP_SHARED as u64, 3, 0]),
    (libc::SYS_mprotect, "mprotect", [0, 4096, READ_AND_EXECUTE, 0, 0, 0]),
    plain(libc::SYS_munmap, "munmap"),
    (libc::SYS_madvise, "madvise", [0, 4096, libc::MADV_WIPEONFORK as u64, 0, 0, 0]),
    (libc::SYS_openat, "openat", [libc::AT_FDCWD as u64, 0, libc::O_CLOEXEC as u64, 0, 0, 0]),
    (
        libc::SYS_openat,
        "openat",
        [
            libc::AT_FDCWD as u64,
            0,
            (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) as u64,
            0o644,
            0,
            0,
        ],
    ),
    plain(libc::SYS_read, "read"),
    plain(libc::SYS_pread64, "pread64"),
    plain(libc::SYS_pwrite64, "pwrite64"),
    plain(libc::SYS_close, "close"),
    plain(libc::SYS_fstat, "fstat"),
    plain(libc::SYS_newfstatat, "newfstatat"),
    plain(libc::SYS_fcntl, "fcntl"),
    plain(libc::SYS_fallocate, "fallocate"),
    plain(libc::SYS_readlinkat, "readlinkat"),
    plain(libc::SYS_mkdirat, "mkdirat"),
    (
        libc::SYS_socketpair,
        "socketpair",
        [libc::AF_UNIX as u64, libc::SOCK_DGRAM as u64, 0, 0, 0, 0],
    ),
    plain(libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_prlimit64, "prlimit64", [0, libc::RLIMIT_AS as u64, 0, 0, 0, 0]),
    plain(libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
    plain(libc::SYS_getpid, "getpid"),
    plain(libc::SYS_gettid, "gettid"),
    plain(libc::SYS_clock_gettime, "clock_gettime"),
    plain(libc::SYS_mincore, "mincore"),
    plain(libc::SYS_membarrier, "membarrier"),
    plain(libc::SYS_futex, "futex"),
    plain(libc::SYS_sched_yield, "sched_yield"),
    plain(libc::SYS_uname, "uname"),
];

/// Checks that no thread of a process has a filter that ends it for a call of the recorder. Returns
/// whether a thread has a filter.
///
/// Errors: a thread has one, or its filters cannot be read and are not those of this command.
pub fn check(pid: Pid) -> Result<bool, Error> {
    let refused = |error| Error::refused(pid, &error);
    let mut has_filter = false;
    for tid in threads(pid).map_err(refused)? {
        let mode = Mode::of(&format!("/proc/{pid}/task/{tid}"));
        if mode.is_strict {
            return Err(Error::new(format!(
                "process {pid} may only read, write and exit (strict seccomp); start it with \
                 `heaptide run`"
            )));
        }
        if !mode.is_filtered {
            continue;
        }
        has_filter = true;
        let stopped = match Stopped::new(tid) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => continue,
            other => other.map_err(refused)?,
        };
        let Some(stopped) = stopped else { continue };
        let filters = filters(stopped.tid);
        drop(stopped);
        let forbidden = match &filters {
            Ok(filters) => forbidden(filters),
            // In a container, they are usually those of this command, too.
            Err(_) if mode == Mode::of("/proc/self") && mode.count.is_some() => None,
            Err(_) => {
                return Err(Error::new(format!(
                    "process {pid} has a seccomp filter, which could end it for a system call of \
                     the recorder, and which only root outside of containers can read; attach as \
                     root, or start it with `heaptide run`"
                )));
            }
        };
        if let Some(name) = forbidden {
            return Err(Error::new(format!(
                "process {pid} has a seccomp filter that ends it for the system call {name}, which \
                 the recorder needs; start it with `heaptide run`"
            )));
        }
    }
    Ok(has_filter)
}

/// What `/proc` states about the filters of a thread.
#[derive(PartialEq, Eq)]
struct Mode {
    is_strict: bool,
    is_filtered: bool,
    /// The number of filters, if the kernel shows it.
    count: Option<u32>,
}

impl Mode {
    fn of(directory: &str) -> Mode {
        let status = fs::read_to_string(format!("{directory}/status")).unwrap_or_default();
        let count = field(&status, "Seccomp_filters").and_then(|count| count.parse().ok());
        let is = |mode: &str| field(&status, "Seccomp") == Some(mode);
        Mode { is_strict: is("1"), is_filtered: is("2"), count }
    }
}

/// Reads the filters of a stopped thread.
///
/// Errors: the kernel's; only root outside of containers may read them.
fn filters(tid: Pid) -> io::Result<Vec<Vec<Instruction>>> {
    let mut all = Vec::new();
    while all.len() < FILTERS_MAX {
        match ptrace::seccomp_filter(tid, all.len()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) && !all.is_empty() => break,
            filter => all.push(filter?),
        }
    }
    Ok(all)
}

/// Returns a call for which one of the filters ends the process or sends it a signal.
fn forbidden(filters: &[Vec<Instruction>]) -> Option<&'static str> {
    let is_forbidden = |(number, _, arguments): &&Call| {
        let data = data_of(*number as u32, arguments);
        filters.iter().any(|filter| !run(filter, &data).is_some_and(is_harmless))
    };
    CALLS.iter().find(is_forbidden).map(|(_, name, _)| *name)
}

/// Returns whether a result lets the call be made, or fail.
fn is_harmless(result: u32) -> bool {
    let action = result & libc::SECCOMP_RET_ACTION_FULL;
    [
        libc::SECCOMP_RET_ALLOW,
        libc::SECCOMP_RET_LOG,
        libc::SECCOMP_RET_ERRNO,
        libc::SECCOMP_RET_USER_NOTIF,
    ]
    .contains(&action)
}

fn data_of(number: u32, arguments: &[u64; 6]) -> [u8; DATA_BYTES] {
    let mut data = [0; DATA_BYTES];
    data[..4].copy_from_slice(&number.to_ne_bytes());
    data[4..8].copy_from_slice(&ARCHITECTURE.to_ne_bytes());
    for (place, argument) in data[16..].chunks_exact_mut(8).zip(arguments) {
        place.copy_from_slice(&argument.to_ne_bytes());
    }
    data
}

/// The state of a filter while it is evaluated.
struct Machine<'a> {
    data: &'a [u8; DATA_BYTES],
    accumulator: u32,
    index: u32,
    scratch: [u32; SCRATCH],
}

/// What follows an instruction.
enum Next {
    /// The instruction after this number of others.
    Skip(usize),
    Result(u32),
}

/// Evaluates a filter; `None` if it contains an instruction that no filter has.
fn run(filter: &[Instruction], data: &[u8; DATA_BYTES]) -> Option<u32> {
    let mut machine = Machine { data, accumulator: 0, index: 0, scratch: [0; SCRATCH] };
    let mut at = 0;
    for _ in 0..STEPS_MAX {
        match machine.step(filter.get(at)?)? {
            Next::Skip(others) => at += 1 + others,
            Next::Result(result) => return Some(result),
        }
    }
    None
}

impl Machine<'_> {
    /// Executes an instruction, as `linux/bpf_common.h` encodes them.
    fn step(&mut self, instruction: &Instruction) -> Option<Next> {
        let &Instruction { code, if_true, if_false, value } = instruction;
        match code & 0x07 {
            0x00 => self.accumulator = self.loaded(code, value)?,
            0x01 => self.index = self.loaded(code, value)?,
            0x02 => *self.scratch.get_mut(value as usize)? = self.accumulator,
            0x03 => *self.scratch.get_mut(value as usize)? = self.index,
            0x04 => self.accumulator = self.computed(code, value)?,
            0x05 if code & 0xf0 == 0 => return Some(Next::Skip(value as usize)),
            0x05 => {
                let is_met = self.compared(code, value)?;
                return Some(Next::Skip(usize::from(if is_met { if_true } else { if_false })));
            }
            0x06 => {
                let result = if code & 0x18 == 0x10 { self.accumulator } else { value };
                return Some(Next::Result(result));
            }
            _ if code & 0xf8 == 0x80 => self.accumulator = self.index,
            _ => self.index = self.accumulator,
        }
        Some(Next::Skip(0))
    }

    fn loaded(&self, code: u16, value: u32) -> Option<u32> {
        match code & 0xe0 {
            0x00 => Some(value),
            0x20 => {
                let at = value as usize;
                Some(u32::from_ne_bytes(self.data.get(at..at + 4)?.try_into().ok()?))
            }
            0x60 => self.scratch.get(value as usize).copied(),
            0x80 => Some(DATA_BYTES as u32),
            _ => None,
        }
    }

    fn operand(&self, code: u16, value: u32) -> u32 {
        if code & 0x08 == 0 { value } else { self.index }
    }

    fn computed(&self, code: u16, value: u32) -> Option<u32> {
        let (a, b) = (self.accumulator, self.operand(code, value));
        match code & 0xf0 {
            0x00 => Some(a.wrapping_add(b)),
            0x10 => Some(a.wrapping_sub(b)),
            0x20 => Some(a.wrapping_mul(b)),
            0x30 => a.checked_div(b),
            0x40 => Some(a | b),
            0x50 => Some(a & b),
            0x60 => a.checked_shl(b),
            0x70 => a.checked_shr(b),
            0x80 => Some(a.wrapping_neg()),
            0x90 => a.checked_rem(b),
            0xa0 => Some(a ^ b),
            _ => None,
        }
    }

    fn compared(&self, code: u16, value: u32) -> Option<bool> {
        let (a, b) = (self.accumulator, self.operand(code, value));
        match code & 0xf0 {
            0x10 => Some(a == b),
            0x20 => Some(a > b),
            0x30 => Some(a >= b),
            0x40 => Some(a & b != 0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(code: u16, if_true: u8, if_false: u8, value: u32) -> Instruction {
        Instruction { code, if_true, if_false, value }
    }

    /// Returns a filter that has this result for a call, and allows the others.
    fn only(number: libc::c_long, result: u32) -> Vec<Instruction> {
        vec![
            of(0x20, 0, 0, 0),
            of(0x15, 0, 1, number as u32),
            of(0x06, 0, 0, result),
            of(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]
    }

    #[test]
    fn a_filter_that_ends_the_process_for_a_call_is_found() {
        for (result, expected) in [
            (libc::SECCOMP_RET_KILL_PROCESS, Some("fallocate")),
            (libc::SECCOMP_RET_KILL_THREAD, Some("fallocate")),
            (libc::SECCOMP_RET_TRAP, Some("fallocate")),
            (libc::SECCOMP_RET_ERRNO | 38, None),
            (libc::SECCOMP_RET_LOG, None),
        ] {
            let harmless = only(libc::SYS_kexec_load, libc::SECCOMP_RET_KILL_PROCESS);
            let filters = [harmless, only(libc::SYS_fallocate, result)];
            assert_eq!(forbidden(&filters), expected, "{result:x}");
        }
        assert_eq!(forbidden(&[]), None);
    }

    #[test]
    fn filters_see_the_arguments_of_calls() {
        // mprotect: the third argument, masked through the index and the scratch memory.
        let filter = vec![
            of(0x20, 0, 0, 0),
            of(0x15, 0, 7, libc::SYS_mprotect as u32),
            of(0x20, 0, 0, 32),
            of(0x02, 0, 0, 3),
            of(0x01, 0, 0, libc::PROT_EXEC as u32),
            of(0x60, 0, 0, 3),
            of(0x5c, 0, 0, 0),
            of(0x15, 1, 0, 0),
            of(0x06, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
            of(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        assert_eq!(run(&filter, &data_of(0, &[0; 6])), Some(libc::SECCOMP_RET_ALLOW));
        let protect = |flags| data_of(libc::SYS_mprotect as u32, &[0, 0, flags, 0, 0, 0]);
        let results = [READ_AND_WRITE, READ_AND_EXECUTE].map(|flags| run(&filter, &protect(flags)));
        let expected = [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS];
        assert_eq!(results, expected.map(Some));
        assert_eq!(forbidden(&[filter]), Some("mprotect"));
    }

    #[test]
    fn no_bytes_are_taken_for_a_harmless_filter() {
        assert_eq!(forbidden(&[Vec::new()]), Some("rt_sigreturn"));
        assert_eq!(forbidden(&[vec![of(0x20, 0, 0, 64)]]), Some("rt_sigreturn"));
        assert_eq!(forbidden(&[vec![of(0x05, 0, 0, u32::MAX)]]), Some("rt_sigreturn"));
    }
}
