//! For `heaptide run --mode trace`: moves events out of the live profiles of a recording into trace
//! files, while the programs run and after they have ended.
//!
//! A program writes events into extents of its profile, and continues with the next extent when one
//! is full. Moved extents are reused, so the profile stays small. If nothing moves them, no events
//! are lost, but the profile grows.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use heaptide_analysis::trace::KeepTrace;
use heaptide_analysis::trace::live::{Events, Opened};
use heaptide_clock as clock;
use heaptide_format::TRACE_EXTENT_MAX;

use crate::error::Error;
use crate::lead::Lead;
use crate::profiles::{Ends, Listing, Writer};

/// Incompressible events grow by this fraction when they are moved, because of the headers of the
/// extent and the compressor: about 100 bytes per 16 KiB at least.
const HEADS_PART: u64 = 128;
/// The same for the header and last extent of a file, in bytes.
const HEADS_LEAST: u64 = 1024;
/// Polling intervals of profiles: the shortest while many events arrive, the longest while none do.
const SOONEST: Duration = Duration::from_millis(5);
const LATEST: Duration = Duration::from_millis(100);
/// Interval of checks for ended processes.
const ENDS: Duration = Duration::from_millis(500);

/// Name of the thread in messages.
const THREAD: &str = "the thread that moves events";

/// Moves events until it is finished.
#[derive(Debug)]
pub struct Mover {
    stop: Sender<()>,
    thread: JoinHandle<Result<(), Error>>,
}

impl Mover {
    /// Starts a thread that moves the events of all processes of a recording while this command has
    /// the lead, and drops old events as `keep` specifies.
    ///
    /// Errors: the thread cannot be started.
    pub fn start(recording: &Path, keep: KeepTrace, lead: Arc<Lead>) -> Result<Mover, Error> {
        let mut moving = Moving::new(recording, keep);
        let (stop, stopped) = channel();
        let thread = Builder::new().spawn(move || {
            while !lead.is_ours() {
                if stopped.recv_timeout(LATEST) != Err(RecvTimeoutError::Timeout) {
                    return Ok(());
                }
            }
            moving.until(&stopped);
            moving.end()
        });
        let failed = |source| Error::NoThread { which: THREAD, source };
        Ok(Mover { stop, thread: thread.map_err(failed)? })
    }

    /// Moves the remaining events of ended processes, and ends the thread.
    ///
    /// Errors: the first failed move; its events are still in the profile.
    pub fn finish(self) -> Result<(), Error> {
        drop(self.stop);
        let died = |_| Err(Error::Panicked { which: THREAD });
        self.thread.join().unwrap_or_else(died)
    }
}

/// A live profile.
struct Source {
    events: Box<Events>,
    writer: Writer,
    /// Bytes of its extents of events.
    live_bytes: u64,
    /// The limit of the recording's traces that the process observes, or 0, and the bytes of other
    /// traces that it was last notified of.
    limit: u64,
    told: u64,
}

struct Moving {
    keep: KeepTrace,
    listing: Listing,
    sources: Vec<Source>,
    /// Bytes of the trace files of ended processes.
    finished_bytes: u64,
    next_ends: Instant,
    ends: Ends,
    /// Last failed move, which is retried.
    refused: Option<Error>,
    /// First failed move of an ended process, which is not retried.
    left: Option<Error>,
}

impl Moving {
    fn new(recording: &Path, keep: KeepTrace) -> Moving {
        Moving {
            keep,
            listing: Listing::new(recording),
            sources: Vec::new(),
            finished_bytes: 0,
            next_ends: Instant::now(),
            ends: Ends::new(recording),
            refused: None,
            left: None,
        }
    }

    fn until(&mut self, stopped: &Receiver<()>) {
        let mut pause = SOONEST;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            self.look_for_more();
            let moved = self.move_full();
            self.tell_elsewhere();
            if Instant::now() >= self.next_ends {
                self.next_ends = Instant::now() + ENDS;
                self.finish_those_over();
            }
            pause = match moved {
                0 => (pause * 5 / 4).min(LATEST),
                _ => (pause / 2).max(SOONEST),
            };
        }
    }

    fn end(mut self) -> Result<(), Error> {
        self.look_for_more();
        self.ends.search_again();
        self.finish_those_over();
        self.move_full();
        self.tell_elsewhere();
        self.left.or(self.refused).map_or(Ok(()), Err)
    }

    /// Opens profiles that are new in the recording.
    fn look_for_more(&mut self) {
        let sources = &mut self.sources;
        self.listing.look_for_more(|profile| {
            match Events::open(profile).ok()? {
                Opened::NotYet => return None,
                Opened::Untraced => {}
                Opened::Traced(events) => sources.push(Source::new(events)?),
            }
            Some(())
        });
    }

    /// Moves full extents of all profiles. Returns how many were moved. At the limit nothing is
    /// moved, so that a process runs out of extents and ends its trace.
    fn move_full(&mut self) -> usize {
        let mut moved = 0;
        let mut all = self.bytes();
        self.refused = None;
        for source in &mut self.sources {
            let Ok(header) = source.events.header() else {
                continue;
            };
            let (before, elsewhere) = (source.events.moved_bytes(), all - source.live_bytes);
            source.live_bytes = header.trace_bytes;
            let done = if source.limit > 0 {
                source.move_within_limit(header.file_end, elsewhere)
            } else {
                source.events.move_full(header.file_end, u64::MAX)
            };
            match done {
                Ok(some) => moved += some,
                Err(error) => self.refused = Some(error.into()),
            }
            if source.events.moved_bytes() > before {
                let dropped = source.events.drop_oldest(&self.keep, clock::now_ns());
                self.refused = self.refused.take().or(dropped.err().map(Error::from));
            }
            all = (elsewhere + source.live_bytes + source.events.moved_bytes())
                .saturating_sub(before);
        }
        moved
    }

    /// Notifies each process of the size of all other traces, including the headers of extents that
    /// are still to be moved.
    fn tell_elsewhere(&mut self) {
        let live: u64 = self.sources.iter().map(|source| source.live_bytes).sum();
        let all = self.bytes() + live / HEADS_PART + HEADS_LEAST;
        for source in self.sources.iter_mut().filter(|source| source.limit > 0) {
            let elsewhere = all.saturating_sub(source.live_bytes);
            if elsewhere != source.told && source.events.tell_elsewhere(elsewhere).is_ok() {
                source.told = elsewhere;
            }
        }
    }

    /// Returns the bytes of all traces of the recording.
    fn bytes(&self) -> u64 {
        let of = |source: &Source| source.live_bytes + source.events.moved_bytes();
        self.finished_bytes + self.sources.iter().map(of).sum::<u64>()
    }

    /// Moves the remaining events of ended processes.
    fn finish_those_over(&mut self) {
        let all = std::mem::take(&mut self.sources);
        let (over, on) = self.ends.divide(all, |source| &source.writer);
        self.sources = on;
        for mut source in over {
            self.finish(&mut source);
        }
    }

    fn finish(&mut self, source: &mut Source) {
        let moved = self.finished_bytes
            + self.sources.iter().map(|other| other.events.moved_bytes()).sum::<u64>();
        let has_room = source.limit == 0 || moved < source.limit;
        let done =
            if has_room { source.events.finish() } else { source.events.finish_without_room() };
        let done =
            done.and_then(|()| source.events.drop_oldest(&self.keep, clock::now_ns()).map(drop));
        self.finished_bytes += source.events.moved_bytes();
        if let Err(error) = done {
            self.left.get_or_insert(error.into());
        }
    }
}

impl Source {
    /// Returns `None` if the header cannot be read.
    fn new(events: Box<Events>) -> Option<Source> {
        let header = events.header().ok()?;
        let writer = Writer::of(events.profile(), header.pid);
        Some(Source { events, writer, live_bytes: 0, limit: header.trace_limit, told: 0 })
    }

    /// Moves full extents one after the other, as far as the limit allows; `elsewhere` are the
    /// bytes of traces outside the profile. Returns their number.
    ///
    /// The process may get a new extent at the same time. It counts that and then reads how much is
    /// elsewhere, so the room for the move is announced before the count is read.
    ///
    /// Errors: the same as those of [`Events::move_full`].
    fn move_within_limit(
        &mut self,
        file_end: u64,
        elsewhere: u64,
    ) -> Result<usize, heaptide_analysis::Error> {
        let begin = self.events.moved_bytes();
        let mut moved = 0;
        while self.events.has_full(file_end)? {
            let elsewhere = elsewhere + (self.events.moved_bytes() - begin);
            let with_room = elsewhere + TRACE_EXTENT_MAX;
            // An announcement without room for it would end the trace before its limit.
            if !self.fits(with_room) || self.events.tell_elsewhere(with_room).is_err() {
                break;
            }
            self.told = with_room;
            let Ok(header) = self.events.header() else { break };
            self.live_bytes = header.trace_bytes;
            if !self.fits(with_room) {
                break;
            }
            moved += self.events.move_full(file_end, TRACE_EXTENT_MAX)?;
        }
        Ok(moved)
    }

    /// Returns whether the limit allows these bytes outside the profile.
    fn fits(&self, elsewhere: u64) -> bool {
        elsewhere.saturating_add(self.live_bytes) <= self.limit
    }
}
