//! Reads the properties of a process in `/proc`: its name, parent, start, and initial environment.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The most generations that [`ancestors`] returns. pids cannot form a cycle, but no launcher needs
/// a chain of thousands.
const ANCESTORS_MAX: usize = 64;

/// A process according to its `stat` file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its name, of which the kernel stores 15 bytes.
    pub name: String,
    /// Its parent's pid; 0 if that is in another pid namespace.
    pub parent: u32,
    /// Its start, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Process {
    /// Reads `/proc/PID/stat`; `None` if there is no such process.
    ///
    /// ```
    /// use heaptide_supervise::process::Process;
    /// let own = Process::read(std::process::id()).unwrap();
    /// assert_eq!(own.parent, std::os::unix::process::parent_id());
    /// ```
    pub fn read(pid: u32) -> Option<Process> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let (head, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ').skip(1);
        Some(Process {
            pid,
            name: head.split_once('(')?.1.to_owned(),
            parent: fields.next()?.parse().ok()?,
            start_ticks: fields.nth(17)?.parse().ok()?, // field 22; the parent is field 4
        })
    }

    /// Returns the status of a process that has ended and was not reaped; `None` if there is none,
    /// or if it may not be read.
    pub fn unreaped_status(pid: u32) -> Option<ExitStatus> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let mut fields = stat.rsplit_once(") ")?.1.split_whitespace();
        let is_unreaped = fields.next()? == "Z";
        let status = fields.nth(48)?.parse().ok()?; // field 52; the state is field 3
        // Those who may not read it get 0.
        (is_unreaped && status != 0).then(|| ExitStatus::from_raw(status))
    }

    /// Returns the environment with which it was executed, and which it may have overwritten since;
    /// `None` if it is not readable.
    pub fn environment(&self) -> Option<Vec<OsString>> {
        let block = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let entries = block.split(|&byte| byte == 0).filter(|entry| !entry.is_empty());
        Some(entries.map(|entry| OsString::from_vec(entry.to_vec())).collect())
    }
}

/// Returns the parent of this process, its parent, and so on, within this pid namespace.
pub fn ancestors() -> impl Iterator<Item = Process> {
    let parent = Process::read(std::os::unix::process::parent_id());
    std::iter::successors(parent, |process| Process::read(process.parent)).take(ANCESTORS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_initial_environment() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("HERE", "a=b")
            .spawn()
            .expect("sleep");
        let process = Process::read(child.id()).expect("the child");
        assert_eq!((process.parent, process.pid), (std::process::id(), child.id()));
        let environment = || process.environment().expect("its environment");
        // The kernel wakes the parent of an exec before it stores the location of the environment.
        while environment().is_empty() {
            std::thread::yield_now();
        }
        assert!(environment().contains(&OsString::from("HERE=a=b")));
        assert_eq!(process.name, "sleep");
        let own = Process::read(std::process::id()).expect("this process");
        assert!(process.start_ticks >= own.start_ticks && own.start_ticks > 0);
        child.kill().and_then(|()| child.wait()).expect("its end");
        assert_eq!(Process::read(child.id()), None);
    }

    #[test]
    fn the_first_ancestor_is_the_parent() {
        let parent = ancestors().next().expect("a parent");
        assert_eq!(parent.pid, std::os::unix::process::parent_id());
    }
}
