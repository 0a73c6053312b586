//! The files of a launch's members. Each command that writes to a common recording has a file of
//! its own, so that commands do not change each other's data. The last one to end joins the files
//! in `recording.json`.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::files::directory::list;
use crate::files::draft::{self, Draft};
use crate::files::file_names::{MEMBER_SUFFIX, is_member};
use crate::files::json;
pub use crate::model::OutOfMemory;

/// Maximum size of a file in bytes: a hundred thousand ends of processes.
const LIMIT: u64 = 16 << 20;
/// Maximum number of members with a file. A launch has fewer on a single host.
const MEMBERS_MAX: u32 = 100_000;

/// A group of commands that one launcher started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Launch {
    /// Key of the launch, shared by its commands and unique.
    pub key: String,
    /// The host of the commands that write to the recording.
    pub host: String,
}

/// A program that a command of a launch started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Member {
    /// The process id.
    pub root_pid: u32,
    /// When the command started it, nanoseconds since 1970-01-01 UTC.
    pub started_realtime_ns: u64,
    /// Its rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The program and its arguments, as given.
    #[serde(default)]
    pub command: Vec<String>,
    /// How it ended; `None` while it runs, or if its command was killed.
    #[serde(default)]
    pub status: Option<Status>,
    /// When processes ended, as observed by its command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<ImageEnd>,
    /// What the kernel killed meanwhile because memory ran out; `None` if that is nothing or
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<OutOfMemory>,
    /// Why nothing of it was recorded; empty if it was recorded, or if the reason is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unrecorded: String,
    /// Which part of it was not recorded although it has a profile, and why; empty if nothing is
    /// known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub in_part: String,
}

/// How the started process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Whether it exited or was killed by a signal.
    pub kind: StatusKind,
    /// Exit status or number of the signal.
    pub code: i32,
}

/// The meaning of [`Status::code`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusKind {
    /// An exit status.
    Exited,
    /// A signal.
    Signaled,
}

/// When a process image ended, as observed by `heaptide run`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImageEnd {
    /// `PID-IMAGE`.
    pub image: String,
    /// Monotonic clock, nanoseconds: the clock of `start_monotonic_ns` in the profile.
    pub monotonic_ns: u64,
    /// The status of its process, if the command knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number}{MEMBER_SUFFIX}"))
}

fn encode(member: &Member, path: &Path) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(member).map_err(|source| Error::Json { path: path.to_owned(), source })
}

/// Creates the file of a member atomically and returns its number.
///
/// Errors: the file cannot be written, or there are too many members.
pub fn add(directory: &Path, member: &Member) -> Result<u32, Error> {
    for number in 0..MEMBERS_MAX {
        let path = path(directory, number);
        if path.exists() {
            continue;
        }
        let bytes = encode(member, &path)?;
        let write = || {
            let draft = Draft::of(&path, draft::OPEN)?;
            draft.file().write_all(&bytes)?;
            draft.take(&path)
        };
        if write().map_err(|source| Error::Io { path: path.clone(), doing: "write", source })? {
            return Ok(number);
        }
    }
    let source = std::io::Error::other(format!("{MEMBERS_MAX} commands write to it already"));
    Err(Error::Io { path: directory.to_owned(), doing: "join", source })
}

/// Replaces the file of a member.
///
/// Errors: the file cannot be written.
pub fn replace(directory: &Path, number: u32, member: &Member) -> Result<(), Error> {
    let path = path(directory, number);
    json::replace(&path, &encode(member, &path)?)
}

/// Removes a member whose program was not started.
///
/// Errors: the file cannot be removed.
pub fn remove(directory: &Path, number: u32) -> std::io::Result<()> {
    fs::remove_file(path(directory, number))
}

/// Opens the file whose lock selects the member that does the common work of the launch.
///
/// Errors: the file does not exist, or may not be read.
pub fn open_first(directory: &Path) -> std::io::Result<File> {
    File::open(path(directory, 0))
}

/// Reads all members. Unreadable files are skipped.
pub(super) fn read(directory: &Path) -> Vec<Member> {
    let bytes = |path: PathBuf| json::read_if_there(&path, LIMIT).ok().flatten();
    let member = |bytes: Vec<u8>| serde_json::from_slice(&bytes).ok();
    files(directory).into_iter().filter_map(bytes).filter_map(member).collect()
}

/// Returns the files of all members.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let is_of_member =
        |path: &PathBuf| path.file_name().is_some_and(|name| is_member(&name.to_string_lossy()));
    list(directory).unwrap_or_default().into_iter().filter(is_of_member).collect()
}
