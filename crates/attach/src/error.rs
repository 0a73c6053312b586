//! The reason why a process cannot be attached to, in one line.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

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

    /// The kernel denied access to a process.
    pub fn refused(pid: Pid, error: &io::Error) -> Error {
        const EIO: i32 = 5;
        if !std::path::Path::new(&format!("/proc/{pid}")).exists()
            || matches!(error.raw_os_error(), Some(nix::libc::ESRCH | EIO))
        {
            return Error(format!("process {pid} has ended"));
        }
        if !matches!(error.kind(), io::ErrorKind::PermissionDenied) {
            return Error(format!("cannot attach to process {pid}: {error}"));
        }
        Error(format!("cannot attach to process {pid}: {}", why(pid)))
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

    #[test]
    fn a_missing_process_has_ended() {
        let pid = Pid::from_raw(i32::MAX);
        let error = Error::refused(pid, &io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(error.to_string(), format!("process {pid} has ended"));
    }
}
