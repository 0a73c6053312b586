//! The reason why a process cannot be attached to, in one line.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{Pid, Uid};

/// A reason in one line.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// Creates an error with this text.
    pub fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }

    /// A request concerning a process failed: it ended, has another tracer, or the kernel denied
    /// access.
    pub fn refused(pid: Pid, error: &io::Error) -> Error {
        if let Some(text) = State::of(pid).why_not(pid) {
            return Error(text);
        }
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                Error(format!("cannot attach to process {pid}: {}", why(pid)))
            }
            // A thread that is ending frees its stack.
            io::ErrorKind::UnexpectedEof => {
                Error(format!("cannot attach to process {pid}: its memory is gone; try again"))
            }
            _ => Error(format!("cannot attach to process {pid}: {error}")),
        }
    }

    /// The process could not create the file of its recording; `errno` is 0 if unknown.
    pub fn no_profile(pid: Pid, errno: u64) -> Error {
        let errno = Errno::from_raw(i32::try_from(errno).unwrap_or_default());
        let found = match errno {
            Errno::UnknownErrno => "recording is disabled for it",
            errno => errno.desc(),
        };
        let next = match errno {
            Errno::EACCES | Errno::EPERM => {
                "it needs permission to write to the recording's directory and to search the \
                 directories above it"
            }
            Errno::EMFILE => "it needs one free file descriptor; raise its limit (`prlimit`)",
            Errno::EFBIG => "raise its limit of file sizes (`prlimit --fsize`)",
            Errno::ENOSPC | Errno::EDQUOT => "choose a disk that has room with --output",
            _ => "choose another place with --output",
        };
        Error(format!("process {pid} could not create its profile: {found}; {next}"))
    }
}

/// What `/proc` states about a process.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Whether it has ended, although its parent may not have noticed yet.
    has_ended: bool,
    /// Whether its first thread has ended, but others run.
    is_headless: bool,
    /// Another process that traces one of its threads.
    tracer: Option<String>,
}

impl State {
    /// Reads the current state of a process.
    pub(crate) fn of(pid: Pid) -> State {
        let status = |directory: &str| fs::read_to_string(format!("{directory}/status"));
        let Ok(first) = status(&format!("/proc/{pid}")) else {
            return State { has_ended: true, ..State::default() };
        };
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let all: Vec<String> =
            tasks.filter_map(|task| status(&task.path().display().to_string()).ok()).collect();
        let is_over =
            |status: &str| field(status, "State").is_none_or(|state| state.starts_with(['Z', 'X']));
        let tracer = all.iter().filter_map(|status| field(status, "TracerPid"));
        // This command traces by one of its own threads.
        let is_other =
            |tracer: &&str| *tracer != "0" && !Path::new("/proc/self/task").join(tracer).exists();
        State {
            has_ended: all.iter().all(|status| is_over(status)),
            is_headless: is_over(&first),
            tracer: tracer.filter(|tracer| is_other(tracer)).map(str::to_owned).next(),
        }
    }

    /// Returns the reason why a process in this state cannot be attached to.
    pub(crate) fn why_not(&self, pid: Pid) -> Option<String> {
        if self.has_ended {
            return Some(format!("process {pid} has ended"));
        }
        if self.is_headless {
            return Some(format!(
                "the first thread of process {pid} has ended, and the kernel shows the memory of \
                 the process only through it; start the program with `heaptide run`"
            ));
        }
        let tracer = self.tracer.as_ref()?;
        Some(format!(
            "process {pid} is traced by process {tracer}; a process can have only one tracer"
        ))
    }
}

/// Returns the value of a line of `/proc/PID/status`.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim())
}

/// Explains why a process may not be traced.
fn why(pid: Pid) -> String {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid());
    let own = Uid::effective();
    let other = owner.ok().filter(|&owner| owner != own.as_raw());
    reason(own.is_root(), other, scope())
}

/// Like `why`, given whether this command is root, the owner of the process if that is another
/// user, and yama's scope.
fn reason(is_root: bool, other: Option<u32>, scope: Option<u32>) -> String {
    let hidden = "it has more privileges than this command, or hides its memory (PR_SET_DUMPABLE); \
                  attach as root";
    let reason = match (is_root, other, scope) {
        (_, _, Some(3)) => {
            "kernel.yama.ptrace_scope is 3: attaching is disabled until the next boot; start the \
             program with `heaptide run`"
        }
        (true, ..) => {
            "this container or a security module does not allow it; run it with the capability \
             CAP_SYS_PTRACE"
        }
        (false, Some(owner), _) => {
            return format!("it belongs to user {owner}, or hides its memory; attach as root");
        }
        (_, _, Some(2)) => "kernel.yama.ptrace_scope is 2: only root may attach; attach as root",
        (_, _, Some(1)) => {
            "kernel.yama.ptrace_scope is 1: only its parent may attach; attach as root, or set it \
             to 0 (`sysctl kernel.yama.ptrace_scope=0`)"
        }
        _ => hidden,
    };
    reason.to_owned()
}

/// Returns the scope of the kernel's yama module; `None` without it.
fn scope() -> Option<u32> {
    let text = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    text.trim().parse().ok()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use nix::sys::wait::WaitPidFlag;

    use super::*;

    #[test]
    fn each_yama_scope_has_a_message() {
        let of = |scope| reason(false, None, scope);
        assert!(of(Some(1)).starts_with("kernel.yama.ptrace_scope is 1: only its parent"));
        assert!(of(Some(2)).contains("only root may attach"));
        assert!(of(Some(3)).contains("until the next boot"));
        assert!(reason(true, None, Some(3)).contains("until the next boot"));
        assert!([None, Some(0)].into_iter().all(|scope| of(scope).contains("PR_SET_DUMPABLE")));
        assert!(reason(true, None, Some(1)).contains("CAP_SYS_PTRACE"));
        assert!(reason(false, Some(101), Some(1)).starts_with("it belongs to user 101"));
    }

    /// Errors of requests concerning a process that cannot be traced any more.
    fn errors() -> [io::Error; 4] {
        let number = io::Error::from_raw_os_error;
        let end = io::Error::from(io::ErrorKind::UnexpectedEof);
        [number(nix::libc::EPERM), number(nix::libc::ESRCH), number(nix::libc::EIO), end]
    }

    #[test]
    fn a_missing_process_has_ended() {
        let pid = Pid::from_raw(i32::MAX);
        for error in errors() {
            let error = Error::refused(pid, &error);
            assert_eq!(error.to_string(), format!("process {pid} has ended"));
        }
    }

    #[test]
    fn a_process_that_nothing_has_waited_for_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let pid = Pid::from_raw(child.id() as i32);
        drop(child.stdin.take());
        // Returns when it has ended, and leaves it a zombie.
        let id = nix::sys::wait::Id::Pid(pid);
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        nix::sys::wait::waitid(id, flags).expect("its end");
        for error in errors() {
            let error = Error::refused(pid, &error);
            assert_eq!(error.to_string(), format!("process {pid} has ended"));
        }
        child.wait().expect("its status");
    }

    #[test]
    fn the_tracer_of_a_process_is_named() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let pid = Pid::from_raw(child.id() as i32);
        // Seizes the process, prints a line, and waits.
        let script = format!(
            "import ctypes, sys\n\
             trace = ctypes.CDLL(None).ptrace\n\
             print(trace(0x4206, {pid}, None, None), flush=True)\n\
             sys.stdin.read()"
        );
        let mut tracer = Command::new("python3");
        tracer.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut tracer = tracer.spawn().expect("python3");
        let mut line = String::new();
        let mut output = BufReader::new(tracer.stdout.take().expect("its output"));
        output.read_line(&mut line).expect("a line");
        let expected = match line.trim() {
            "0" => Some(format!(
                "process {pid} is traced by process {}; a process can have only one tracer",
                tracer.id()
            )),
            _ => None, // only its parent may trace it here
        };
        for error in errors() {
            let found = Error::refused(pid, &error).to_string();
            assert!(expected.as_ref().is_none_or(|expected| *expected == found), "{found}");
        }
        tracer.kill().expect("python3 ends");
        tracer.wait().expect("its status");
        child.kill().expect("cat ends");
        child.wait().expect("its status");
    }
}
