//! Finds process images when a directory has changed, and observes them until they have ended.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use heaptide_analysis::Error;
use heaptide_analysis::files::input;
use heaptide_analysis::recording::images::{self, ImageSummary};
use heaptide_analysis::recording::profiles_in;
use heaptide_analysis::recording::running::{self, Running};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::target::{Target, directory_of};

/// The maps of all processes of the machine are searched for profiles so often at most: their
/// processes have other ids here, as in containers, or none any more.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// A directory is listed again as long as it has changed within this time.
const RECENT: Duration = Duration::from_secs(2);
/// A profile that nobody writes to for so long is taken for that of a killed process.
const OVER_AFTER: Duration = Duration::from_secs(60);

/// A process image that writes to its profile.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// A number that no other has.
    pub(crate) number: u64,
    pub(crate) running: Running,
    pub(crate) summary: ImageSummary,
    /// Its recording.
    pub(crate) recording: PathBuf,
}

/// Images that began or ended since the last look.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Images that are running and were not known.
    pub(crate) began: Vec<Image>,
    /// The numbers of images that have ended.
    pub(crate) ended: Vec<u64>,
}

/// Looks for process images again and again.
pub(crate) struct Watch {
    targets: Vec<Target>,
    recordings: FxHashMap<PathBuf, Stamp>,
    profiles: FxHashMap<PathBuf, Profile>,
    next_number: u64,
    searched: Option<Instant>,
    /// Why targets cannot be read, as found by the last look.
    failures: Vec<String>,
}

/// Changes when files of a directory come or go, or it is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    inode: u64,
    modified: (i64, i64),
}

struct Profile {
    inode: u64,
    /// When it was seen first.
    found: Instant,
    /// When its image started, nanoseconds since 1970-01-01 UTC; none if it has not been seen
    /// running.
    start_realtime_ns: Option<u64>,
    state: State,
}

enum State {
    /// Nobody is known to write to it yet.
    New,
    /// The number of its image.
    Running(u64, Running),
    Over,
}

impl Watch {
    /// Of these targets; nothing is looked at yet.
    pub(crate) fn new(targets: Vec<Target>) -> Watch {
        Watch {
            targets,
            recordings: FxHashMap::default(),
            profiles: FxHashMap::default(),
            next_number: 0,
            searched: None,
            failures: Vec::new(),
        }
    }

    /// Why some of the targets cannot be read, a line each; empty if all can.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// How many recordings there are.
    pub(crate) fn recordings(&self) -> usize {
        self.recordings.len()
    }

    /// Looks for images that began or ended.
    pub(crate) fn look(&mut self) -> Changes {
        let mut changes = Changes::default();
        self.list();
        self.end(&mut changes);
        self.begin(&mut changes);
        self.note_ended_processes();
        changes
    }

    /// Finds the recordings and, of those that have changed, the profiles.
    fn list(&mut self) {
        self.failures.clear();
        let mut there = FxHashSet::default();
        for target in &self.targets {
            match target.recordings() {
                Ok(recordings) => {
                    for recording in recordings {
                        match stamp(&recording) {
                            Some(_) => _ = there.insert(recording),
                            None if target.is_one() => {
                                let path = recording;
                                self.failures.push(Error::Missing { path }.to_string());
                            }
                            None => {}
                        }
                    }
                }
                Err(error) => self.failures.push(error.to_string()),
            }
        }
        self.recordings.retain(|path, _| there.contains(path));
        // Images that run are followed to their end by what was opened of them.
        self.profiles.retain(|file, profile| {
            matches!(profile.state, State::Running(..))
                || file.parent().is_some_and(|parent| there.contains(parent))
        });
        for recording in there {
            let Some(now) = stamp(&recording) else { continue };
            if self.recordings.get(&recording) != Some(&now) {
                let is_settled = self.list_profiles(&recording) && !now.is_recent();
                self.recordings.insert(recording, if is_settled { now } else { Stamp::NONE });
            }
        }
    }

    /// Finds the profiles of a recording; whether they need no other look until it changes.
    fn list_profiles(&mut self, recording: &Path) -> bool {
        let files = match profiles_in(recording) {
            Ok(files) => files,
            Err(Error::NoProfiles { .. } | Error::Missing { .. }) => Vec::new(), // not yet
            Err(error) => {
                self.failures.push(error.to_string());
                return false;
            }
        };
        let there: FxHashSet<&PathBuf> = files.iter().collect();
        self.profiles.retain(|file, profile| {
            matches!(profile.state, State::Running(..))
                || file.parent() != Some(recording)
                || there.contains(file)
        });
        let mut is_settled = true;
        for file in files {
            let Some(inode) = inode(&file) else { continue };
            match self.profiles.get_mut(&file) {
                Some(known) if known.inode == inode => {}
                // It is looked at again once the image that was known has ended.
                Some(Profile { state: State::Running(..), .. }) => is_settled = false,
                Some(known) if known.is_packed_now(&file) => known.inode = inode,
                _ => {
                    let (found, start_realtime_ns) = (Instant::now(), None);
                    let profile = Profile { inode, found, start_realtime_ns, state: State::New };
                    self.profiles.insert(file, profile);
                }
            }
        }
        is_settled
    }

    /// Notes images whose process writes to them no more.
    fn end(&mut self, changes: &mut Changes) {
        for (file, profile) in &mut self.profiles {
            if let State::Running(number, running) = &profile.state
                && !(running.is_there() && inode(file) == Some(profile.inode))
            {
                changes.ended.push(*number);
                profile.state = State::Over;
                // Another profile may have taken its place.
                if let Some(stamp) = self.recordings.get_mut(directory_of(file)) {
                    *stamp = Stamp::NONE;
                }
            }
        }
    }

    /// Finds the processes of profiles that are new.
    fn begin(&mut self, changes: &mut Changes) {
        let new = self.profiles.iter().filter(|(_, profile)| matches!(profile.state, State::New));
        let mut new: Vec<PathBuf> = new.map(|(file, _)| file.clone()).collect();
        new.sort_unstable();
        let mut unknown = Vec::new();
        for file in new {
            let Some(summary) = images::of_profile(file.clone()) else {
                self.note_unreadable(&file);
                continue;
            };
            if !self.is_of_a_target(&file, None) {
                self.set_over(&file);
                continue;
            }
            let running = Running { pid: summary.pid, file: file.clone() };
            match (running.is_there(), summary.has_noted_end) {
                (true, _) => self.start(running, summary, changes),
                (false, true) => self.set_over(&file),
                (false, false) if running::is_hidden(summary.pid, summary.process_start_ticks) => {
                    self.failures.push(format!(
                        "{}: pid {} is of another user; run `heaptide serve` as that user, or as \
                         root",
                        file.display(),
                        summary.pid
                    ));
                }
                (false, false) => unknown.push(summary),
            }
        }
        let is_early = self.searched.is_some_and(|searched| searched.elapsed() < SEARCH_EVERY);
        if unknown.is_empty() || is_early {
            return;
        }
        self.searched = Some(Instant::now());
        let found = running::among(unknown.iter().map(|summary| summary.file.clone()));
        for summary in unknown {
            let running = found.iter().find(|running| running.file == summary.file);
            match running {
                Some(running) => self.start(running.clone(), summary, changes),
                None if self.is_old(&summary.file) => self.set_over(&summary.file),
                None => {}
            }
        }
    }

    fn start(&mut self, running: Running, mut summary: ImageSummary, changes: &mut Changes) {
        let file = running.file.clone();
        if !self.is_of_a_target(&file, Some(running.pid)) {
            return self.set_over(&file);
        }
        let number = self.next_number;
        self.next_number += 1;
        (summary.is_running, summary.pid) = (true, running.pid);
        let recording = directory_of(&file).to_owned();
        if let Some(profile) = self.profiles.get_mut(&file) {
            profile.state = State::Running(number, running.clone());
            profile.start_realtime_ns = Some(summary.start_realtime_ns);
        }
        changes.began.push(Image { number, running, summary, recording });
    }

    /// Whether a target names a profile; without a process, whether that of any could be named.
    fn is_of_a_target(&self, file: &Path, pid: Option<u32>) -> bool {
        self.targets.iter().any(|target| match (target, pid) {
            (Target::Process { pid, .. }, None) => target.has(file, *pid),
            (_, pid) => target.has(file, pid.unwrap_or(0)),
        })
    }

    /// Notes a profile that cannot be opened. A profile whose header has not been written yet is no
    /// failure.
    fn note_unreadable(&mut self, file: &Path) {
        let opened = input::open(file);
        if let Some(error) = opened.err().filter(|error| error.kind() != ErrorKind::NotFound) {
            self.failures.push(format!("{}: cannot read: {error}", file.display()));
        }
    }

    fn is_old(&self, file: &Path) -> bool {
        self.profiles.get(file).is_some_and(|profile| profile.found.elapsed() >= OVER_AFTER)
    }

    fn set_over(&mut self, file: &Path) {
        if let Some(profile) = self.profiles.get_mut(file) {
            profile.state = State::Over;
        }
    }

    /// A process that was named and has ended is a failure: it does not come again.
    fn note_ended_processes(&mut self) {
        let running: FxHashSet<u32> = self
            .profiles
            .values()
            .filter_map(|profile| match &profile.state {
                State::Running(_, running) => Some(running.pid),
                State::New | State::Over => None,
            })
            .collect();
        for target in &self.targets {
            if let Target::Process { pid, .. } = target
                && !running.contains(pid)
            {
                self.failures.push(format!("pid {pid}: has ended, or is recorded no more"));
            }
        }
    }
}

impl Stamp {
    /// That of no directory.
    const NONE: Stamp = Stamp { inode: 0, modified: (0, 0) };

    /// Whether the directory may change without a change of the stamp, as clocks of file systems
    /// are coarse.
    fn is_recent(&self) -> bool {
        let modified = UNIX_EPOCH + Duration::from_secs(self.modified.0.max(0) as u64);
        modified.elapsed().is_ok_and(|since| since < RECENT)
    }
}

impl Profile {
    /// Whether a file has the image that was known, which sealing has packed after its end.
    fn is_packed_now(&self, file: &Path) -> bool {
        let Some(start_realtime_ns) = self.start_realtime_ns else { return false };
        let now = images::of_profile(file.to_owned());
        now.is_some_and(|now| now.start_realtime_ns == start_realtime_ns)
    }
}

fn stamp(directory: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(directory).ok().filter(fs::Metadata::is_dir)?;
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    Some(Stamp { inode: metadata.ino(), modified })
}

fn inode(file: &Path) -> Option<u64> {
    fs::metadata(file).ok().map(|metadata| metadata.ino())
}
