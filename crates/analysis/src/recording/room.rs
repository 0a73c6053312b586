//! Keeps the size of a recording on disk within its limit: removes files of processes that have
//! ended, the oldest first, and adds their totals to `removed.json`.
//!
//! Running processes, the one that was started directly, the newest, and those with requested
//! snapshots are kept. Failed processes whose last state was kept in a snapshot are removed last.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heaptide_format::{FileHeader, PROFILE_SUFFIX, TRACE_ON};
use rustc_hash::FxHashMap;

use super::ending::{self, Outside, noted as noted_end};
use super::removed::{self, Retired};
use super::ring::BLOCK_BYTES;
use super::snapshot::{Origin, noted};
use crate::error::Error;
use crate::files::file_names::{self, Image};
use crate::model::{End, Removed};
use crate::profile::reader;
use crate::symbols::Symbols;
use crate::tables::ending::Ending;
use crate::tables::process;

/// The name of snapshots of failed programs.
pub const FAILURE: &str = "failure";
/// Above its limit, a recording is reduced to this fraction of it: seven eighths.
const DOWN_TO: [u64; 2] = [7, 8];

/// A recording with a limit.
#[derive(Clone, Debug)]
pub struct Room {
    directory: PathBuf,
    limit_bytes: u64,
    /// The pid of the process that was started directly, in its own namespace.
    started: Option<u32>,
}

/// The size of a recording, and the number of removed images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Made {
    /// Size on disk in bytes after the removal.
    pub bytes: u64,
    /// Number of removed process images.
    pub images: u64,
}

/// The files of a process image.
#[derive(Debug, Default)]
struct Files {
    /// The profile, which is removed last.
    profile: Option<PathBuf>,
    others: Vec<PathBuf>,
    bytes: u64,
}

/// An image that can be removed.
struct Candidate {
    files: Files,
    /// Whether its last state was kept because it failed.
    has_failed: bool,
    start_realtime_ns: u64,
}

impl Room {
    /// Returns the recording in a directory, with the process that was started directly.
    pub fn new(directory: &Path, limit_bytes: u64, started: Option<u32>) -> Room {
        Room { directory: directory.to_owned(), limit_bytes, started }
    }

    /// Removes files of processes that have ended if the recording takes more than its limit.
    ///
    /// Errors: the recording cannot be listed, or a process cannot be counted or removed.
    ///
    /// ```
    /// use heaptide_analysis::recording::room::Room;
    /// let made = Room::new("src".as_ref(), u64::MAX, None).make().unwrap();
    /// assert_eq!(made.images, 0);
    /// ```
    pub fn make(&self) -> Result<Made, Error> {
        let (all, mut bytes) = self.files()?;
        let mut made = Made { bytes, images: 0 };
        if bytes <= self.limit_bytes {
            return Ok(made);
        }
        let enough = self.limit_bytes / DOWN_TO[1] * DOWN_TO[0];
        for candidate in self.candidates(all) {
            if bytes <= enough {
                break;
            }
            self.remove(&candidate.files)?;
            bytes = bytes.saturating_sub(candidate.files.bytes);
            made = Made { bytes, images: made.images + 1 };
        }
        Ok(made)
    }

    /// Returns the files of each image, and the size of all files.
    fn files(&self) -> Result<(FxHashMap<Image, Files>, u64), Error> {
        let io = |source| Error::Io { path: self.directory.clone(), doing: "read", source };
        let mut all: FxHashMap<Image, Files> = FxHashMap::default();
        let mut sum = 0;
        for entry in fs::read_dir(&self.directory).map_err(io)?.flatten() {
            let path = entry.path();
            let metadata = path.symlink_metadata().ok().filter(fs::Metadata::is_file);
            let Some(metadata) = metadata else { continue };
            let bytes = metadata.blocks() * BLOCK_BYTES;
            sum += bytes;
            let name = entry.file_name().to_string_lossy().into_owned();
            let image = Image::of(&path).filter(|image| image.run == 0);
            if let Some(image) = image.filter(|_| file_names::is_file_of_recording(&name)) {
                let files = all.entry(image).or_default();
                files.bytes += bytes;
                if name.ends_with(PROFILE_SUFFIX) {
                    files.profile = Some(path);
                } else {
                    files.others.push(path);
                }
            }
        }
        Ok((all, sum))
    }

    /// Returns the images that can be removed, in order of removal.
    fn candidates(&self, all: FxHashMap<Image, Files>) -> Vec<Candidate> {
        let header = |files: &Files| reader::read_header(files.profile.as_ref()?).ok();
        let headed = all.into_values().filter_map(|files| Some((header(&files)?, files)));
        let mut headed: Vec<(FileHeader, Files)> = headed.collect();
        headed.sort_by_key(|(header, _)| (header.start_realtime_ns, header.pid, header.image));
        headed.pop(); // the newest image is always kept
        let is_free = |(header, files): &(FileHeader, Files)| {
            Some(header.pid) != self.started && has_ended(header) && is_settled(header, files)
        };
        let free = headed.into_iter().filter(is_free);
        let mut found: Vec<Candidate> = free
            .filter_map(|(header, files)| Candidate::of(files, header.start_realtime_ns))
            .collect();
        found.sort_by_key(|candidate| (candidate.has_failed, candidate.start_realtime_ns));
        found
    }

    /// Counts an image and removes its files. The profile is removed last, because the other files
    /// are found through it.
    fn remove(&self, files: &Files) -> Result<(), Error> {
        let Some(profile) = &files.profile else { return Ok(()) };
        let name = profile.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let totals = totals(profile, files.bytes)?;
        removed::count_image(&self.directory, &Retired { name, totals })?;
        files.others.iter().chain([profile]).try_for_each(|file| removed::remove(file))
    }
}

impl Candidate {
    /// Returns `None` if a snapshot of it was requested.
    fn of(files: Files, start_realtime_ns: u64) -> Option<Candidate> {
        let mut has_failed = false;
        for file in &files.others {
            let Some((_, number)) = file_names::snapshot(file) else { continue };
            let header = reader::read_header(file).ok()?;
            let note = noted(&header, number)?;
            match note.origin {
                Origin::Automatic => {}
                Origin::Requested if note.name == FAILURE => has_failed = true,
                Origin::Requested => return None,
            }
        }
        Some(Candidate { files, has_failed, start_realtime_ns })
    }
}

/// Returns whether a process image has certainly ended.
fn has_ended(header: &FileHeader) -> bool {
    if noted_end(header).is_some() {
        return true;
    }
    // In another pid namespace, the pid does not refer to this process.
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino());
    let is_ours = namespace != 0 && header.pid_namespace == namespace;
    is_ours
        && header.process_start_ticks != 0
        && start_ticks(header.pid) != Some(header.process_start_ticks)
}

/// Returns whether no events are being moved out of a profile: it was not modified recently.
fn is_settled(header: &FileHeader, files: &Files) -> bool {
    const SETTLED: Duration = Duration::from_secs(5);
    let modified = || fs::metadata(files.profile.as_ref()?).and_then(|file| file.modified()).ok();
    let age = || modified()?.elapsed().ok();
    header.trace & TRACE_ON == 0 || age().is_some_and(|age| age >= SETTLED)
}

/// Returns the start of a process in clock ticks since boot; `None` if there is no such process.
fn start_ticks(pid: u32) -> Option<u64> {
    const FIELD: usize = 19; // of the fields after the name
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(FIELD)?.parse().ok()
}

/// Returns the totals of a process image, and the size of its files.
fn totals(profile: &Path, bytes: u64) -> Result<Removed, Error> {
    let parsed = reader::read(profile)?;
    let end = noted_end(&parsed.header).unwrap_or(End::Unknown);
    let ending = Ending {
        file: profile.to_owned(),
        run: None,
        end,
        is_requested: false,
        became_unrecorded: false,
        in_part: None,
        lasted: ending::lasted(&parsed, end, &Outside::default()),
        process_number: 0,
        execs: 0,
        part: None,
        notes: Vec::new(),
    };
    let totals = process::process(parsed, &Symbols::default(), ending).totals;
    Ok(Removed {
        images: 1,
        image_bytes: bytes,
        allocations: totals.allocations,
        frees: totals.frees,
        requested_bytes: totals.requested_bytes,
        live_bytes: totals.live_bytes,
        peak_bytes: totals.peak_bytes,
        ..Removed::default()
    })
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::{ProgramBuilder, Scratch};

    use super::*;
    use crate::recording::snapshot::take;

    /// Writes a profile of an ended process that allocated blocks of 100 bytes.
    fn ended(place: &Path, pid: u32, start_ns: u64, blocks: u64) -> PathBuf {
        let mut program = ProgramBuilder::new();
        for _ in 0..blocks {
            program.block("main", 100);
        }
        program.profile.header.pid = pid;
        program.profile.header.start_realtime_ns = start_ns;
        program.profile.header.end_kind = format_end();
        // It is written with names, which are not copied.
        let apart = Scratch::new(&format!("room-apart-{pid}-{start_ns}"));
        let written = program.write(&apart);
        let to = place.join(format!("{pid}-0.profile"));
        fs::copy(written, &to).expect("a copy");
        to
    }

    fn format_end() -> u32 {
        heaptide_format::End::Exited as u32
    }

    fn left(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).expect("the recording").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.filter(|name| name != "removed.json").collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_that_ended_make_room_and_are_counted() {
        let place = Scratch::new("room");
        for (pid, start, blocks) in [(1, 30, 3), (2, 10, 1), (3, 20, 2), (4, 40, 4)] {
            ended(&place, pid, start, blocks);
        }
        let (_, bytes) = Room::new(&place, 0, None).files().expect("files");
        assert_eq!(Room::new(&place, bytes, None).make().expect("room").images, 0, "it fits");
        // Four profiles of the same size. Without one, more than seven eighths of the limit remain.
        let made = Room::new(&place, bytes / 4 * 3, None).make().expect("room");
        assert_eq!((made.images, made.bytes), (2, bytes / 2));
        assert_eq!(left(&place), ["1-0.profile", "4-0.profile"]);
        let counted = removed::read(&place).expect("counts");
        assert_eq!((counted.images, counted.image_bytes), (2, bytes / 2));
        assert_eq!((counted.allocations, counted.requested_bytes), (3, 300));
        // The newest is kept even if the limit is smaller.
        let made = Room::new(&place, 1, None).make().expect("room");
        assert_eq!((made.images, left(&place)), (1, vec!["4-0.profile".to_owned()]));
        assert_eq!(removed::read(&place).expect("counts").allocations, 6);
    }

    #[test]
    fn what_runs_was_started_or_was_asked_for_stays() {
        let place = Scratch::new("room-kept");
        let kept = ended(&place, 1, 10, 1);
        take(&kept, "by hand", 0, Origin::Requested).expect("a snapshot");
        let failed = ended(&place, 2, 20, 1);
        take(&failed, FAILURE, 0, Origin::Requested).expect("a snapshot");
        ended(&place, 3, 30, 1);
        let plain = ended(&place, 4, 40, 1);
        take(&plain, "", 0, Origin::Automatic).expect("a snapshot");
        fs::write(place.join("4-0.trace"), "x").expect("a trace");
        ended(&place, 6, 60, 1);
        // A running process.
        let own = std::process::id();
        let running = ended(&place, own, 5, 1);
        let mut bytes = fs::read(&running).expect("the profile");
        let at = std::mem::offset_of!(FileHeader, end_kind);
        bytes[at..at + 4].fill(0);
        fs::write(&running, bytes).expect("the profile");
        let room = Room::new(&place, 1, Some(3));
        let made = room.make().expect("room");
        assert_eq!(made.images, 2, "the plain one, and last the one that failed");
        let mut expected = ["1-0.1.snapshot", "1-0.profile", "3-0.profile", "6-0.profile"]
            .map(str::to_owned)
            .to_vec();
        expected.push(format!("{own}-0.profile"));
        expected.sort();
        assert_eq!(left(&place), expected);
        assert_eq!(room.make().expect("room").images, 0);
    }
}
