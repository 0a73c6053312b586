//! The files of a launch's members: each command that writes to a common recording has one, so that
//! none of them changes what another writes. The last one to end joins them in `recording.json`.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::files::directory::list;
use crate::files::draft::{self, Draft};
use crate::files::file_names::{MEMBER_SUFFIX, is_member};
use crate::files::json;

/// The largest file that is read, in bytes: a hundred thousand ends of processes.
const LIMIT: u64 = 16 << 20;
/// Members that have a file at once. A launch has fewer on one host.
const MEMBERS_MAX: u32 = 100_000;

/// Several commands that one launcher started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Launch {
    /// The same for all its commands, and for no others.
    pub key: String,
    /// The host of those that write to the recording.
    pub host: String,
}

/// A program that a command of a launch started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Member {
    /// The process.
    pub root_pid: u32,
    /// When the command started it, nanoseconds since 1970-01-01 UTC.
    pub started_realtime_ns: u64,
    /// Its number among the ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The program and its arguments, as given.
    #[serde(default)]
    pub command: Vec<String>,
    /// How it ended; none while it runs, or if its command was killed.
    #[serde(default)]
    pub status: Option<Status>,
    /// When processes ended, as its command saw it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<ImageEnd>,
    /// Why nothing of it was recorded; empty if it was, or if nobody knows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unrecorded: String,
    /// What of it was not recorded although it has a profile, and why; empty if nothing is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub in_part: String,
}

/// How the started process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// By itself or not.
    pub kind: StatusKind,
    /// Exit status or number of the signal.
    pub code: i32,
}

/// What [`Status::code`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusKind {
    /// An exit status.
    Exited,
    /// A signal.
    Signaled,
}

/// When a process image ended, as `heaptide run` saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImageEnd {
    /// `PID-IMAGE`.
    pub image: String,
    /// Monotonic clock, nanoseconds: the clock of `start_monotonic_ns` in the profile.
    pub monotonic_ns: u64,
}

fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number}{MEMBER_SUFFIX}"))
}

fn encode(member: &Member, path: &Path) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(member).map_err(|source| Error::Json { path: path.to_owned(), source })
}

/// Gives a member a file, whole from the beginning, and returns its number.
///
/// Errors: it cannot be written, or there are too many members.
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

/// Replaces what is known of a member.
///
/// Errors: it cannot be written.
pub fn replace(directory: &Path, number: u32, member: &Member) -> Result<(), Error> {
    let path = path(directory, number);
    json::replace(&path, &encode(member, &path)?)
}

/// Removes a member whose program was not started.
///
/// Errors: it cannot be removed.
pub fn remove(directory: &Path, number: u32) -> std::io::Result<()> {
    fs::remove_file(path(directory, number))
}

/// Opens the file whose lock makes a member the one that does what one of them has to do.
///
/// Errors: there is no such file, or it may not be read.
pub fn open_first(directory: &Path) -> std::io::Result<File> {
    File::open(path(directory, 0))
}

/// All members that have files. One that cannot be read is left out.
pub(super) fn read(directory: &Path) -> Vec<Member> {
    let bytes = |path: PathBuf| json::read_if_there(&path, LIMIT).ok().flatten();
    let member = |bytes: Vec<u8>| serde_json::from_slice(&bytes).ok();
    files(directory).into_iter().filter_map(bytes).filter_map(member).collect()
}

/// The files of all members.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let is_of_member =
        |path: &PathBuf| path.file_name().is_some_and(|name| is_member(&name.to_string_lossy()));
    list(directory).unwrap_or_default().into_iter().filter(is_of_member).collect()
}
