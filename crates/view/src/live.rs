//! The counters of one running process, read again and again.

use std::time::{Duration, Instant};

use heaptide_analysis::Error;
use heaptide_analysis::recording::live::{Counts, Observer};
use heaptide_analysis::recording::running::Running;
use heaptide_format::{End, FileHeader};
use nix::time::{ClockId, clock_gettime};

/// What a process has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct State {
    pub(crate) live_bytes: u64,
    pub(crate) allocations: u64,
}

/// A process that is looked at.
pub(crate) struct Live {
    running: Running,
    observer: Observer,
    start_ns: u64,
    /// What it had counted at the last look.
    pub(crate) state: State,
    /// When that changed last; none since the first look.
    changed: Option<Instant>,
    /// Whether there was a look.
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

    /// Looks once more; whether anything was counted since.
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

    /// Whether it has counted anything since a time, at which it had so many allocations.
    pub(crate) fn has_changed_since(&self, time: Instant, allocations: u64) -> bool {
        match self.changed {
            Some(changed) => changed > time,
            None => self.is_known && self.state.allocations != allocations,
        }
    }

    /// Nanoseconds from its start until now.
    pub(crate) fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).saturating_sub(self.start_ns)
    }

    /// Resident bytes; 0 if they are not known.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.running.memory().map_or(0, |(resident, _)| resident)
    }

    /// How the process ended, as far as its header has it.
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
