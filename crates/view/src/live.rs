//! Polls the counters of one running process.

use std::time::Instant;

use heaptide_analysis::Error;
use heaptide_analysis::recording::live::{Counts, Observer};
use heaptide_analysis::recording::running::Running;
use heaptide_clock as clock;
use heaptide_format::{End, FileHeader};

/// The counters of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct State {
    pub(crate) live_bytes: u64,
    pub(crate) allocations: u64,
}

/// A process that is polled.
pub(crate) struct Live {
    running: Running,
    observer: Observer,
    start_ns: u64,
    /// Its counters at the last poll.
    pub(crate) state: State,
    /// When they last changed; `None` if they have not changed since the first poll.
    changed: Option<Instant>,
    /// Whether it has been polled.
    is_known: bool,
}

impl Live {
    /// Opens the profile of a running process.
    ///
    /// Errors: its profile cannot be read.
    pub(crate) fn open(running: &Running) -> Result<Live, Error> {
        let observer = Observer::open(&running.file)?;
        let start_ns = observer.header()?.start_monotonic_ns;
        let (state, changed, is_known) = (State::default(), None, false);
        Ok(Live { running: running.clone(), observer, start_ns, state, changed, is_known })
    }

    /// Polls the process; returns whether counters have changed.
    ///
    /// Errors: its profile cannot be read.
    pub(crate) fn look(&mut self) -> Result<bool, Error> {
        let Some(look) = self.observer.look()? else { return Ok(false) };
        let mut sum = Counts::default();
        look.counts.iter().for_each(|counts| sum.add(counts));
        let (mut live_bytes, mut allocations) = (sum.live_bytes, sum.allocations);
        if look.counts.is_empty() {
            // Recorded without sites.
            live_bytes = u64::try_from(look.header.published_live).unwrap_or(0);
            let sample = look.samples.last();
            allocations = sample.map_or(self.state.allocations, |sample| sample.allocations);
        }
        let state = State { live_bytes, allocations };
        let has_changed = state != self.state;
        if has_changed {
            self.changed = self.is_known.then(Instant::now);
            self.state = state;
        }
        self.is_known = true;
        Ok(has_changed)
    }

    /// Returns whether counters have changed since a time at which it had this many allocations.
    pub(crate) fn has_changed_since(&self, time: Instant, allocations: u64) -> bool {
        match self.changed {
            Some(changed) => changed > time,
            None => self.is_known && self.state.allocations != allocations,
        }
    }

    /// Returns the nanoseconds from its start until now.
    pub(crate) fn now_ns(&self) -> u64 {
        clock::now_ns().saturating_sub(self.start_ns)
    }

    /// Returns resident bytes; 0 if unknown.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.running.memory().map_or(0, |(resident, _)| resident)
    }

    /// Describes how the process ended, according to its header.
    pub(crate) fn ending(&self) -> String {
        let is = |header: &FileHeader, end: End| header.end_kind == end as u32;
        match self.observer.header() {
            Ok(header) if is(&header, End::Exited) => {
                format!("exited with status {}", header.end_code)
            }
            Ok(header) if is(&header, End::Exec) => "became another program".to_owned(),
            _ => "ended".to_owned(),
        }
    }
}
