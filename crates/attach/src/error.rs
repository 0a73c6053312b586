//! Why a process cannot be attached to: one line.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{Pid, Uid};

/// A reason, as one line.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }

    /// The kernel refused access to a process.
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
}

/// Why a process may not be traced.
fn why(pid: Pid) -> String {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid());
    let own = Uid::effective();
    if !own.is_root()
        && let Ok(owner) = owner
        && owner != own.as_raw()
    {
        return format!(
            "it belongs to user {owner}, or hides its memory (PR_SET_DUMPABLE); attach as root"
        );
    }
    match scope() {
        Some(1) if !own.is_root() => "kernel.yama.ptrace_scope is 1: only the parent of a process \
             may attach; attach as root, or set it to 0 (`sysctl kernel.yama.ptrace_scope=0`)"
            .to_owned(),
        Some(2) if !own.is_root() => {
            "kernel.yama.ptrace_scope is 2: only root may attach; attach as root".to_owned()
        }
        Some(3) => "kernel.yama.ptrace_scope is 3: nobody may attach until the next boot; start \
             the program with `heaptide run`"
            .to_owned(),
        _ if own.is_root() => "this container or a security module does not allow it; run it with \
             the capability CAP_SYS_PTRACE"
            .to_owned(),
        _ => "it has more rights than this command, or hides its memory (PR_SET_DUMPABLE); attach \
             as root"
            .to_owned(),
    }
}

/// What the kernel's module yama allows; none without it.
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
