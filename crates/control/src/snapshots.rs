//! Snapshots of the programs of a recording: at an interval, by triggers, on request; and the ring
//! that keeps the newest of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heaptide_analysis::recording::ring::{Keep, Ring};
use heaptide_analysis::recording::room::Room;

use crate::error::Error;
use crate::lead::Lead;
use crate::programs::Programs;
use crate::triggers::Trigger;

/// Programs are looked after first so soon, and last so seldom: an idle one may never answer.
const SETTLE_FIRST: Duration = Duration::from_millis(5);
const SETTLE_LAST: Duration = Duration::from_secs(5);
/// Values of programs are looked at so often, and for one part in so many of the time at most.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_PART: u32 = 50;
/// Whether programs have ended is asked so often at least where it matters.
const ENDS: Duration = Duration::from_millis(500);
/// Whether there are too many snapshots, or too old ones, is asked so often: programs take some
/// themselves.
const TIDY: Duration = Duration::from_secs(30);

/// Whether a recording with a limit takes too much is asked so often.
const ROOM: Duration = Duration::from_secs(1);

/// When snapshots are taken, and which are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The interval, if any.
    pub every: Option<Duration>,
    /// Reasons to take one.
    pub triggers: Vec<Trigger>,
    /// Which are kept.
    pub keep: Keep,
    /// The process whose programs are looked at; all of the recording if none is given.
    pub only: Option<u32>,
    /// The bytes on disk that the recording may take, if that is limited.
    pub max_recording: Option<u64>,
    /// The process that this command has started or attached to, as it calls itself: its profile
    /// stays whatever the limit is.
    pub started: Option<u32>,
}

impl Plan {
    /// Whether there is nothing to do.
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

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Snapshots that were taken.
    pub taken: u64,
    /// Snapshots that were removed.
    pub removed: u64,
}

/// What the thread is asked for.
enum Order {
    /// A snapshot of this name of every program.
    Take(String),
    /// How a process ended: whether it failed.
    Ended(u32, bool),
}

impl Snapshots {
    /// Starts a thread that takes snapshots of the programs of a recording, and removes those that
    /// are not kept, while this command has the lead. The first snapshot that cannot be taken, and
    /// the first that cannot be removed, are reported.
    ///
    /// Errors: there can be no thread.
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

    /// Takes a snapshot of this name of every program that runs.
    pub fn take(&self, name: &str) {
        self.order(Order::Take(name.to_owned()));
    }

    /// A function that does the same as [`Snapshots::take`], wherever it is called.
    pub fn taker(&self, name: &str) -> impl Fn() + Send + 'static {
        let (orders, name) = (self.orders.clone(), name.to_owned());
        move || {
            if let Some(orders) = &orders {
                let _ = orders.send(Order::Take(name.clone())); // not once all has ended
            }
        }
    }

    /// Notes how the process ended that this command has started, before the end.
    pub fn note_end(&self, pid: u32, has_failed: bool) {
        self.order(Order::Ended(pid, has_failed));
    }

    /// Keeps the last state of programs that failed, and ends.
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

/// What the thread works with.
struct Taking {
    programs: Programs,
    ring: Ring,
    room: Option<Room>,
    max_recording: u64,
    /// How often is asked whether something is to be removed; none if nothing ever is.
    tidy: Option<Duration>,
    every: Option<Duration>,
    /// When the next one is due by the interval.
    next: Option<Instant>,
    begun: Instant,
    next_look: Instant,
    next_tidy: Instant,
    /// How long to wait for programs that have not put a snapshot on their timeline.
    settle: Option<Duration>,
    removed: u64,
    reports: Reports,
}

/// Errors, of which the first of each kind is reported: standard error is the program's.
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
            next: every.map(|every| now + every),
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

    /// Until something is due.
    fn pause(&self) -> Duration {
        let now = Instant::now();
        let until = |at: Instant| at.saturating_duration_since(now);
        let look = self.programs.are_watched().then(|| until(self.next_look));
        let ends = self.programs.has_failures().then_some(ENDS);
        let tidy = self.tidy.map(|_| until(self.next_tidy));
        let all = [self.next.map(until), self.settle, look, ends, tidy];
        all.into_iter().flatten().min().unwrap_or(SETTLE_LAST)
    }

    /// Nothing is done while another command has the lead.
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

    /// Does what is due.
    fn work(&mut self) {
        let now = Instant::now();
        if self.next.is_some_and(|next| next <= now) {
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

    /// Looks at programs: which there are, and what their triggers compare.
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

    /// Intervals count from the start: one whose time is past by the end of a copy is left out.
    fn set_next(&mut self) {
        if let (Some(next), Some(every)) = (&mut self.next, self.every) {
            while *next <= Instant::now() {
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
