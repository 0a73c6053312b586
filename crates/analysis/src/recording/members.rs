//! The files of a launch's members: each command that writes to a common recording has one, so that
//! none of them changes what another writes. The last one to end joins them in `recording.json`.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::metadata::{Member, Metadata};
use crate::error::Error;
use crate::files::directory::list;
use crate::files::draft::{self, Draft};
use crate::files::file_names::{MEMBER_SUFFIX, is_member};
use crate::files::json;

/// The largest file that is read, in bytes: a hundred thousand ends of processes.
const LIMIT: u64 = 16 << 20;
/// Members that have a file at once. A launch has fewer on one host.
const MEMBERS_MAX: u32 = 100_000;

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

fn files(directory: &Path) -> Vec<PathBuf> {
    let is_of_member =
        |path: &PathBuf| path.file_name().is_some_and(|name| is_member(&name.to_string_lossy()));
    list(directory).unwrap_or_default().into_iter().filter(is_of_member).collect()
}

/// Puts what the members know into `recording.json`, and removes their files; returns whether there
/// were any. No member may write meanwhile.
///
/// Errors: it cannot be read or written; the files stay then.
pub fn join(directory: &Path) -> Result<bool, Error> {
    let files = files(directory);
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
        metadata.unrecorded = first.unrecorded.clone();
    }
    metadata.write(directory)?;
    for file in files {
        let _ = fs::remove_file(file); // one that stays is read again, with the same content
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;
    use crate::recording::metadata::{Launch, Status, StatusKind, VERSION};

    fn member(root_pid: u32, started_realtime_ns: u64) -> Member {
        Member { root_pid, started_realtime_ns, ..Member::default() }
    }

    #[test]
    fn members_are_joined_once() {
        let place = Scratch::new("members");
        let launch = Some(Launch { key: "process 1.2".to_owned(), host: "here".to_owned() });
        let metadata = Metadata { version: VERSION, root_pid: 7, launch, ..Metadata::default() };
        metadata.write(&place).expect("to write");
        assert!(!join(&place).expect("nothing to join"));
        assert_eq!(add(&place, &member(7, 10)).expect("a file"), 0);
        assert_eq!(add(&place, &member(9, 30)).expect("a file"), 1);
        let mut ended = member(7, 10);
        ended.status = Some(Status { kind: StatusKind::Exited, code: 3 });
        replace(&place, 0, &ended).expect("to replace");
        fs::write(place.join("2.member"), "{\"root_pid\"").expect("a part of a file");
        let read = || Metadata::read(&place).expect("to read").expect("metadata");
        assert_eq!((read().members, read().status), (vec![ended.clone(), member(9, 30)], None));
        assert!(join(&place).expect("to join"));
        assert!(!place.join("0.member").exists() && !place.join("2.member").exists());
        assert_eq!(read().status, ended.status);
        // One that comes later, and one that is known already.
        assert_eq!(add(&place, &member(8, 20)).expect("a file"), 0);
        assert_eq!(add(&place, &ended).expect("a file"), 1);
        assert!(join(&place).expect("to join"));
        assert_eq!(read().members, [ended, member(8, 20), member(9, 30)]);
    }
}
