//! `recording.json`: what `heaptide run` knows and no profile does.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::members;
use crate::error::Error;
use crate::files::file_names::METADATA_FILE;
use crate::files::json;

/// The version of its layout; larger ones are refused.
pub const VERSION: u32 = 1;
/// The largest file that is read, in bytes: the command lines of ten thousand merged recordings.
const LIMIT: u64 = 256 << 20;

/// The content of `recording.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// The heaptide that wrote it.
    #[serde(default)]
    pub heaptide: String,
    /// The program and its arguments, as given.
    #[serde(default)]
    pub command: Vec<String>,
    /// The process that was started.
    pub root_pid: u32,
    /// How it ended; none while it runs.
    #[serde(default)]
    pub status: Option<Status>,
    /// When processes ended, as `heaptide run` saw it: their last images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<ImageEnd>,
    /// Why nothing of the started process was recorded; empty if it was, or if nobody knows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unrecorded: String,
    /// The launch of which any command writes to the recording; none if one command alone does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// The programs that the commands of the launch started, in order of start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// Whether symbols are stored with the recording.
    #[serde(default)]
    pub sealed: bool,
    /// When they were stored, nanoseconds since 1970-01-01 UTC; 0 if that is not known.
    #[serde(default)]
    pub sealed_realtime_ns: u64,
    /// Images that still ran then, `PID-IMAGE`: functions that they reached later have no stored
    /// names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running_when_sealed: Vec<String>,
    /// The recordings that were merged into it: files of the first begin with `r1-`, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<MergedRun>,
}

/// When a process image ended, as `heaptide run` saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImageEnd {
    /// `PID-IMAGE`.
    pub image: String,
    /// Monotonic clock, nanoseconds: the clock of `start_monotonic_ns` in the profile.
    pub monotonic_ns: u64,
}

/// A recording that was merged into another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MergedRun {
    /// What it was called.
    pub recording: String,
    /// The program and its arguments, as given.
    #[serde(default)]
    pub command: Vec<String>,
    /// The process that was started; 0 if nobody noted it.
    #[serde(default)]
    pub root_pid: u32,
    /// How it ended; none if it ran or nobody noted it.
    #[serde(default)]
    pub status: Option<Status>,
    /// When its processes ended, as in [`Metadata::ends`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<ImageEnd>,
    /// The programs that were started, if a launch recorded it, as in [`Metadata::members`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// When it was copied, nanoseconds since 1970-01-01 UTC.
    #[serde(default)]
    pub copied_realtime_ns: u64,
    /// Images that ran then: `PID-IMAGE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<String>,
}

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

impl Metadata {
    /// Reads it from a recording's directory, with the members that have files of their own; none
    /// if the recording has no such file.
    ///
    /// Errors: the file cannot be read, or is of a later version. A member's file that cannot be
    /// read is left out: a command writes to it.
    pub fn read(directory: &Path) -> Result<Option<Metadata>, Error> {
        let path = directory.join(METADATA_FILE);
        let Some(bytes) = json::read_if_there(&path, LIMIT)? else {
            return Ok(None);
        };
        json::check_version(&path, &bytes, VERSION)?;
        let mut metadata: Metadata =
            serde_json::from_slice(&bytes).map_err(|source| Error::Json { path, source })?;
        if metadata.launch.is_some() {
            members::read(directory).into_iter().for_each(|member| metadata.add(member));
        }
        Ok(Some(metadata))
    }

    /// Adds a member of the launch, in the place of what was known of it.
    fn add(&mut self, member: Member) {
        let identity = |member: &Member| (member.started_realtime_ns, member.root_pid);
        match self.members.binary_search_by_key(&identity(&member), identity) {
            Ok(index) => self.members[index] = member,
            Err(index) => self.members.insert(index, member),
        }
    }

    /// Writes it into a recording's directory, replacing what is there in one step.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = directory.join(METADATA_FILE);
        let text = serde_json::to_vec(self)
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        json::replace(&path, &text)
    }
}
