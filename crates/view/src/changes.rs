//! Reports changes while the page is open: a thread polls running processes while clients listen,
//! and sends the changes to all of them.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use rustc_hash::FxHashMap;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::catalog::{Catalog, Listed, Numbered};
use crate::live::Live;
use crate::store::Store;

/// The shortest polling interval of processes.
const PERIOD: Duration = Duration::from_millis(250);
/// The longest polling interval.
const PERIOD_MAX: Duration = Duration::from_secs(10);
/// The polling interval as a multiple of its processor time: at most 1.2 % of a core.
const REST: u32 = 80;
/// The interval of reports on an idle process.
const IDLE: Duration = Duration::from_secs(1);
/// The interval of checks for new and ended processes.
const CHECK: Duration = Duration::from_secs(1);
/// The most events that a slow client may lag behind.
const BEHIND: usize = 256;

/// A change, in the form sent to clients.
#[derive(Clone)]
pub(crate) struct Change {
    /// The name of the event.
    pub(crate) event: &'static str,
    /// JSON.
    pub(crate) data: Arc<str>,
}

/// The state of a process.
#[derive(Serialize)]
struct LiveData {
    process: u32,
    time_ns: u64,
    live_bytes: u64,
    resident_bytes: u64,
    allocations: u64,
    /// How it ended; `None` if it is running.
    ended: Option<String>,
}

/// A process whose tables are out of date.
#[derive(Serialize)]
struct TablesData {
    process: u32,
}

/// Reports changes.
pub(crate) struct Changes {
    sender: broadcast::Sender<Change>,
    /// Whether the thread is running.
    is_looking: Mutex<bool>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
}

impl Changes {
    /// Creates it without listeners.
    pub(crate) fn new(catalog: Arc<Catalog>, store: Arc<Store>) -> Changes {
        let (sender, _) = broadcast::channel(BEHIND);
        Changes { sender, is_looking: Mutex::default(), catalog, store }
    }

    /// Starts to listen.
    pub(crate) fn listen(self: &Arc<Self>) -> broadcast::Receiver<Change> {
        let receiver = self.sender.subscribe();
        let mut is_looking = self.is_looking.lock().unwrap_or_else(|error| error.into_inner());
        if !*is_looking {
            let own = self.clone();
            *is_looking = thread::Builder::new().spawn(move || own.look()).is_ok();
        }
        receiver
    }

    /// Polls while there are listeners.
    fn look(&self) {
        let mut looker =
            Looker { changes: self, live: FxHashMap::default(), sent: Sent::default() };
        loop {
            {
                let mut is_looking =
                    self.is_looking.lock().unwrap_or_else(|error| error.into_inner());
                if self.sender.receiver_count() == 0 {
                    *is_looking = false;
                    return;
                }
            }
            let begin = thread_time();
            looker.look();
            let took = thread_time().saturating_sub(begin);
            thread::sleep((took * REST).clamp(PERIOD, PERIOD_MAX));
        }
    }

    fn send(&self, event: &'static str, data: &impl Serialize) {
        let data: Arc<str> = serde_json::to_string(data).unwrap_or_default().into();
        let _ = self.sender.send(Change { event, data }); // the last listener has left
    }
}

/// The time of the last report of a process.
#[derive(Default)]
struct Sent {
    live: FxHashMap<u32, Instant>,
    tables: FxHashMap<u32, Instant>,
    checked: Option<Instant>,
}

/// Polls everything that is running.
struct Looker<'a> {
    changes: &'a Changes,
    live: FxHashMap<u32, Live>,
    sent: Sent,
}

impl Looker<'_> {
    fn look(&mut self) {
        if self.sent.checked.is_none_or(|checked| checked.elapsed() >= CHECK) {
            self.check();
            self.sent.checked = Some(Instant::now());
        }
        let mut numbers: Vec<u32> = self.live.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            self.look_at(number);
        }
    }

    /// Checks for new and ended processes.
    fn check(&mut self) {
        let catalog = &self.changes.catalog;
        if self.sent.checked.is_some() && !catalog.is_outdated() {
            return;
        }
        let before = summary(&catalog.listed());
        let Ok(listed) = catalog.refresh() else { return };
        let running: Vec<Numbered> =
            listed.iter().flat_map(|listed| &listed.images).cloned().collect();
        for numbered in &running {
            if let Some(running) = numbered.running()
                && let std::collections::hash_map::Entry::Vacant(entry) =
                    self.live.entry(numbered.number)
                && let Ok(live) = Live::open(&running)
            {
                entry.insert(live);
            }
        }
        let is_over = |number: &u32| {
            let found = running.iter().find(|numbered| numbered.number == *number);
            found.is_none_or(|numbered| !numbered.image.is_running)
        };
        let over: Vec<u32> = self.live.keys().copied().filter(is_over).collect();
        for number in over {
            self.end(number);
        }
        if self.sent.checked.is_some() || before != summary(&listed) {
            self.changes.send("recordings", &serde_json::Map::new());
        }
    }

    /// Reports a process for the last time.
    fn end(&mut self, number: u32) {
        let Some(mut live) = self.live.remove(&number) else { return };
        let _ = live.look(); // on failure, the last values suffice
        let ended = Some(live.ending());
        self.report(number, &live, ended);
        if self.changes.store.last_read(number).is_some() {
            self.changes.send("tables", &TablesData { process: number });
        }
    }

    fn look_at(&mut self, number: u32) {
        let Some(mut live) = self.live.remove(&number) else { return };
        let has_changed = live.look();
        let is_due = || {
            let last = self.sent.live.get(&number);
            last.is_none_or(|last| last.elapsed() >= IDLE)
        };
        if matches!(has_changed, Ok(true)) || is_due() {
            self.report(number, &live, None);
            self.sent.live.insert(number, Instant::now());
        }
        self.report_tables(number, &live);
        self.live.insert(number, live);
    }

    /// Reports outdated tables, at most as often as they are read again.
    fn report_tables(&mut self, number: u32, live: &Live) {
        let Some(loaded) = self.changes.store.last_read(number) else { return };
        let rest = Store::rest(&loaded);
        let last = self.sent.tables.get(&number);
        let is_outdated = loaded.read_at.elapsed() >= rest
            && live.has_changed_since(loaded.read_at, loaded.allocations);
        if is_outdated && last.is_none_or(|last| last.elapsed() >= rest) {
            self.changes.send("tables", &TablesData { process: number });
            self.sent.tables.insert(number, Instant::now());
        }
    }

    fn report(&self, number: u32, live: &Live, ended: Option<String>) {
        let data = LiveData {
            process: number,
            time_ns: live.now_ns(),
            live_bytes: live.state.live_bytes,
            resident_bytes: live.resident_bytes(),
            allocations: live.state.allocations,
            ended,
        };
        self.changes.send("live", &data);
    }
}

/// Returns the properties of recordings whose changes are reported.
fn summary(listed: &[Listed]) -> Vec<(u32, bool)> {
    let images = listed.iter().flat_map(|listed| &listed.images);
    images.map(|numbered| (numbered.number, numbered.image.is_running)).collect()
}

/// Returns the processor time of the calling thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
