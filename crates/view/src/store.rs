//! Caches processes and the tables for the page.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use heaptide_analysis::model::{Measure, Process, Recording};
use heaptide_analysis::recording::Choice;
use heaptide_analysis::recording::between::{self, Stop};
use heaptide_analysis::recording::live_tables::LiveTables;
use heaptide_analysis::recording::snapshot::Reference;
use heaptide_render::page;
use nix::time::{ClockId, clock_gettime};
use rustc_hash::FxHashMap;

use crate::catalog::{Catalog, Numbered};
use heaptide_http::Refusal;
use heaptide_http::cache::{Cache, Room, Weight};

/// The processes to cache: two to compare, each for the page and for queries.
const PROCESSES: Room = Room { most: 4, least: 2, bytes: 256 << 20 };
/// The tables for the page to cache.
const TABLES: Room = Room { most: 4, least: 2, bytes: 256 << 20 };
/// The interval for reading a running process, as a multiple of its processor time: at most 1.7 %
/// of a core.
const REST: u32 = 60;
/// The shortest interval for reading it.
const REST_MIN: Duration = Duration::from_secs(2);

/// The reader that names and stacks are prepared for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// The page, for people.
    Page,
    /// Queries, which use the data as recorded.
    Query,
}

/// Applies a selection to a process.
pub type Prepare = Box<dyn FnOnce(&mut Process) + Send>;

/// Parses options of the command line that select and name: takes their text, and the reader.
///
/// Errors: the line that the command would print.
pub type Words = Arc<dyn Fn(&str, For) -> Result<Prepare, String> + Send + Sync>;

/// The part of a process to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The number of the process.
    pub(crate) process: u32,
    /// The snapshot; `None` for the end.
    pub(crate) snapshot: Option<u32>,
    /// The time span, in nanoseconds from the start.
    pub(crate) span: Option<(u64, u64)>,
    /// Options as typed.
    pub(crate) filter: String,
}

/// The key of a cached process: its part, and how it was read.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    process: u32,
    choice: Choosing,
    filter: String,
    reader: For,
}

/// The counters to read.
#[derive(Clone, PartialEq, Eq)]
enum Choosing {
    /// Those of the whole run, or of a snapshot.
    Whole(Option<u32>),
    /// The differences between two snapshots; the start and the end may replace them.
    Between(Option<u32>, Option<u32>),
}

/// A process that was read.
pub(crate) struct Loaded {
    /// A unique number.
    pub(crate) version: u64,
    /// Contains one process.
    pub(crate) recording: Recording,
    /// Allocations of the process, regardless of the selection.
    pub(crate) allocations: u64,
    /// When reading started.
    pub(crate) read_at: Instant,
    /// The processor time of reading.
    cost: Duration,
    /// The processor time of creating the tables for the page, in nanoseconds; 0 before that.
    tables_ns: AtomicU64,
    was_running: bool,
}

impl Loaded {
    /// Returns the process.
    ///
    /// Errors: there is none, which does not happen.
    pub(crate) fn process(&self) -> Result<&Process, Refusal> {
        self.recording.processes.first().ok_or_else(|| Refusal::missing("no such process"))
    }
}

impl Weight for Loaded {
    fn bytes(&self) -> usize {
        let of = |process: &Process| {
            let tables = &process.tables;
            size_of_val(&*tables.sites)
                + size_of_val(&*tables.frames)
                + size_of_val(&*tables.stacks)
        };
        self.recording.processes.iter().map(of).sum()
    }
}

/// The precision of data for a time span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exact {
    /// Exact, from the events of a trace.
    Trace,
    /// From snapshots, for a span around the requested one.
    Snapshots,
    /// For the whole run.
    Whole,
}

impl Exact {
    /// Returns its name in a header.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Exact::Trace => "trace",
            Exact::Snapshots => "snapshots",
            Exact::Whole => "whole",
        }
    }
}

/// A part of a process, ready for a view.
pub(crate) struct Chosen {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) exact: Exact,
    /// The time span, if it is not the whole run.
    pub(crate) span: Option<(u64, u64)>,
}

/// Tables for the page.
pub(crate) struct Tables {
    pub(crate) bytes: axum::body::Bytes,
}

impl Weight for Tables {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The caches.
pub(crate) struct Store {
    catalog: Arc<Catalog>,
    words: Words,
    processes: Cache<Key, Loaded>,
    tables: Cache<(u64, Option<(u64, u64)>), Tables>,
    /// Readers of running processes, which cache the names that they looked up.
    readers: Arc<Mutex<FxHashMap<u32, LiveTables>>>,
    versions: Arc<AtomicU64>,
}

impl Store {
    /// Creates empty caches.
    pub(crate) fn new(catalog: Arc<Catalog>, words: Words) -> Store {
        Store {
            catalog,
            words,
            processes: Cache::new(PROCESSES),
            tables: Cache::new(TABLES),
            readers: Arc::default(),
            versions: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Returns the part of a process for a request.
    ///
    /// Errors: the process, snapshot or span does not exist; the filter is invalid; it cannot be
    /// read.
    pub(crate) async fn chosen(&self, part: &Part, reader: For) -> Result<Chosen, Refusal> {
        let catalog = self.catalog.clone();
        let number = part.process;
        let found = tokio::task::spawn_blocking(move || catalog.process(number)).await;
        let (recording, numbered) = found.map_err(Refusal::failed)??;
        let whole =
            self.loaded(part, reader, Choosing::Whole(part.snapshot), &numbered, &recording);
        let Some((from, to)) = part.span else {
            let loaded = whole.await?;
            return Ok(Chosen { loaded, exact: Exact::Whole, span: None });
        };
        if from >= to {
            return Err(Refusal::bad(format_args!("from={from}&to={to}: expected from < to")));
        }
        if part.snapshot.is_some() {
            return Err(Refusal::bad("snapshot= and from=: a snapshot has no time; omit one"));
        }
        let loaded = whole.await?;
        let process = loaded.process()?;
        if from == 0 && to >= process.lifetime.duration_ns {
            return Ok(Chosen { loaded, exact: Exact::Whole, span: None });
        }
        if process.has_trace() {
            return Ok(Chosen { loaded, exact: Exact::Trace, span: Some((from, to)) });
        }
        let file = numbered.image.file.clone();
        let stops = tokio::task::spawn_blocking(move || between::stops(&file)).await;
        let stops = stops.map_err(Refusal::failed)?;
        let end = Stop { snapshot: None, time_ns: process.lifetime.duration_ns };
        let Some((first, last)) = around(&stops, end, (from, to)) else {
            return Err(Refusal::conflict(format_args!(
                "{}: without a trace or snapshots, nothing is known of a part of the run; record \
                 with `heaptide run --mode trace` or `--snapshot-every 1s`",
                recording.display()
            )));
        };
        if first.snapshot.is_none() && last.snapshot.is_none() {
            return Ok(Chosen { loaded, exact: Exact::Whole, span: None });
        }
        let choice = Choosing::Between(first.snapshot, last.snapshot);
        let loaded = self.loaded(part, reader, choice, &numbered, &recording).await?;
        let span = Some((first.time_ns, last.time_ns));
        Ok(Chosen { loaded, exact: Exact::Snapshots, span })
    }

    /// Returns the tables for the page.
    ///
    /// Errors: the trace cannot be read.
    pub(crate) async fn tables(&self, chosen: &Chosen) -> Result<Arc<Tables>, Refusal> {
        let span = chosen.span.filter(|_| chosen.exact == Exact::Trace);
        let loaded = chosen.loaded.clone();
        let make = move || {
            let (process, begin) = (loaded.process()?, process_time());
            let of_span = span.map(|(from, to)| process.during(from, to)).transpose()?;
            let process = of_span.as_ref().unwrap_or(process);
            let bytes = page::data(process, Measure::AtPeakBytes).map_err(Refusal::failed)?;
            let took = process_time().saturating_sub(begin).as_nanos();
            let took = u64::try_from(took).unwrap_or(u64::MAX);
            loaded.tables_ns.fetch_max(took, Ordering::Relaxed);
            Ok(Tables { bytes: bytes.into() })
        };
        self.tables.get((chosen.loaded.version, span), |_| true, make).await
    }

    /// Returns the last reading of a process for the page, regardless of the selection.
    pub(crate) fn last_read(&self, process: u32) -> Option<Arc<Loaded>> {
        let is_it = |key: &Key, _: &Loaded| {
            let is_end = key.choice == Choosing::Whole(None);
            key.process == process && key.reader == For::Page && is_end
        };
        self.processes.found(is_it)
    }

    /// Returns how long a reading of a running process stays valid.
    pub(crate) fn rest(loaded: &Loaded) -> Duration {
        let tables = Duration::from_nanos(loaded.tables_ns.load(Ordering::Relaxed));
        ((loaded.cost + tables) * REST).max(REST_MIN)
    }

    async fn loaded(
        &self,
        part: &Part,
        reader: For,
        choice: Choosing,
        numbered: &Numbered,
        recording: &Path,
    ) -> Result<Arc<Loaded>, Refusal> {
        let is_running = numbered.image.is_running && choice.has_end();
        let key = Key {
            process: part.process,
            choice: choice.clone(),
            filter: part.filter.clone(),
            reader,
        };
        let is_fresh = |loaded: &Loaded| {
            let is_young = || loaded.read_at.elapsed() < Store::rest(loaded);
            loaded.was_running == is_running && (!is_running || is_young())
        };
        let prepare = (self.words)(&part.filter, reader).map_err(Refusal::bad)?;
        let reading = Reading {
            file: numbered.image.file.clone(),
            number: part.process,
            is_running,
            choice,
            readers: self.readers.clone(),
        };
        let (path, version) = (recording.to_owned(), self.versions.clone());
        let make = move || {
            let (read_at, begin) = (Instant::now(), process_time());
            let mut process = reading.read()?;
            let allocations = process.totals.allocations;
            prepare(&mut process);
            Ok(Loaded {
                allocations,
                version: version.fetch_add(1, Ordering::Relaxed),
                recording: Recording { path, processes: vec![process], ..Recording::default() },
                read_at,
                cost: process_time().saturating_sub(begin),
                tables_ns: AtomicU64::new(0),
                was_running: is_running,
            })
        };
        self.processes.get(key, is_fresh, make).await
    }
}

impl Choosing {
    /// Returns whether it includes the current counters of the process.
    fn has_end(&self) -> bool {
        matches!(self, Choosing::Whole(None) | Choosing::Between(_, None))
    }
}

/// Returns the last stop before a span and the first one after it. `None` if there are no stops
/// between start and end.
fn around(stops: &[Stop], end: Stop, (from, to): (u64, u64)) -> Option<(Stop, Stop)> {
    let start = Stop { snapshot: None, time_ns: 0 };
    if stops.is_empty() {
        return None;
    }
    let first = stops.iter().rfind(|stop| stop.time_ns <= from).copied().unwrap_or(start);
    let last = stops.iter().find(|stop| stop.time_ns >= to).copied().unwrap_or(end);
    Some((first, last))
}

/// How to read a process.
struct Reading {
    file: PathBuf,
    number: u32,
    is_running: bool,
    choice: Choosing,
    readers: Arc<Mutex<FxHashMap<u32, LiveTables>>>,
}

impl Reading {
    fn read(&self) -> Result<Process, Refusal> {
        match self.choice {
            Choosing::Whole(None) if self.is_running => {
                let known = self.readers().remove(&self.number);
                let mut reader = known.unwrap_or_else(|| LiveTables::as_opened(&self.file));
                let process = reader.read(&mut |_, _| {});
                self.readers().insert(self.number, reader);
                Ok(process?)
            }
            Choosing::Whole(snapshot) => {
                self.readers().remove(&self.number);
                let snapshot = snapshot.map(Reference::Number);
                let choice = Choice { snapshot, ..Choice::default() };
                let read = Recording::open_of(&self.file, &choice)?;
                let mut processes = read.processes.into_iter();
                processes.next().ok_or_else(|| Refusal::missing("nothing was recorded"))
            }
            Choosing::Between(from, to) => Ok(between::open(&self.file, from, to)?),
        }
    }

    fn readers(&self) -> MutexGuard<'_, FxHashMap<u32, LiveTables>> {
        self.readers.lock().unwrap_or_else(|error| error.into_inner())
    }
}

/// Returns the processor time of the whole command, because several threads look up names.
fn process_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_extended_to_the_surrounding_stops() {
        let stop = |number, time_ns| Stop { snapshot: Some(number), time_ns };
        let stops = [stop(1, 10), stop(2, 20), stop(3, 30)];
        let end = Stop { snapshot: None, time_ns: 40 };
        let around = |from, to| {
            let (first, last) = around(&stops, end, (from, to)).expect("stops");
            (first.snapshot, first.time_ns, last.snapshot, last.time_ns)
        };
        assert_eq!(around(12, 18), (Some(1), 10, Some(2), 20));
        assert_eq!(around(10, 20), (Some(1), 10, Some(2), 20));
        assert_eq!(around(5, 21), (None, 0, Some(3), 30));
        assert_eq!(around(25, 99), (Some(2), 20, None, 40));
        assert_eq!(super::around(&[], end, (1, 2)), None);
    }
}
