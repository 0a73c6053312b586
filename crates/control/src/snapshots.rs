//! Snapshots of the programs of a recording: at an interval, by triggers, on request; and removal
//! of old ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heaptide_analysis::recording::ring::{Keep, Ring};
use heaptide_analysis::recording::room::Room;
use heaptide_clock as clock;

use crate::error::Error;
use crate::lead::Lead;
use crate::programs::Programs;
use crate::triggers::Trigger;

/// Shortest and longest interval of checks whether programs have added their snapshots. An idle
/// program may never do so.
const SETTLE_FIRST: Duration = Duration::from_millis(5);
const SETTLE_LAST: Duration = Duration::from_secs(5);
/// Polling interval of values for triggers; polling takes at most one part in `LOOK_PART` of the
/// time.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_PART: u32 = 50;
/// Longest interval of checks for ended programs if a trigger depends on failures.
const ENDS: Duration = Duration::from_millis(500);
/// Interval of checks for too many or too old snapshots; programs also take some themselves.
const TIDY: Duration = Duration::from_secs(30);

/// Interval of checks of a limited recording's size.
const ROOM: Duration = Duration::from_secs(1);

/// When snapshots are taken, and which are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The interval, if any.
    pub every: Option<Duration>,
    /// Conditions that cause a snapshot.
    pub triggers: Vec<Trigger>,
    /// Which snapshots are kept.
    pub keep: Keep,
    /// Restricts it to the programs of this process; otherwise all programs of the recording.
    pub only: Option<u32>,
    /// The maximum size of the recording on disk in bytes, if limited.
    pub max_recording: Option<u64>,
    /// The id, as seen by the process, of the process that this command started or attached to. Its
    /// profile is kept regardless of the limit.
    pub started: Option<u32>,
}

impl Plan {
    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.every.is_none()
            && self.triggers.is_empty()
            && !self.keep.is_limited()
            && self.max_recording.is_none()
    }
}

/// Takes snapshots until it is dropped.
#[derive(Debug)]
pub struct Snapshots {
    /// Dropped to end the thread.
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<Count>>,
}

/// Numbers of snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Snapshots taken.
    pub taken: u64,
    /// Snapshots removed.
    pub removed: u64,
}

/// A message to the thread.
enum Order {
    /// Take a snapshot with this name of each program.
    Take(String),
    /// A process ended; the flag is whether it failed.
    Ended(u32, bool),
}

impl Snapshots {
    /// Starts a thread that takes snapshots of the programs of a recording and removes those that
    /// are not kept, while this command has the lead. Reports the first snapshot that cannot be
    /// taken, and the first that cannot be removed.
    ///
    /// Errors: the thread cannot be started.
    pub fn start(
        recording: &Path,
        plan: Plan,
        lead: Arc<Lead>,
        report: impl Fn(Error) + Send + 'static,
    ) -> Result<Snapshots, Error> {
        let mut taking = Taking::new(recording, plan, Box::new(report));
        let (orders, given) = channel();
        let thread = Builder::new().spawn(move || {
            taking.until_the_end(&lead, &given);
            Count { taken: taking.programs.taken(), removed: taking.removed }
        });
        let which = "the thread that takes snapshots";
        let thread = thread.map_err(|source| Error::NoThread { which, source })?;
        Ok(Snapshots { orders: Some(orders), thread: Some(thread) })
    }

    /// Takes a snapshot with this name of each running program.
    pub fn take(&self, name: &str) {
        self.order(Order::Take(name.to_owned()));
    }

    /// Returns a function that does the same as [`Snapshots::take`] and can be called from any
    /// thread.
    pub fn taker(&self, name: &str) -> impl Fn() + Send + 'static {
        let (orders, name) = (self.orders.clone(), name.to_owned());
        move || {
            if let Some(orders) = &orders {
                let _ = orders.send(Order::Take(name.clone())); // fails after the end
            }
        }
    }

    /// Notes how the process ended that this command started; call it before [`Snapshots::finish`].
    pub fn note_end(&self, pid: u32, has_failed: bool) {
        self.order(Order::Ended(pid, has_failed));
    }

    /// Keeps the last state of programs that failed, and ends the thread.
    pub fn finish(mut self) -> Count {
        self.orders.take();
        let count = self.thread.take().map(JoinHandle::join);
        count.and_then(Result::ok).unwrap_or_default()
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order); // the thread lives as long as this
        }
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        self.orders.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Taking {
    programs: Programs,
    ring: Ring,
    room: Option<Room>,
    max_recording: u64,
    /// Interval of checks for snapshots to remove; `None` if none are ever removed.
    tidy: Option<Duration>,
    every: Option<Duration>,
    /// When the next snapshot by interval is due, by the clock of recordings.
    next: Option<Duration>,
    begun: Instant,
    next_look: Instant,
    next_tidy: Instant,
    /// Delay until the next check of programs that have not added a snapshot to their timeline.
    settle: Option<Duration>,
    removed: u64,
    reports: Reports,
}

/// Reports only the first error of each kind, because the program shares standard error.
struct Reports {
    report: Box<dyn Fn(Error) + Send>,
    has_taken: bool,
    has_removed: bool,
}

impl Reports {
    fn taken(&mut self, error: Error) {
        let just_starts = matches!(error, Error::NoHeader { .. });
        if !just_starts && !std::mem::replace(&mut self.has_taken, true) {
            (self.report)(error);
        }
    }

    fn removed(&mut self, error: Error) {
        if !std::mem::replace(&mut self.has_removed, true) {
            (self.report)(error);
        }
    }
}

impl Taking {
    fn new(recording: &Path, plan: Plan, report: Box<dyn Fn(Error) + Send>) -> Taking {
        let Plan { every, triggers, keep, only, max_recording, started } = plan;
        let tidy = match max_recording {
            Some(_) => Some(ROOM),
            None => keep.is_limited().then_some(TIDY),
        };
        let now = Instant::now();
        Taking {
            programs: Programs::new(recording, only, started.is_some(), triggers),
            ring: Ring::new(recording, keep),
            room: max_recording.map(|bytes| Room::new(recording, bytes, started)),
            max_recording: max_recording.unwrap_or(0),
            tidy,
            every,
            next: every.map(|every| clock::now() + every),
            begun: now,
            next_look: now,
            next_tidy: now,
            settle: None,
            removed: 0,
            reports: Reports { report, has_taken: false, has_removed: false },
        }
    }

    fn until_the_end(&mut self, lead: &Lead, given: &Receiver<Order>) {
        loop {
            match given.recv_timeout(self.pause()) {
                Ok(order) if lead.is_ours() => self.perform(order),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if lead.is_ours() => self.work(),
                Err(RecvTimeoutError::Timeout) => self.pass(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if lead.is_ours() {
            let reports = &mut self.reports;
            self.programs.search_again();
            self.programs.look_for_more();
            self.programs.search_again();
            self.programs.look_at_ends(&mut |error| reports.taken(error));
            self.tidy();
        }
    }

    /// Returns the time until something is due.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let until = |at: Instant| at.saturating_duration_since(now);
        let look = self.programs.are_watched().then(|| until(self.next_look));
        let ends = self.programs.has_failures().then_some(ENDS);
        let tidy = self.tidy.map(|_| until(self.next_tidy));
        let next = self.next.map(|at| clock::longest_wait(at.saturating_sub(clock::now())));
        let all = [next, self.settle, look, ends, tidy];
        all.into_iter().flatten().min().unwrap_or(SETTLE_LAST)
    }

    /// Skips work while another command has the lead.
    fn pass(&mut self) {
        self.next_look = Instant::now() + LOOK;
        self.next_tidy = Instant::now() + TIDY;
        self.set_next();
    }

    fn perform(&mut self, order: Order) {
        match order {
            Order::Take(name) => self.take_all(&name),
            Order::Ended(pid, has_failed) => self.programs.note_end(pid, has_failed),
        }
    }

    fn take_all(&mut self, name: &str) {
        let reports = &mut self.reports;
        self.programs.look_for_more();
        self.programs.search_again();
        self.programs.look_at_ends(&mut |error| reports.taken(error));
        self.programs.take_all(name, &mut |error| reports.taken(error));
        self.settle = Some(SETTLE_FIRST);
        self.tidy();
    }

    /// Does all work that is due.
    fn work(&mut self) {
        let now = Instant::now();
        if self.next.is_some_and(|next| next <= clock::now()) {
            self.take_all("");
            self.set_next();
        }
        if self.next_look <= now {
            self.look(now);
        }
        if let Some(pause) = self.settle {
            let is_settling = self.programs.settle();
            self.settle = is_settling.then(|| (pause * 2).min(SETTLE_LAST));
        }
        if self.tidy.is_some() && self.next_tidy <= now {
            self.tidy();
        }
    }

    /// Updates the list of programs, and compares values with triggers.
    fn look(&mut self, now: Instant) {
        let reports = &mut self.reports;
        self.programs.look_for_more();
        if self.programs.are_watched() {
            let since = now - self.begun;
            if self.programs.look(since, &mut |error| reports.taken(error)) {
                self.settle = Some(SETTLE_FIRST);
                self.tidy();
            }
        }
        let reports = &mut self.reports;
        self.programs.look_at_ends(&mut |error| reports.taken(error));
        self.next_look = Instant::now() + LOOK.max(now.elapsed() * LOOK_PART);
    }

    /// Intervals count from the start; those that have passed during a copy are skipped.
    fn set_next(&mut self) {
        if let (Some(next), Some(every)) = (&mut self.next, self.every) {
            while *next <= clock::now() {
                *next += every;
            }
        }
    }

    fn tidy(&mut self) {
        let begun = Instant::now();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        match self.ring.tidy(now_ns) {
            Ok(removed) => self.removed += removed as u64,
            Err(error) => self.reports.removed(error.into()),
        }
        match self.room.as_ref().map(Room::make) {
            Some(Ok(made)) if made.bytes > self.max_recording => {
                let (bytes, limit) = (made.bytes, self.max_recording);
                self.reports.removed(Error::NoRoom { bytes, limit });
            }
            Some(Err(error)) => self.reports.removed(error.into()),
            _ => {}
        }
        let pause = self.tidy.unwrap_or(TIDY).max(begun.elapsed() * LOOK_PART);
        self.next_tidy = Instant::now() + pause;
    }
}
