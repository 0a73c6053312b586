//! `recording.json`: data of `heaptide run` that no profile contains.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::members;
pub use super::members::{ImageEnd, Launch, Member, OutOfMemory, Status, StatusKind};
use crate::error::Error;
use crate::files::file_names::METADATA_FILE;
use crate::files::json;

/// The version of its layout; later versions are rejected.
pub const VERSION: u32 = 1;
/// Maximum size in bytes: the command lines of ten thousand merged recordings.
const LIMIT: u64 = 256 << 20;

/// The content of `recording.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// The version of heaptide that wrote it.
    #[serde(default)]
    pub heaptide: String,
    /// The program and its arguments, as given.
    #[serde(default)]
    pub command: Vec<String>,
    /// The process id of the program that was started.
    pub root_pid: u32,
    /// How it ended; `None` while it runs.
    #[serde(default)]
    pub status: Option<Status>,
    /// When processes ended, as observed by `heaptide run`, for their last images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<ImageEnd>,
    /// What the kernel killed meanwhile because memory ran out; `None` if that is nothing or
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<OutOfMemory>,
    /// Why nothing of the started process was recorded; empty if it was recorded, or if the reason
    /// is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unrecorded: String,
    /// Which part of it was not recorded although it has a profile, and why; empty if nothing is
    /// known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub in_part: String,
    /// The launch whose commands write to the recording; `None` if there is only one command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// The programs that the commands of the launch started, in order of start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// Whether symbols are stored with the recording.
    #[serde(default)]
    pub sealed: bool,
    /// Time of sealing, nanoseconds since 1970-01-01 UTC; 0 if unknown.
    #[serde(default)]
    pub sealed_realtime_ns: u64,
    /// Images that still ran at that time, `PID-IMAGE`: functions that they reached later have no
    /// stored names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running_when_sealed: Vec<String>,
    /// The recordings that were merged into it: names of the first one's files begin with `r1-`, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<MergedRun>,
}

/// A recording that was merged into another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MergedRun {
    /// Its path when it was merged.
    pub recording: String,
    /// The program and its arguments, as given.
    #[serde(default)]
    pub command: Vec<String>,
    /// The process id of the program that was started; 0 if unknown.
    #[serde(default)]
    pub root_pid: u32,
    /// How it ended; `None` if it ran or the end is unknown.
    #[serde(default)]
    pub status: Option<Status>,
    /// When its processes ended, as [`Metadata::ends`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<ImageEnd>,
    /// The programs that were started, if a launch recorded it, as [`Metadata::members`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// The same as [`Metadata::in_part`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub in_part: String,
    /// When it was copied, nanoseconds since 1970-01-01 UTC.
    #[serde(default)]
    pub copied_realtime_ns: u64,
    /// Images that ran at that time, `PID-IMAGE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<String>,
}

impl Metadata {
    /// Reads the metadata of a recording, including the members that have files of their own;
    /// `None` if the recording has no such file.
    ///
    /// Errors: the file cannot be read, or has a later version. A member's file that cannot be read
    /// is skipped, because a command may be writing to it.
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

    /// Adds a member of the launch, or replaces the earlier data of it.
    fn add(&mut self, member: Member) {
        let identity = |member: &Member| (member.started_realtime_ns, member.root_pid);
        match self.members.binary_search_by_key(&identity(&member), identity) {
            Ok(index) => self.members[index] = member,
            Err(index) => self.members.insert(index, member),
        }
    }

    /// Writes the metadata of a recording, replacing the file atomically.
    pub fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = directory.join(METADATA_FILE);
        let text = serde_json::to_vec(self)
            .map_err(|source| Error::Json { path: path.clone(), source })?;
        json::replace(&path, &text)
    }
}

/// Joins the members' files in `recording.json` and removes them; returns whether there were any.
/// No member may write meanwhile.
///
/// Errors: the metadata cannot be read or written; then the files stay.
pub fn join_members(directory: &Path) -> Result<bool, Error> {
    let files = members::files(directory);
    if files.is_empty() {
        return Ok(false);
    }
    let Some(mut metadata) = Metadata::read(directory)? else {
        return Ok(false);
    };
    let first = metadata.members.iter().find(|member| member.root_pid == metadata.root_pid);
    if let Some(first) = first {
        metadata.status = first.status;
        metadata.ends = first.ends.clone();
        metadata.out_of_memory = first.out_of_memory;
        metadata.unrecorded = first.unrecorded.clone();
        metadata.in_part = first.in_part.clone();
    }
    metadata.write(directory)?;
    for file in files {
        let _ = fs::remove_file(file); // a file that stays is read again, with the same contents
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;

    fn member(root_pid: u32, started_realtime_ns: u64) -> Member {
        Member { root_pid, started_realtime_ns, ..Member::default() }
    }

    #[test]
    fn members_are_joined_once() {
        let place = Scratch::new("members");
        let launch = Some(Launch { key: "process 1.2".to_owned(), host: "here".to_owned() });
        let metadata = Metadata { version: VERSION, root_pid: 7, launch, ..Metadata::default() };
        metadata.write(&place).expect("to write");
        assert!(!join_members(&place).expect("nothing to join"));
        assert_eq!(members::add(&place, &member(7, 10)).expect("a file"), 0);
        assert_eq!(members::add(&place, &member(9, 30)).expect("a file"), 1);
        let mut ended = member(7, 10);
        ended.status = Some(Status { kind: StatusKind::Exited, code: 3 });
        members::replace(&place, 0, &ended).expect("to replace");
        fs::write(place.join("2.member"), "{\"root_pid\"").expect("a part of a file");
        let read = || Metadata::read(&place).expect("to read").expect("metadata");
        assert_eq!((read().members, read().status), (vec![ended.clone(), member(9, 30)], None));
        assert!(join_members(&place).expect("to join"));
        assert!(!place.join("0.member").exists() && !place.join("2.member").exists());
        assert_eq!(read().status, ended.status);
        // A later member, and a member that is already known.
        assert_eq!(members::add(&place, &member(8, 20)).expect("a file"), 0);
        assert_eq!(members::add(&place, &ended).expect("a file"), 1);
        assert!(join_members(&place).expect("to join"));
        assert_eq!(read().members, [ended, member(8, 20), member(9, 30)]);
    }
}
