//! Rings of snapshots. Of the snapshots taken at an interval or by a trigger, the newest are kept
//! and older ones are removed. Snapshots that a user or the program requested are all kept.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::removed::{Doomed, remove_snapshots};
use super::snapshot::{Noted, Origin, noted};
use crate::error::Error;
use crate::files::file_names::{self, Image};
use crate::profile::reader;

/// Size in bytes of a block in [`MetadataExt::blocks`].
pub(super) const BLOCK_BYTES: u64 = 512;

/// Limits of a ring; `None` if a limit is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    /// Maximum number for each name and process image; the newest are kept.
    pub count: Option<u32>,
    /// Maximum age.
    pub age: Option<Duration>,
    /// Maximum size on disk of all snapshots, in bytes: the oldest are removed first.
    pub bytes: Option<u64>,
}

impl Keep {
    /// Returns whether any limit is set.
    pub fn is_limited(&self) -> bool {
        *self != Keep::default()
    }
}

/// A snapshot that may be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Member {
    file: OsString,
    image: Image,
    number: u32,
    /// The name of the interval or trigger.
    name: String,
    /// When it was taken, nanoseconds since 1970-01-01 UTC.
    taken_ns: u64,
}

/// The ring of a recording.
#[derive(Debug)]
pub struct Ring {
    directory: PathBuf,
    keep: Keep,
    /// Snapshots already read, by file name; `None` for a snapshot that is always kept.
    known: FxHashMap<OsString, Option<Member>>,
}

impl Ring {
    /// Returns the ring of the recording in a directory.
    pub fn new(directory: &Path, keep: Keep) -> Ring {
        Ring { directory: directory.to_owned(), keep, known: FxHashMap::default() }
    }

    /// Removes the snapshots beyond the limits at this time, in nanoseconds since 1970-01-01 UTC,
    /// and counts them in `removed.json`; returns their number. The newest snapshot of each process
    /// image is kept.
    ///
    /// Errors: the recording cannot be listed, or a snapshot cannot be counted or removed.
    ///
    /// ```
    /// use heaptide_analysis::recording::ring::{Keep, Ring};
    /// let keep = Keep { count: Some(2), ..Keep::default() };
    /// assert_eq!(Ring::new("src".as_ref(), keep).tidy(0).unwrap(), 0);
    /// ```
    pub fn tidy(&mut self, now_ns: u64) -> Result<usize, Error> {
        if !self.keep.is_limited() {
            return Ok(0);
        }
        let all = self.look()?;
        let doomed: Vec<Doomed> =
            excess(&all, &self.keep, now_ns).into_iter().map(doomed).collect();
        remove_snapshots(&self.directory, &doomed)?;
        Ok(doomed.len())
    }

    /// Returns the snapshots that can be removed, with their sizes on disk.
    fn look(&mut self) -> Result<Vec<(Member, u64)>, Error> {
        let io = |source| Error::Io { path: self.directory.clone(), doing: "read", source };
        let mut there = FxHashSet::default();
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(io)?.flatten() {
            let (file, path) = (entry.file_name(), entry.path());
            // Links are skipped: their targets do not belong to the recording.
            let metadata = path.symlink_metadata().ok().filter(fs::Metadata::is_file);
            let Some(metadata) = metadata.filter(|_| file_names::snapshot(&path).is_some()) else {
                continue;
            };
            let known = self.known.entry(file.clone()).or_insert_with(|| Member::of(&path));
            let bytes = metadata.blocks() * BLOCK_BYTES;
            all.extend(known.clone().map(|member| (member, bytes)));
            there.insert(file);
        }
        self.known.retain(|file, _| there.contains(file));
        Ok(all)
    }
}

impl Member {
    /// Returns the snapshot in a file, if a ring may remove it.
    fn of(file: &Path) -> Option<Member> {
        let (image, number) = file_names::snapshot(file)?;
        let header = reader::read_header(file).ok()?;
        let Noted { name, time_ns, origin } = noted(&header, number)?;
        let is_own = image.run == 0 && origin == Origin::Automatic;
        is_own.then(|| Member {
            file: file.file_name().unwrap_or_default().to_owned(),
            image,
            number,
            name,
            taken_ns: header.start_realtime_ns.saturating_add(time_ns),
        })
    }
}

fn doomed((member, bytes): &(Member, u64)) -> Doomed {
    Doomed { name: member.file.to_string_lossy().into_owned(), bytes: *bytes }
}

/// Returns the snapshots beyond the limits.
fn excess<'a>(all: &'a [(Member, u64)], keep: &Keep, now_ns: u64) -> Vec<&'a (Member, u64)> {
    let mut newest: FxHashMap<Image, u32> = FxHashMap::default();
    for (member, _) in all {
        let number = newest.entry(member.image).or_default();
        *number = member.number.max(*number);
    }
    let mut newest_first: Vec<&(Member, u64)> = all.iter().collect();
    newest_first.sort_by_key(|(member, _)| std::cmp::Reverse((member.taken_ns, member.number)));
    let age_ns = keep.age.map(|age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
    let (mut counts, mut bytes_kept) = (FxHashMap::default(), 0u64);
    let mut is_full = false;
    newest_first.retain(|(member, bytes)| {
        let count: &mut u32 = counts.entry((member.image, &*member.name)).or_default();
        *count += 1;
        let is_one_too_many = keep.count.is_some_and(|most| *count > most);
        let is_old = age_ns.is_some_and(|age| member.taken_ns.saturating_add(age) < now_ns);
        let is_last = newest.get(&member.image) == Some(&member.number);
        if !is_last && (is_one_too_many || is_old || is_full) {
            return true;
        }
        let sum = bytes_kept.saturating_add(*bytes);
        // Everything older than the first snapshot that does not fit is removed, too.
        is_full |= keep.bytes.is_some_and(|most| sum > most);
        if is_full && !is_last {
            return true;
        }
        bytes_kept = sum;
        false
    });
    newest_first
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::{ProgramBuilder, Scratch};

    use super::*;
    use crate::recording::removed;
    use crate::recording::snapshot::{self, take};

    const SECOND: u64 = 1_000_000_000;

    fn member(pid: u32, number: u32, name: &str, seconds: u64) -> (Member, u64) {
        let image = Image { run: 0, pid, image: 0 };
        let file = OsString::from(format!("{pid}-0.{number}.snapshot"));
        let (name, taken_ns) = (name.to_owned(), seconds * SECOND);
        (Member { file, image, number, name, taken_ns }, 100)
    }

    fn removed(all: &[(Member, u64)], keep: Keep, seconds: u64) -> Vec<String> {
        let found = excess(all, &keep, seconds * SECOND);
        let mut names: Vec<String> =
            found.iter().map(|(m, _)| m.file.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn four() -> Vec<(Member, u64)> {
        (1..5).map(|number| member(7, number, "", u64::from(number))).collect()
    }

    #[test]
    fn the_oldest_beyond_a_count_go_for_each_process_and_trigger() {
        let mut all = four();
        all.extend([member(7, 5, "live=1G", 0), member(8, 1, "", 0), member(8, 2, "", 9)]);
        let keep = Keep { count: Some(1), ..Keep::default() };
        // The newest of process 7 by number is that of the trigger, and is kept.
        let expected = ["7-0.1.snapshot", "7-0.2.snapshot", "7-0.3.snapshot", "8-0.1.snapshot"];
        assert_eq!(removed(&all, keep, 100), expected);
        assert_eq!(removed(&four(), Keep { count: Some(4), ..keep }, 100), [""; 0]);
    }

    #[test]
    fn those_of_some_age_go_but_for_the_newest() {
        let keep = Keep { age: Some(Duration::from_secs(10)), ..Keep::default() };
        assert_eq!(removed(&four(), keep, 11), [""; 0]);
        assert_eq!(removed(&four(), keep, 13), ["7-0.1.snapshot", "7-0.2.snapshot"]);
        assert_eq!(removed(&four(), keep, 1000).len(), 3);
    }

    #[test]
    fn the_oldest_go_that_do_not_fit() {
        let keep = |bytes| Keep { bytes: Some(bytes), ..Keep::default() };
        assert_eq!(removed(&four(), keep(400), 9), [""; 0]);
        assert_eq!(removed(&four(), keep(250), 9), ["7-0.1.snapshot", "7-0.2.snapshot"]);
        assert_eq!(removed(&four(), keep(1), 9).len(), 3, "the newest stays");
        // A large snapshot is removed together with older ones that would fit.
        let mut all = four();
        all[2].1 = 300;
        assert_eq!(removed(&all, keep(250), 9).len(), 3);
    }

    #[test]
    fn only_snapshots_that_nobody_asked_for_are_removed() {
        let place = Scratch::new("ring");
        let profile = ProgramBuilder::with_stacks(&["main"]).write(&place);
        let at = |number| number * SECOND;
        for (time, origin) in [
            (1, Origin::Automatic),
            (2, Origin::Requested),
            (3, Origin::Automatic),
            (4, Origin::Automatic),
        ] {
            take(&profile, "", at(time), origin).expect("a snapshot");
        }
        let (first, third) = (file(&profile, 1), file(&profile, 3));
        // A link, and files that only have the name of a snapshot.
        std::os::unix::fs::symlink(&third, place.join("9-0.1.snapshot")).expect("a link");
        fs::write(place.join("9-0.2.snapshot"), "x").expect("a file");
        fs::copy(&first, place.join("9-0.3.snapshot")).expect("a copy of another number");
        let mut ring = Ring::new(&place, Keep { count: Some(1), ..Keep::default() });
        assert_eq!(ring.tidy(at(100)).expect("tidy"), 2);
        assert!(!first.exists() && !third.exists());
        let left = snapshot::all(&place).expect("snapshots");
        let numbers: Vec<_> = left.iter().filter(|s| s.pid != 9).map(|s| s.number).collect();
        assert_eq!(numbers, [2, 4]);
        let others = (1..4).map(|number| place.join(format!("9-0.{number}.snapshot")));
        assert!(others.into_iter().all(|other| other.symlink_metadata().is_ok()));
        assert_eq!(removed::read(&place).expect("counts").snapshots, 2);
        assert_eq!(ring.tidy(at(100)).expect("tidy"), 0);
        // Numbers are not reused.
        let (number, _) = take(&profile, "", at(5), Origin::Automatic).expect("a snapshot");
        assert_eq!((number, ring.tidy(at(100)).expect("tidy")), (5, 1));
    }

    fn file(profile: &Path, number: u32) -> PathBuf {
        profile.with_extension(format!("{number}.snapshot"))
    }
}
