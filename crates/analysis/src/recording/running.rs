//! Finds processes that write to a profile: those that have it mapped beyond its first page.
//!
//! A forked child without a recorder of its own keeps the first page of its parent's profile
//! mapped, and does not write to it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heaptide_format::{End, PAGE, PROFILE_SUFFIX};
use nix::errno::Errno;
use rustc_hash::FxHashMap;

use super::directory::profiles_in;
use crate::error::Error;
use crate::profile::reader;

/// A process that writes to a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Running {
    /// The pid as seen from here; it can differ inside a container.
    pub pid: u32,
    /// The profile.
    pub file: PathBuf,
}

impl Running {
    /// Returns whether the process still writes to the profile.
    ///
    /// ```
    /// use heaptide_analysis::recording::running::Running;
    /// let gone = Running { pid: u32::MAX, file: "12-0.profile".into() };
    /// assert!(!gone.is_there() && !gone.is_stopped());
    /// ```
    pub fn is_there(&self) -> bool {
        maps_file(self.pid, &self.file)
    }

    /// Returns whether the process is stopped by a signal or a debugger, so that it does not
    /// respond to requests.
    pub fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes());
        state.is_some_and(|state| state.starts_with(b"T") || state.starts_with(b"t"))
    }

    /// Returns its resident and virtual memory in bytes; `None` if it has ended.
    ///
    /// ```
    /// use heaptide_analysis::recording::running::Running;
    /// let me = Running { pid: std::process::id(), file: "12-0.profile".into() };
    /// let (resident, all) = me.memory().unwrap();
    /// assert!(0 < resident && resident < all);
    /// ```
    pub fn memory(&self) -> Option<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
            Some(kibibytes.saturating_mul(1024))
        };
        Some((bytes("VmRSS:")?, bytes("VmSize:")?))
    }
}

/// Returns the running processes of a recording, a directory or a single profile, in order of pid.
///
/// Errors: there is no such recording, or it cannot be read.
///
/// ```
/// use heaptide_analysis::recording::running;
/// assert!(running::of_recording("missing.heaptide".as_ref()).is_err());
/// ```
pub fn of_recording(path: &Path) -> Result<Vec<Running>, Error> {
    let kind = fs::metadata(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => Error::Missing { path: path.to_owned() },
        _ => Error::Io { path: path.to_owned(), doing: "read", source },
    })?;
    let files = if kind.is_dir() { profiles_in(path)? } else { vec![path.to_owned()] };
    Ok(among(files))
}

/// Returns the running processes of the images with these profiles, in order of pid. Inspects all
/// processes.
///
/// ```
/// use heaptide_analysis::recording::running;
/// assert!(running::among(["missing.heaptide/12-0.profile".into()]).is_empty());
/// ```
pub fn among(files: impl IntoIterator<Item = PathBuf>) -> Vec<Running> {
    let mut by_inode: FxHashMap<String, PathBuf> = FxHashMap::default();
    for file in files {
        if let Ok(inode) = fs::metadata(&file).map(|m| m.ino().to_string()) {
            by_inode.insert(inode, file);
        }
    }
    let mut running = Vec::new();
    for pid in pids() {
        let maps = maps(pid).unwrap_or_default();
        let lines = maps.lines().filter(|line| is_of_profile(line));
        let file = |line| by_inode.get(inode(line)?).filter(|file| names(line, file));
        if let Some(file) = lines.filter_map(file).next() {
            running.push(Running { pid, file: file.clone() });
        }
    }
    running.sort_by_key(|r| r.pid);
    running
}

/// Returns the profile that a process writes to; `None` if it is not recorded, or the file is not
/// accessible.
///
/// Errors: there is no such process, or it may not be inspected.
///
/// ```
/// use heaptide_analysis::recording::running;
/// assert!(running::of_process(std::process::id()).unwrap().is_none());
/// ```
pub fn of_process(pid: u32) -> Result<Option<Running>, std::io::Error> {
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    let file = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let inode = inode(&text).filter(|_| is_of_profile(&text))?;
        let path = &line[line.iter().position(|&byte| byte == b'/')?..];
        // The path can contain the characters of the escape itself.
        let paths =
            [unescaped(path), path.to_vec()].map(|path| PathBuf::from(OsString::from_vec(path)));
        // A process in a container has the file below another root.
        let beyond = |path: &PathBuf| {
            PathBuf::from(format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(path))
        };
        let beyond = paths.each_ref().map(beyond);
        let mut places = paths.into_iter().chain(beyond);
        places.find(|place| fs::metadata(place).is_ok_and(|m| m.ino().to_string() == inode))
    };
    let mut files = maps.split(|&byte| byte == b'\n').filter_map(file);
    Ok(files.next().map(|file| Running { pid, file }))
}

/// Returns the running recorded program whose process id was given instead of a path; `None` if the
/// path is not a number, or a file of that name exists.
///
/// Errors: there is no such process, it may not be inspected, or it is not being recorded.
///
/// ```
/// use heaptide_analysis::recording::running;
/// assert!(running::by_id("app.heaptide".as_ref()).unwrap().is_none());
/// let error = running::by_id("4294967295".as_ref()).unwrap_err().to_string();
/// assert_eq!(error, "4294967295: no such process, and no recording of this name");
/// ```
pub fn by_id(path: &Path) -> Result<Option<Running>, Error> {
    let is_number = |name: &&str| name.bytes().all(|byte| byte.is_ascii_digit());
    let number = path.to_str().filter(is_number).and_then(|name| name.parse().ok());
    let Some(pid) = number.filter(|_| path.symlink_metadata().is_err()) else {
        return Ok(None);
    };
    let found = of_process(pid).map_err(|source| match source.kind() {
        ErrorKind::NotFound => Error::NoProcess { pid },
        _ => Error::Hidden { pid, source },
    })?;
    found.map(Some).ok_or(Error::NotRecorded { pid })
}

/// Returns whether a command detached from a process and so ended its recording; `pid` is the one
/// that the process sees. Looks at its images up to the first one that cannot be read.
///
/// ```
/// use heaptide_analysis::recording::running;
/// assert!(!running::is_detached("missing.heaptide".as_ref(), 12));
/// ```
pub fn is_detached(recording: &Path, pid: u32) -> bool {
    let file = |image: u32| recording.join(format!("{pid}-{image}{PROFILE_SUFFIX}"));
    let mut headers = (0..).map_while(|image| reader::read_header(&file(image)).ok());
    headers.any(|header| header.end_kind == End::Detached as u32)
}

/// Returns the root directories, as `/proc/PID/root`, of the processes that write to a recording
/// and have a different file system root, as in a container.
pub(crate) fn other_roots(recording: &Path) -> Vec<PathBuf> {
    let view = |process: &str| {
        let root = fs::metadata(Path::new("/proc").join(process).join("root").join(".")).ok()?;
        let namespace = fs::read_link(format!("/proc/{process}/ns/mnt")).ok()?;
        Some((root.dev(), root.ino(), namespace))
    };
    let mut seen = vec![view("self")];
    let mut roots = Vec::new();
    for running in of_recording(recording).unwrap_or_default() {
        let view = view(&running.pid.to_string());
        if view.is_some() && !seen.contains(&view) {
            seen.push(view);
            roots.push(PathBuf::from(format!("/proc/{}/root", running.pid)));
        }
    }
    roots
}

/// Returns whether a process that began at this time, in clock ticks since boot, exists, but
/// belongs to another user, so that its mappings are hidden.
///
/// ```
/// use heaptide_analysis::recording::running;
/// assert!(!running::is_hidden(std::process::id(), 0));
/// ```
pub fn is_hidden(pid: u32, began_ticks: u64) -> bool {
    let maps = || fs::File::open(format!("/proc/{pid}/maps"));
    let is_refused = |error: io::Error| error.kind() == ErrorKind::PermissionDenied;
    began_ticks != 0 && start_ticks(pid) == Some(began_ticks) && maps().is_err_and(is_refused)
}

/// Returns the start of a process in clock ticks since boot; `None` if it has ended.
///
/// ```
/// use heaptide_analysis::recording::running;
/// assert!(running::start_ticks(std::process::id()).unwrap() > 0);
/// ```
pub fn start_ticks(pid: u32) -> Option<u64> {
    const PLACE: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(PLACE)?.parse().ok()
}

/// Returns the mappings of a process. Names of mapped files need not be UTF-8.
fn maps(pid: u32) -> io::Result<String> {
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(String::from_utf8_lossy(&maps).into_owned())
}

/// Decodes a path of `/proc/PID/maps`, which has line breaks as `\012`.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(path.len()), path);
    while let [first, after @ ..] = rest {
        let (byte, after) = match rest.strip_prefix(b"\\012") {
            Some(after) => (b'\n', after),
            None => (*first, after),
        };
        plain.push(byte);
        rest = after;
    }
    plain
}

/// Returns whether a live process has this profile mapped beyond its first page. Unlike pids, files
/// are not reused. If this command has no descriptor to find out, a process that exists counts as
/// one that does.
pub(crate) fn maps_file(pid: u32, file: &Path) -> bool {
    let Ok(number) = fs::metadata(file).map(|m| m.ino().to_string()) else {
        return false;
    };
    let maps = match maps(pid) {
        Ok(maps) => maps,
        Err(error) => return has_no_descriptor(&error) && process_exists(pid),
    };
    let is_of_file = |line| inode(line) == Some(number.as_str()) && names(line, file);
    maps.lines().any(|line| is_of_file(line) && is_beyond_first_page(line))
}

/// Returns whether any accessible process has this profile mapped.
pub(crate) fn anyone_maps_file(file: &Path) -> bool {
    pids().any(|pid| maps_file(pid, file))
}

fn has_no_descriptor(error: &io::Error) -> bool {
    let limits = [Errno::EMFILE, Errno::ENFILE].map(|limit| limit as i32);
    error.raw_os_error().is_some_and(|number| limits.contains(&number))
}

fn process_exists(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok() // needs no descriptor
}

fn pids() -> impl Iterator<Item = u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|e| e.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok())
}

/// Returns whether a line of `/proc/PID/maps` is that of a profile that the process writes to.
fn is_of_profile(line: &str) -> bool {
    line.ends_with(PROFILE_SUFFIX) && is_beyond_first_page(line)
}

/// Returns whether a mapping covers more of its file than the first page.
fn is_beyond_first_page(line: &str) -> bool {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut fields = line.split_ascii_whitespace();
    let range = fields.next().and_then(|range| range.split_once('-'));
    let length = range.and_then(|(from, to)| number(to)?.checked_sub(number(from)?));
    let offset = fields.nth(1).and_then(number);
    length.is_some_and(|length| length > PAGE) || offset.is_some_and(|offset| offset > 0)
}

/// Returns the inode in a line of `/proc/PID/maps`.
fn inode(line: &str) -> Option<&str> {
    line.split_ascii_whitespace().nth(4)
}

/// Returns whether the path in the line ends with the name of this file.
fn names(line: &str, file: &Path) -> bool {
    line.ends_with(file.file_name().unwrap_or_default().to_string_lossy().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_is_told_from_others() {
        let me = std::process::id();
        assert!(maps_file(me, &std::env::current_exe().unwrap()));
        assert!(!maps_file(me, Path::new("/proc/self/status")));
        assert!(!maps_file(u32::MAX, &std::env::current_exe().unwrap()));
    }

    #[test]
    fn line_breaks_in_paths() {
        assert_eq!(unescaped(b"/a\\012b/\xff\\01"), b"/a\nb/\xff\\01");
    }

    #[test]
    fn who_is_not_there_is_an_error() {
        assert!(of_process(u32::MAX).is_err());
        assert_eq!(of_process(std::process::id()).unwrap(), None);
    }
}
