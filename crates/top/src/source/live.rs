//! A running process: reads its counters several times a second, and its tables when there are new
//! stacks, at a rate that limits the cost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heaptide_analysis::Error;
use heaptide_analysis::recording::live::{Counts, Look, Observer};
use heaptide_analysis::recording::live_tables::LiveTables;
use heaptide_analysis::recording::running::Running;
use heaptide_analysis::recording::snapshot::Origin;
use heaptide_clock as clock;
use heaptide_control::{Answer, Control, Wait};
use heaptide_format::{End, Mode, Request};
use nix::time::{ClockId, clock_gettime};

use super::images::{self, Prepare};
use super::update::{Reports, Update};
use crate::model::app::Image;
use crate::model::numbers::Moment;
use crate::model::tables::Tables;

/// The shortest interval for reading counters.
const PERIOD: Duration = Duration::from_millis(250);
/// The interval as a multiple of the processor time for reading and showing counters: at most 2.2 %
/// of a core.
const SHOWN_REST: u32 = 45;
/// The longest interval for reading counters.
const PERIOD_MAX: Duration = Duration::from_secs(10);
/// How long a program started by exec may take to create its profile.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);
/// Number of readings between checks whether the process still exists.
const LOOKS_A_CHECK: u32 = 4;
/// The interval for reading tables, as a multiple of its processor time: at most 0.7 % of a core.
const REST: u32 = 150;
/// The shorter interval if the number of sites has grown by a quarter, as at the start of programs.
/// The total cost is at most a few times that of the last reading.
const REST_GROWN: u32 = 10;
/// The longest time that new stacks wait for their names.
const REST_MAX: Duration = Duration::from_secs(30);
/// The name of marks.
const MARK: &str = "heaptide top";

/// Follows a process until it is dropped.
pub(crate) struct Live {
    /// Dropped to stop the thread.
    _stop: Sender<()>,
    image: Image,
}

impl Live {
    /// Follows the process of an image and sends its numbers to `reports`. `drawn_ns` is the
    /// processor time of the screen for these.
    ///
    /// Errors: the thread cannot be created.
    pub(crate) fn start<T: Send + 'static>(
        recording: &Path,
        image: &Image,
        prepare: &Prepare,
        reports: &Reports<T>,
        drawn_ns: &Arc<AtomicU64>,
    ) -> std::io::Result<Live> {
        let (stop, stopped) = channel();
        let running = Running { pid: image.pid, file: image.file.clone() };
        let followed = Followed {
            drawn_ns: drawn_ns.clone(),
            recording: recording.to_owned(),
            running,
            prepare: prepare.clone(),
            reports: reports.clone(),
        };
        let follow = move || {
            if let Err(error) = followed.follow(&stopped) {
                followed.reports.send(Update::Failed(error.to_string()));
            }
        };
        thread::Builder::new().spawn(follow)?;
        Ok(Live { _stop: stop, image: image.clone() })
    }

    /// Returns the path of the profile.
    pub(crate) fn file(&self) -> &Path {
        &self.image.file
    }

    /// Sets a mark in the recording, or takes a snapshot; the result goes to `reports`.
    pub(crate) fn request<T: Send + 'static>(&self, what: Asked, reports: &Reports<T>) {
        let running = Running { pid: self.image.pid, file: self.image.file.clone() };
        let own = reports.clone();
        let ask = move || own.send(Update::Answer(answer(&running, what)));
        if let Err(error) = thread::Builder::new().spawn(ask) {
            reports.send(Update::Answer(format!("cannot start a thread: {error}")));
        }
    }
}

/// A request to a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Mark,
    Snapshot,
}

/// Sends the request to the program, and returns its outcome.
fn answer(running: &Running, what: Asked) -> String {
    let asked = Control::open(running).and_then(|control| match what {
        Asked::Mark => {
            let answer = control.request(Request::Mark, 0, MARK, Wait::Patiently)?;
            let says = match answer {
                Answer::Done => "growth counts from now; the recording has a mark",
                Answer::Waits => "growth counts from now; the mark waits for an allocation",
                Answer::Behind => {
                    "growth counts from now; no mark, because an earlier request is pending"
                }
                Answer::Ended => "growth counts from now; the program ended before the mark",
            };
            Ok(says.to_owned())
        }
        Asked::Snapshot => {
            let (number, file, _) = control.snapshot("", Wait::Briefly, Origin::Requested)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok(format!("snapshot {number}: {name}"))
        }
    });
    asked.unwrap_or_else(|error| error.to_string())
}

struct Followed<T> {
    /// Processor time of the last update of the screen.
    drawn_ns: Arc<AtomicU64>,
    recording: PathBuf,
    running: Running,
    prepare: Prepare,
    reports: Reports<T>,
}

/// The result of reading the tables, the processor time, and the reader for the next time.
type Read = (LiveTables, Result<(Tables, u64), Error>, Duration);

/// Reads tables in a separate thread.
struct Reading {
    /// The reader, unless a thread is using it.
    reader: Option<LiveTables>,
    thread: Option<JoinHandle<Read>>,
    /// Number of sites in the last tables.
    sites: u64,
    /// The time of the last reading, and its processor time.
    last: Option<(Instant, Duration)>,
}

impl<T: Send + 'static> Followed<T> {
    fn follow(&self, stopped: &Receiver<()>) -> Result<(), Error> {
        let mut observer = Observer::open(&self.running.file)?;
        let mut reading = Reading {
            reader: Some(LiveTables::new(&self.running.file)),
            thread: None,
            sites: 0,
            last: None,
        };
        let mut counts = Arc::new(Vec::new());
        let (mut sites, mut looks, mut is_there) = (0, 0u32, true);
        let (mut peak_bytes, mut device_bytes) = (0, 0);
        let (mut start_ns, mut is_exec, mut gone) = (None, false, None::<Instant>);
        loop {
            let begin = thread_time();
            if looks.is_multiple_of(LOOKS_A_CHECK) {
                is_there = self.running.is_there();
            }
            looks = looks.wrapping_add(1);
            if let Some(look) = observer.look()? {
                let Look { header, counts: now, sites: there, samples } = look;
                start_ns = Some(header.start_monotonic_ns);
                if header.mode == Mode::Counters as u32 {
                    self.reports.send(Update::Failed(images::no_rows(&self.running.file)));
                    return Ok(());
                }
                (counts, sites) = (Arc::new(now), there);
                (peak_bytes, device_bytes) = (header.peak_bytes, header.device_bytes);
                self.reports.send(Update::Samples(samples));
                is_exec = header.end_kind == End::Exec as u32;
            }
            if is_exec && !is_there {
                if self.replaced() {
                    return Ok(());
                }
                gone = gone.or_else(|| Some(Instant::now()));
            }
            self.read_tables(&mut reading, &observer, (sites, is_there))?;
            let now = Moment { peak_bytes, device_bytes, ..self.moment(&counts, start_ns) };
            self.reports.send(Update::Moment(now));
            let may_begin = gone.is_some_and(|at| at.elapsed() < BEGINS_WITHIN);
            if !is_there && !may_begin && reading.thread.is_none() && reading.sites >= sites {
                self.reports.send(Update::Ended(self.ending(&observer)));
                return Ok(());
            }
            let drawn = Duration::from_nanos(self.drawn_ns.load(Ordering::Relaxed));
            let took = thread_time().saturating_sub(begin) + drawn;
            let period = (took * SHOWN_REST).clamp(PERIOD, PERIOD_MAX);
            if stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout) {
                return Ok(());
            }
        }
    }

    fn moment(&self, counts: &Arc<Vec<Counts>>, start_ns: Option<u64>) -> Moment {
        Moment {
            time_ns: start_ns.map_or(0, |start| clock::now_ns().saturating_sub(start)),
            counts: counts.clone(),
            resident_bytes: self.running.memory().map_or(0, |(resident, _)| resident),
            ..Moment::default()
        }
    }

    /// Starts to read tables if there are new stacks, and reports finished ones.
    fn read_tables(
        &self,
        reading: &mut Reading,
        observer: &Observer,
        (sites, is_there): (u64, bool),
    ) -> Result<(), Error> {
        if let Some(thread) = reading.thread.take_if(|thread| thread.is_finished()) {
            let Ok((reader, read, took)) = thread.join() else {
                return Ok(()); // it panicked: keep the current tables
            };
            reading.reader = Some(reader);
            reading.last = Some((Instant::now(), took));
            let (mut tables, read_sites) = match read {
                Ok(read) => read,
                Err(error) if reading.sites == 0 => return Err(error),
                Err(error) => {
                    self.reports.send(Update::Answer(error.to_string()));
                    return Ok(());
                }
            };
            reading.sites = read_sites;
            tables.set_slots(observer.ids());
            self.reports.send(Update::Tables(Box::new(tables)));
        }
        let is_first = reading.sites == 0;
        let rest = if sites >= reading.sites + reading.sites / 4 { REST_GROWN } else { REST };
        let is_early = is_there
            && reading.last.is_some_and(|(at, took)| at.elapsed() < (took * rest).min(REST_MAX));
        if sites <= reading.sites && !is_first || is_early {
            return Ok(());
        }
        let Some(mut reader) = reading.reader.take() else { return Ok(()) };
        let (prepare, reports) = (self.prepare.clone(), self.reports.clone());
        let read = move || {
            let start = process_time();
            let mut progress = |done, total| {
                if is_first {
                    let line = format!("looking up names {done}/{total}");
                    reports.send(Update::Progress(line));
                }
            };
            let process = reader.read(&mut progress);
            let tables = process.map(|mut process| {
                let rows = process.time.site_rows.as_ref();
                let sites = rows.map_or(0, |rows| rows.sites() as u64);
                prepare(&mut process);
                (Tables::new(process), sites)
            });
            (reader, tables, process_time().saturating_sub(start))
        };
        reading.thread = thread::Builder::new().spawn(read).ok();
        Ok(())
    }

    /// Returns whether the process has executed another recorded program; if so, reports it.
    fn replaced(&self) -> bool {
        let images = images::list(&self.recording).unwrap_or_default();
        let is_next = |image: &Image| image.is_running && image.pid == self.running.pid;
        match images.into_iter().rfind(is_next) {
            Some(image) => {
                self.reports.send(Update::Replaced(image));
                true
            }
            None => false,
        }
    }

    /// Describes how the process ended, according to its header.
    fn ending(&self, observer: &Observer) -> String {
        match observer.header() {
            Ok(header) if header.end_kind == End::Exited as u32 => {
                format!("exited with status {}", header.end_code)
            }
            Ok(header) if header.end_kind == End::Exec as u32 => {
                "executed a program that is not recorded".to_owned()
            }
            _ => "ended".to_owned(),
        }
    }
}

/// Returns the processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Returns the processor time of the whole command, because several threads look up names.
fn process_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
