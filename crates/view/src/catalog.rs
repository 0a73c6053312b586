//! The list of recordings, and the numbers of their processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use heaptide_analysis::recording::images::{self, ImageSummary};
use heaptide_analysis::recording::running::Running;
use heaptide_analysis::recording::snapshot::{self, Reference};
use heaptide_analysis::recording::subject;
use heaptide_analysis::text::of_path;
use heaptide_render::shared::command_line::command_line_of;
use heaptide_render::shared::subject::subject_of_headers;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::error::Error;
use heaptide_http::Refusal;

/// The longest title, in characters; the page truncates it further.
const TITLE_MAX: usize = 500;

/// A recording from the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Its directory, or a profile in it.
    pub path: PathBuf,
    /// The snapshot to show first; `None` for the end.
    pub snapshot: Option<Reference>,
}

/// A recording with its processes, as of the last update.
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    pub(crate) images: Vec<Numbered>,
    /// When files were last added or removed.
    changed: Option<SystemTime>,
}

impl Listed {
    /// Returns the name of the recording.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().map(|name| of_path(Path::new(name)));
        name.unwrap_or_else(|| of_path(&self.path))
    }
}

/// A process with its number, unique among all recordings.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) number: u32,
    pub(crate) image: ImageSummary,
}

impl Numbered {
    /// Returns the running process, if it writes to its profile.
    pub(crate) fn running(&self) -> Option<Running> {
        let ImageSummary { pid, ref file, is_running, .. } = self.image;
        is_running.then(|| Running { pid, file: file.clone() })
    }
}

/// The recordings, and the numbers assigned to their processes.
pub(crate) struct Catalog {
    opened: Vec<Opened>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By profile; a profile keeps its number.
    numbers: FxHashMap<PathBuf, u32>,
    listed: Arc<Vec<Listed>>,
}

impl Catalog {
    /// Lists recordings.
    ///
    /// Errors: a recording cannot be read, or has no process.
    pub(crate) fn open(opened: Vec<Opened>) -> Result<Catalog, Error> {
        let catalog = Catalog { opened, known: Mutex::default() };
        let listed = catalog.refresh()?;
        if let Some(empty) = listed.iter().find(|listed| listed.images.is_empty()) {
            // Reports the reason, if none of its profiles can be read.
            let read = heaptide_analysis::model::Recording::open(&empty.path)?;
            return Err(Error::Empty { recording: read.path });
        }
        Ok(catalog)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Updates the list of recordings.
    ///
    /// Errors: a recording can no longer be read.
    pub(crate) fn refresh(&self) -> Result<Arc<Vec<Listed>>, heaptide_analysis::Error> {
        let list = |opened: &Opened| {
            let changed = changed(&opened.path);
            let images = images::of_recording(&opened.path)?;
            Ok((opened.path.clone(), images, changed))
        };
        let found: Result<Vec<_>, heaptide_analysis::Error> =
            self.opened.iter().map(list).collect();
        let mut known = self.lock();
        let mut number = |image: ImageSummary| {
            let next = known.numbers.len() as u32;
            let number = *known.numbers.entry(image.file.clone()).or_insert(next);
            Numbered { number, image }
        };
        let listed = found?.into_iter().map(|(path, images, changed)| {
            let images = images.into_iter().map(&mut number).collect();
            Listed { path, images, changed }
        });
        let listed = Arc::new(listed.collect::<Vec<_>>());
        known.listed = listed.clone();
        Ok(listed)
    }

    /// Returns the recordings as of the last update.
    pub(crate) fn listed(&self) -> Arc<Vec<Listed>> {
        self.lock().listed.clone()
    }

    /// Returns whether files were added or removed, or a process ended, since the last update.
    pub(crate) fn is_outdated(&self) -> bool {
        self.listed().iter().any(|listed| {
            let mut running = listed.images.iter().filter_map(Numbered::running);
            changed(&listed.path) != listed.changed || !running.all(|running| running.is_there())
        })
    }

    /// Returns the current process with a number, and its recording.
    ///
    /// Errors: there is none.
    pub(crate) fn process(&self, number: u32) -> Result<(PathBuf, Numbered), Refusal> {
        let find = |all: &[Listed]| {
            all.iter().find_map(|listed| {
                let found = listed.images.iter().find(|image| image.number == number)?;
                Some((listed.path.clone(), found.clone()))
            })
        };
        let is_current = |(_, found): &(PathBuf, Numbered)| {
            found.running().is_none_or(|running| running.is_there())
        };
        if let Some(found) = find(&self.listed()).filter(is_current) {
            return Ok(found);
        }
        let listed = self.refresh()?;
        find(&listed)
            .ok_or_else(|| Refusal::missing(format_args!("no process has number {number}")))
    }

    /// Describes the recordings for the page.
    ///
    /// Errors: a recording can no longer be read.
    pub(crate) fn describe(&self) -> Result<(Vec<Recording>, Vec<Moment>), Refusal> {
        let listed = self.refresh()?;
        let recordings: Vec<Recording> = listed.iter().map(describe).collect();
        let moments = self.opened.iter().zip(listed.iter()).filter_map(|(opened, listed)| {
            let images: Vec<_> =
                listed.images.iter().map(|numbered| numbered.image.clone()).collect();
            let first = listed.images.get(subject::first(&images)?)?;
            moment(opened, &recordings, first.number)
        });
        Ok((recordings.clone(), moments.collect()))
    }
}

/// Returns what to show first of a recording: the subject, or the named snapshot.
fn moment(opened: &Opened, recordings: &[Recording], subject: u32) -> Option<Moment> {
    let Some(reference) = &opened.snapshot else {
        return Some(Moment { process: subject, snapshot: None });
    };
    let is_it = |snapshot: &&Snapshot| match reference {
        Reference::Number(number) => snapshot.number == *number,
        Reference::Name(name) => snapshot.name == *name,
    };
    let path = of_path(&opened.path);
    let recording = recordings.iter().find(|recording| recording.path == path)?;
    let mut processes: Vec<&Process> = recording.processes.iter().collect();
    processes.sort_by_key(|process| process.number != subject);
    processes.into_iter().find_map(|process| {
        let snapshot = process.snapshots.iter().rfind(is_it)?;
        Some(Moment { process: process.number, snapshot: Some(snapshot.number) })
    })
}

/// Returns when files of a recording were last added or removed.
fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(directory(path)).and_then(|found| found.modified()).ok()
}

/// Returns the directory of a recording, given the directory or one of its profiles.
fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.is_dir() { path } else { parent.unwrap_or(Path::new(".")) }
}

/// A recording, as sent to the page.
#[derive(Clone, Serialize)]
pub(crate) struct Recording {
    path: String,
    name: String,
    running: bool,
    processes: Vec<Process>,
    /// Which process is shown first, and why; `None` if there is only one.
    subject: Option<Subject>,
}

/// The choice of the process that is shown first.
#[derive(Clone, Serialize)]
struct Subject {
    /// The number of the process.
    number: u32,
    text: String,
}

impl Subject {
    fn of(listed: &Listed) -> Option<Subject> {
        let images: Vec<ImageSummary> =
            listed.images.iter().map(|numbered| numbered.image.clone()).collect();
        let first = listed.images.get(subject::first(&images)?)?;
        let text = subject_of_headers(&subject::of_summaries(&images)?, &first.image)?;
        Some(Subject { number: first.number, text })
    }
}

/// A process, as sent to the page.
#[derive(Clone, Serialize)]
struct Process {
    number: u32,
    pid: u32,
    image: u32,
    title: String,
    program: String,
    mode: &'static str,
    running: bool,
    has_trace: bool,
    peak_bytes: u64,
    start_realtime_ns: u64,
    snapshots: Vec<Snapshot>,
}

/// A snapshot, as sent to the page.
#[derive(Clone, Serialize)]
struct Snapshot {
    number: u32,
    name: String,
    time_ns: u64,
}

/// A process, or a snapshot of it.
#[derive(Serialize)]
pub(crate) struct Moment {
    process: u32,
    snapshot: Option<u32>,
}

fn describe(listed: &Listed) -> Recording {
    let files: Vec<PathBuf> =
        listed.images.iter().map(|numbered| numbered.image.file.clone()).collect();
    let mut snapshots = snapshot::by_profile(directory(&listed.path), &files);
    let process = |numbered: &Numbered| {
        let image = &numbered.image;
        let own = snapshots.remove(&image.file).unwrap_or_default().into_iter();
        let snapshots =
            own.map(|own| Snapshot { number: own.number, name: own.name, time_ns: own.time_ns });
        Process {
            number: numbered.number,
            pid: image.pid,
            image: image.image,
            title: command_line_of(&image.command, &image.program, TITLE_MAX),
            program: image.program.clone(),
            mode: image.mode_name(),
            running: image.is_running,
            has_trace: image.has_trace,
            peak_bytes: image.peak_bytes,
            start_realtime_ns: image.start_realtime_ns,
            snapshots: snapshots.collect(),
        }
    };
    let processes: Vec<Process> = listed.images.iter().map(process).collect();
    Recording {
        path: of_path(&listed.path),
        name: listed.name(),
        running: processes.iter().any(|process| process.running),
        processes,
        subject: Subject::of(listed),
    }
}
