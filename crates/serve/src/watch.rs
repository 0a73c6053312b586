//! Finds process images when a directory changes, and observes them until they end.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use heaptide_analysis::Error;
use heaptide_analysis::files::input;
use heaptide_analysis::recording::images::{self, ImageSummary};
use heaptide_analysis::recording::profiles_in;
use heaptide_analysis::recording::running::{self, Running};
use heaptide_clock as clock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::target::{Target, directory_of};

/// Minimum interval of searches through the memory maps of all processes. They find processes whose
/// ids differ here, as in containers.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// A directory is listed again while its last change is more recent than this.
const RECENT: Duration = Duration::from_secs(2);
/// A profile without a writer for this long is treated as that of a killed process.
const OVER_AFTER: Duration = Duration::from_secs(60);

/// A process image that writes to its profile.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// A unique number.
    pub(crate) number: u64,
    pub(crate) running: Running,
    pub(crate) summary: ImageSummary,
    /// Its recording.
    pub(crate) recording: PathBuf,
}

/// Images that began or ended since the last poll.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Running images that were not known.
    pub(crate) began: Vec<Image>,
    /// The numbers of images that have ended.
    pub(crate) ended: Vec<u64>,
}

/// Polls for process images.
pub(crate) struct Watch {
    targets: Vec<Target>,
    recordings: FxHashMap<PathBuf, Stamp>,
    profiles: FxHashMap<PathBuf, Profile>,
    next_number: u64,
    searched: Option<Duration>,
    /// Messages about unreadable targets at the last poll.
    failures: Vec<String>,
}

/// Identifies the state of a directory; it changes when files are added or removed, or the
/// directory is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    inode: u64,
    modified: (i64, i64),
}

struct Profile {
    inode: u64,
    /// When it was first seen, by the clock of recordings.
    found: Duration,
    /// When its image started, in nanoseconds since 1970-01-01 UTC; `None` if it has not been seen
    /// running.
    start_realtime_ns: Option<u64>,
    state: State,
}

enum State {
    /// No writer is known yet.
    New,
    /// Its image's number, and the process.
    Running(u64, Running),
    Over,
}

impl Watch {
    /// Creates a watch of these targets without polling.
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

    /// Returns messages about targets that cannot be read; empty if all can.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Returns the number of recordings.
    pub(crate) fn recordings(&self) -> usize {
        self.recordings.len()
    }

    /// Finds images that began or ended.
    pub(crate) fn look(&mut self) -> Changes {
        let mut changes = Changes::default();
        self.list();
        self.end(&mut changes);
        self.begin(&mut changes);
        self.note_ended_processes();
        changes
    }

    /// Finds the recordings, and the profiles of those that have changed.
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
        // Running images are observed to their end through open files, even if their directory is
        // gone.
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

    /// Finds the profiles of a recording. Returns whether these need no further check until it
    /// changes.
    fn list_profiles(&mut self, recording: &Path) -> bool {
        let files = match profiles_in(recording) {
            Ok(files) => files,
            Err(Error::NoProfiles { .. } | Error::Missing { .. }) => Vec::new(), // none yet
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
                // The new profile is checked after the known image has ended.
                Some(Profile { state: State::Running(..), .. }) => is_settled = false,
                Some(known) if known.is_packed_now(&file) => known.inode = inode,
                _ => {
                    let (found, start_realtime_ns) = (clock::now(), None);
                    let profile = Profile { inode, found, start_realtime_ns, state: State::New };
                    self.profiles.insert(file, profile);
                }
            }
        }
        is_settled
    }

    /// Marks images as ended whose process no longer writes to them.
    fn end(&mut self, changes: &mut Changes) {
        for (file, profile) in &mut self.profiles {
            if let State::Running(number, running) = &profile.state
                && !(running.is_there() && inode(file) == Some(profile.inode))
            {
                changes.ended.push(*number);
                profile.state = State::Over;
                // Another profile may have replaced it, so the directory is listed again.
                if let Some(stamp) = self.recordings.get_mut(directory_of(file)) {
                    *stamp = Stamp::NONE;
                }
            }
        }
    }

    /// Finds the processes of new profiles.
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
                        "{}: pid {} belongs to another user; run `heaptide serve` as that user, or \
                         as root",
                        file.display(),
                        summary.pid
                    ));
                }
                (false, false) => unknown.push(summary),
            }
        }
        let is_early = self.searched.is_some_and(|at| clock::now() < at + SEARCH_EVERY);
        if unknown.is_empty() || is_early {
            return;
        }
        self.searched = Some(clock::now());
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

    /// Returns whether a profile belongs to a target. Without a process id, returns whether it may
    /// belong to one.
    fn is_of_a_target(&self, file: &Path, pid: Option<u32>) -> bool {
        self.targets.iter().any(|target| match (target, pid) {
            (Target::Process { pid, .. }, None) => target.has(file, *pid),
            (_, pid) => target.has(file, pid.unwrap_or(0)),
        })
    }

    /// Notes a profile that cannot be opened. A profile whose header has not been written yet is
    /// not a failure.
    fn note_unreadable(&mut self, file: &Path) {
        let opened = input::open(file);
        if let Some(error) = opened.err().filter(|error| error.kind() != ErrorKind::NotFound) {
            self.failures.push(format!("{}: cannot read: {error}", file.display()));
        }
    }

    fn is_old(&self, file: &Path) -> bool {
        self.profiles.get(file).is_some_and(|profile| clock::now() >= profile.found + OVER_AFTER)
    }

    fn set_over(&mut self, file: &Path) {
        if let Some(profile) = self.profiles.get_mut(file) {
            profile.state = State::Over;
        }
    }

    /// Notes as failures target processes that have ended, because they do not come back.
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
                self.failures.push(format!("pid {pid}: has ended, or is no longer recorded"));
            }
        }
    }
}

impl Stamp {
    /// The stamp of no directory.
    const NONE: Stamp = Stamp { inode: 0, modified: (0, 0) };

    /// Returns whether the directory may change without a change of the stamp, because timestamps
    /// of file systems are coarse.
    fn is_recent(&self) -> bool {
        let modified = UNIX_EPOCH + Duration::from_secs(self.modified.0.max(0) as u64);
        modified.elapsed().is_ok_and(|since| since < RECENT)
    }
}

impl Profile {
    /// Returns whether a file contains the known image, packed by sealing after its end.
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
