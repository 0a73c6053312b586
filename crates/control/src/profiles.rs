//! The profiles of a recording: which are new, and which have no writer any more.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use heaptide_analysis::recording::running::{self, Running};
use heaptide_format::PROFILE_SUFFIX;

/// A directory that changed so lately may have changed again within the clock's step.
const JUST_NOW: Duration = Duration::from_millis(50);
/// Looking through all processes takes one part in so many of the time at most.
const SEARCH_PART: u32 = 50;

/// The profiles of a recording that were seen.
#[derive(Debug)]
pub(crate) struct Listing {
    recording: PathBuf,
    /// When the directory was last read, and its time of change then.
    listed: Option<(SystemTime, SystemTime)>,
    /// Profiles that need not be opened any more, by file name.
    known: HashSet<OsString>,
}

impl Listing {
    /// Of a recording in which no profile was seen yet.
    pub(crate) fn new(recording: &Path) -> Listing {
        Listing { recording: recording.to_owned(), listed: None, known: HashSet::new() }
    }

    /// Opens profiles that are new in the recording. One for which `open` returns none is tried
    /// again the next time.
    pub(crate) fn look_for_more(&mut self, mut open: impl FnMut(&Path) -> Option<()>) {
        let Ok(changed) = fs::metadata(&self.recording).and_then(|m| m.modified()) else {
            return; // it was moved or removed
        };
        if self.listed.is_some_and(|(at, then)| then == changed && at > changed + JUST_NOW) {
            return;
        }
        let now = SystemTime::now();
        let mut all_open = true;
        let mut there = HashSet::new();
        for entry in fs::read_dir(&self.recording).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !name.to_string_lossy().ends_with(PROFILE_SUFFIX) {
                continue;
            }
            if self.known.contains(&name) || open(&entry.path()).is_some() {
                there.insert(name);
            } else {
                all_open = false;
            }
        }
        self.known = there;
        self.listed = all_open.then_some((now, changed));
    }
}

/// A program that writes to a profile.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) running: Running,
    /// Whether the pid is one that the process has here: seen writing to this file.
    pub(crate) pid_is_known: bool,
}

impl Writer {
    /// The writer of a profile whose header has this pid.
    pub(crate) fn of(profile: &Path, pid: u32) -> Writer {
        let running = Running { pid, file: profile.to_owned() };
        Writer { pid_is_known: running.is_there(), running }
    }

    /// Whether a process of this pid is there that may not be looked at.
    fn is_hidden(&self) -> bool {
        let maps = fs::File::open(format!("/proc/{}/maps", self.running.pid));
        maps.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    }
}

/// Finds out which programs of a recording have ended.
#[derive(Debug)]
pub(crate) struct Ends {
    recording: PathBuf,
    next_search: Instant,
}

impl Ends {
    /// Of a recording.
    pub(crate) fn new(recording: &Path) -> Ends {
        Ends { recording: recording.to_owned(), next_search: Instant::now() }
    }

    /// Searches again the next time, however lately that was done.
    pub(crate) fn search_again(&mut self) {
        self.next_search = Instant::now();
    }

    /// Divides what belongs to writers into that of those that have ended, and the rest.
    pub(crate) fn divide<T>(
        &mut self,
        all: Vec<T>,
        writer: impl Fn(&T) -> &Writer,
    ) -> (Vec<T>, Vec<T>) {
        let is_quiet = |one: &T| !writer(one).running.is_there();
        let (quiet, mut on): (Vec<_>, Vec<_>) = all.into_iter().partition(is_quiet);
        // A pid may be another one here than in the process's container: who writes is searched.
        let unsure = quiet.iter().any(|one| !writer(one).pid_is_known);
        let writers = if unsure { self.search() } else { None };
        let is_over = |one: &T| {
            let is_its = |other: &Running| other.file == writer(one).running.file;
            let over = match &writers {
                Some(writers) => !writers.iter().any(is_its),
                None => writer(one).pid_is_known,
            };
            over && !writer(one).is_hidden()
        };
        let (ended, unsure): (Vec<_>, Vec<_>) = quiet.into_iter().partition(is_over);
        on.extend(unsure);
        (ended, on)
    }

    /// Who writes to profiles of the recording; none if it is too early to ask again.
    pub(crate) fn search(&mut self) -> Option<Vec<Running>> {
        let begin = Instant::now();
        if begin < self.next_search {
            return None;
        }
        let writers = running::of_recording(&self.recording).ok();
        self.next_search = Instant::now() + begin.elapsed() * SEARCH_PART;
        writers
    }
}
