//! The profiles of a recording: finds new ones, and those without a writer.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use heaptide_analysis::recording::running::{self, Running};
use heaptide_format::PROFILE_SUFFIX;

/// After a change this recent, the directory may have changed again within the clock resolution.
const JUST_NOW: Duration = Duration::from_millis(50);
/// A search of all processes takes at most this fraction of the time.
const SEARCH_PART: u32 = 50;

/// The known profiles of a recording.
#[derive(Debug)]
pub(crate) struct Listing {
    recording: PathBuf,
    /// When the directory was last read, and its modification time then.
    listed: Option<(SystemTime, SystemTime)>,
    /// File names of profiles that need not be opened again.
    known: HashSet<OsString>,
}

impl Listing {
    /// Creates a listing without known profiles.
    pub(crate) fn new(recording: &Path) -> Listing {
        Listing { recording: recording.to_owned(), listed: None, known: HashSet::new() }
    }

    /// Opens profiles that are new in the recording. Those for which `open` returns `None` are
    /// retried next time.
    pub(crate) fn look_for_more(&mut self, mut open: impl FnMut(&Path) -> Option<()>) {
        let Ok(changed) = fs::metadata(&self.recording).and_then(|m| m.modified()) else {
            return; // moved or removed
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

/// The process that writes a profile.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) running: Running,
    /// Whether the pid is valid here, because the process was seen to write to this file.
    pub(crate) pid_is_known: bool,
}

impl Writer {
    /// Returns the writer of a profile whose header has this pid.
    pub(crate) fn of(profile: &Path, pid: u32) -> Writer {
        let running = Running { pid, file: profile.to_owned() };
        Writer { pid_is_known: running.is_there(), running }
    }

    /// Returns whether a process with this pid exists but may not be inspected.
    fn is_hidden(&self) -> bool {
        let maps = fs::File::open(format!("/proc/{}/maps", self.running.pid));
        maps.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    }
}

/// Detects which programs of a recording have ended.
#[derive(Debug)]
pub(crate) struct Ends {
    recording: PathBuf,
    next_search: Instant,
}

impl Ends {
    /// Creates the detector of a recording.
    pub(crate) fn new(recording: &Path) -> Ends {
        Ends { recording: recording.to_owned(), next_search: Instant::now() }
    }

    /// Makes the next search run immediately, regardless of the last one.
    pub(crate) fn search_again(&mut self) {
        self.next_search = Instant::now();
    }

    /// Splits items into those whose writers have ended, and the rest.
    pub(crate) fn divide<T>(
        &mut self,
        all: Vec<T>,
        writer: impl Fn(&T) -> &Writer,
    ) -> (Vec<T>, Vec<T>) {
        let is_quiet = |one: &T| !writer(one).running.is_there();
        let (quiet, mut on): (Vec<_>, Vec<_>) = all.into_iter().partition(is_quiet);
        // The pid in a container can differ from the one here, so all processes are searched for
        // writers.
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

    /// Searches the processes that write to profiles of the recording. Returns `None` if it is too
    /// early for another search.
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
