//! Whether a process sees the same files as this command.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Pid, Uid};

/// Returns whether a process has the root directory and the mounts of this command.
pub fn is_same(pid: Pid) -> bool {
    let view = |process: &str| {
        let root = fs::metadata(format!("/proc/{process}/root")).ok()?;
        Some((root.dev(), root.ino(), fs::read_link(format!("/proc/{process}/ns/mnt")).ok()?))
    };
    view("self") == view(&pid.to_string())
}

/// Returns whether a process reads a file like this command: it sees the same files, with the same
/// permissions.
pub fn is_shared(pid: Pid, file: &Path) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid());
    let has_rights = owner.is_ok_and(|owner| owner == 0 || owner == Uid::effective().as_raw());
    is_same(pid) && has_rights && file.is_absolute()
}
