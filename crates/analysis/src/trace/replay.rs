//! Reads the events of a process in order, on demand.

use std::cmp::Reverse;
use std::sync::Arc;

use heaptide_format::TraceCut;

use super::ahead::Ahead;
use super::before::Before;
use super::blocks::{Blocks, Counts, Facts, Given, LiveBytes, SiteFacts, Unpaired};
use super::chunks::Files;
use super::clock::Clock;
use super::event::{Event, LiveBlock};
use super::lanes::{Lanes, Lost, Span};
use super::table::EXPECTED_MAX;
use crate::error::Error;
use crate::files::file_names;
use crate::model::{Process, ScopeId, Trace};
use crate::quantity::{bytes, count, counted};

/// Approximate number of events in a batch.
const BATCH: usize = 2048;

/// The events of a process. Events of excluded sites are skipped; but pairing with blocks, numbers
/// and live bytes are those of the whole process.
///
/// For each open image, a separate thread reads, decodes and merges records ahead. Memory is
/// bounded by the number of live blocks, a quarter of a megabyte for each lane and three megabytes
/// for each open image.
pub struct Replay {
    /// Images that have not begun, in reverse order.
    waiting: Vec<Trace>,
    /// Images with remaining events.
    open: Vec<Image>,
    /// Images without remaining events that end later.
    ending: Vec<Ending>,
    facts: Facts,
    counts: Counts,
    /// Events buffered for the iterator, in reverse order.
    ready: Vec<Event>,
    /// Live blocks of closed images.
    live: Vec<LiveBlock>,
    unpaired: Unpaired,
    notes: Vec<String>,
}

/// An image without remaining events: its end, and its live bytes until then.
struct Ending {
    end_ns: u64,
    live: LiveBytes,
    /// Frees of its live blocks, if they are returned.
    frees: Vec<Event>,
}

/// One process image.
struct Image {
    ahead: Ahead,
    blocks: Blocks,
    /// When it ended.
    end_ns: u64,
    /// When its trace ended for lack of room.
    stopped_ns: Option<u64>,
    /// Counters before the beginning of its trace, if the oldest part was dropped.
    before: Option<Before>,
}

impl Process {
    /// Opens the events. Those of joined processes are merged in order of time.
    ///
    /// Errors: events were not recorded; a file cannot be read, or is not a trace. Damaged parts
    /// are skipped and described by [`Replay::notes`].
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let Err(error) = process.replay() else { panic!("it has none") };
    /// let message = "x: no events recorded; record them with `heaptide run --mode trace`";
    /// assert_eq!(error.to_string(), message);
    /// ```
    pub fn replay(&self) -> Result<Replay, Error> {
        self.replay_given(Given::Selected)
    }

    /// Opens all events, including those before a reset and those of excluded sites, for tracking
    /// live blocks: a block that leaves the selection is freed or relabelled.
    ///
    /// Errors: the same as those of [`Process::replay`].
    pub(crate) fn replay_whole(&self) -> Result<Replay, Error> {
        self.replay_given(Given::Whole)
    }

    fn replay_given(&self, given: Given) -> Result<Replay, Error> {
        if self.time.traces.is_empty() {
            let path = self.identity.file.clone();
            return Err(match file_names::snapshot(&path) {
                Some(_) => Error::NoTraceInSnapshot { path },
                None => Error::NoTrace { path },
            });
        }
        let mut waiting = self.time.traces.clone();
        waiting.sort_by_key(|trace| Reverse(trace.after_ns));
        let sites: Arc<[SiteFacts]> = self.tables.sites.iter().map(SiteFacts::of).collect();
        let scopes: Arc<[ScopeId]> = self.tables.scopes.iter().map(|scope| scope.parent).collect();
        let labellings = waiting.iter().map(|trace| trace.labellings).max().unwrap_or(0);
        let facts = Facts { sites, scopes, labellings, given };
        let first = waiting.pop().map(|trace| Image::open(trace, facts.clone())).transpose()?;
        let mut counts = Counts::default();
        first.iter().for_each(|image| counts.live.add(image.blocks.live_bytes()));
        Ok(Replay {
            waiting,
            open: first.into_iter().collect(),
            ending: Vec::new(),
            facts,
            counts,
            ready: Vec::new(),
            live: Vec::new(),
            unpaired: Unpaired::default(),
            notes: Vec::new(),
        })
    }
}

impl Replay {
    /// Replaces `batch` by the next events, a few thousand; returns false if there are none.
    pub fn fill(&mut self, batch: &mut Vec<Event>) -> bool {
        batch.clear();
        if !self.ready.is_empty() {
            batch.extend(self.ready.drain(..).rev());
            return true;
        }
        while batch.len() < BATCH && self.run(batch) {}
        !batch.is_empty()
    }

    /// Processes the image with the next event; returns false if there is none.
    fn run(&mut self, batch: &mut Vec<Event>) -> bool {
        let (mut first, mut until_ns) = (None, u64::MAX);
        for (index, image) in self.open.iter_mut().enumerate() {
            let ns = image.next_ns().unwrap_or(0); // which closes it now
            match first {
                Some((_, first_ns)) if ns >= first_ns => until_ns = until_ns.min(ns),
                before => {
                    until_ns = before.map_or(until_ns, |(_, ns)| ns);
                    first = Some((index, ns));
                }
            }
        }
        if let Some(next) = self.waiting.last() {
            if first.is_none_or(|(_, ns)| next.after_ns <= ns) {
                self.begin();
                return true;
            }
            until_ns = until_ns.min(next.after_ns);
        }
        let Some((index, first_ns)) = first else {
            return false;
        };
        let counts = &mut self.counts;
        self.ending.retain_mut(|image| {
            let ended = image.end_ns < first_ns;
            if ended {
                counts.live.remove(image.live);
                batch.append(&mut image.frees);
            }
            !ended
        });
        let ends = self.ending.iter().map(|image| image.end_ns);
        let until_ns = ends.fold(until_ns, u64::min);
        if let Some(image) = self.open.get_mut(index) {
            image.run(until_ns, counts, batch);
            if image.next_ns().is_none() {
                self.close(index);
            }
        }
        true
    }

    /// Opens the next image.
    fn begin(&mut self) {
        let next = self.waiting.pop().map(|trace| Image::open(trace, self.facts.clone()));
        match next {
            Some(Ok(image)) => {
                self.counts.live.add(image.blocks.live_bytes());
                self.open.push(image);
            }
            Some(Err(error)) => self.notes.push(error.to_string()),
            None => {}
        }
    }

    /// Frees all memory of an image except its results.
    fn close(&mut self, index: usize) {
        let image = self.open.swap_remove(index);
        self.live.extend(image.blocks.live());
        let is_last = self.open.is_empty() && self.waiting.is_empty();
        let frees = if self.facts.given == Given::Whole && !is_last {
            image.blocks.ends(image.end_ns)
        } else {
            Vec::new()
        };
        self.ending.push(Ending { end_ns: image.end_ns, live: image.blocks.live_bytes(), frees });
        self.unpaired.add(image.blocks.unpaired);
        self.notes.extend(image.notes());
    }

    /// Returns the blocks that are live after the last event, in order of allocation. Remaining
    /// events are skipped.
    pub fn into_live(mut self) -> Vec<LiveBlock> {
        let mut passed = Vec::new();
        while self.fill(&mut passed) {}
        self.live.sort_unstable_by_key(|block| block.block);
        self.live
    }

    /// Returns the counters before the beginning of the trace, of each open image whose oldest part
    /// was dropped.
    pub fn before(&self) -> impl Iterator<Item = Before> {
        self.open.iter().filter_map(|image| image.before)
    }

    /// Returns the number of events of the process so far, including skipped ones.
    pub fn events(&self) -> u64 {
        self.counts.events
    }

    /// Returns the inconsistencies so far.
    pub fn unpaired(&self) -> Unpaired {
        let mut all = self.unpaired;
        self.open.iter().for_each(|image| all.add(image.blocks.unpaired));
        all
    }

    /// Returns restrictions of completeness for people, complete after the last event.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(self.open.iter().flat_map(Image::notes));
        let Unpaired { frees, blocks } = self.unpaired();
        if frees > 0 {
            let what = if frees == 1 { "free is of a block" } else { "frees are of blocks" };
            let frees = count(frees);
            notes.push(format!("{frees} {what} whose allocation is not in the trace"));
        }
        if blocks > 0 {
            let have = if blocks == 1 { "has" } else { "have" };
            notes.push(format!("{} {have} no end in the trace", counted(blocks, "block")));
        }
        notes
    }
}

impl Iterator for Replay {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.ready.is_empty() {
            let mut batch = std::mem::take(&mut self.ready);
            self.fill(&mut batch);
            batch.reverse();
            self.ready = batch;
        }
        self.ready.pop()
    }
}

/// Returns the records of a trace, and totals of its dropped chunks.
fn lanes_of(trace: &Trace) -> Result<(Lanes, TraceCut), Error> {
    let (mut files, lanes) = Files::open(trace)?;
    let mut clock = Clock::default();
    trace.extents.iter().for_each(|extent| clock.learn(&extent.start));
    let cut = files.cut();
    let span = Span {
        after_ns: trace.after_ns,
        stopped_ns: trace.stopped_ns.unwrap_or(u64::MAX),
        stopped_ticks: if trace.running { files.last_ticks(&trace.extents) } else { u64::MAX },
        // Records at exactly that time belong to the dropped part.
        begin_ticks: if cut.ticks == 0 { 0 } else { cut.ticks.saturating_add(1) },
        has_scopes: trace.has_scopes,
    };
    Ok((Lanes::of(lanes, files, clock, span), cut))
}

impl Image {
    fn open(trace: Trace, facts: Facts) -> Result<Image, Error> {
        let (lanes, cut) = lanes_of(&trace)?;
        // Reading twice is acceptable, because a trace with dropped chunks has a limited size.
        let before = match cut.ticks {
            0 => None,
            _ => {
                let begin_ns = cut.time_ns.saturating_add(trace.after_ns);
                Some(Before::of(&trace, begin_ns, lanes_of(&trace)?.0))
            }
        };
        let (path, stopped_ns) = (trace.file.clone(), trace.stopped_ns);
        let end_ns = trace.after_ns.saturating_add(trace.end_ns);
        let blocks = Blocks::of(trace, facts, lanes.indices(), before.map(|b| b.live_bytes));
        let ahead = Ahead::of(lanes).map_err(|source| Error::Io {
            path,
            doing: "start reading",
            source,
        })?;
        Ok(Image { ahead, blocks, end_ns, stopped_ns, before })
    }

    /// Returns the time of its next event on the clock of the process; `None` at its end.
    fn next_ns(&mut self) -> Option<u64> {
        self.ahead.steps().first().map(|step| step.time_ns)
    }

    /// Processes some of the records up to this time.
    fn run(&mut self, until_ns: u64, counts: &mut Counts, out: &mut Vec<Event>) {
        let steps = self.ahead.steps();
        let steps = &steps[..steps.len().min(EXPECTED_MAX)];
        let count = steps.partition_point(|step| step.time_ns <= until_ns);
        self.blocks.take(&steps[..count], counts, out);
        self.ahead.pass(count);
        if self.next_ns().is_none() {
            self.blocks.finish(counts);
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let lost = self.ahead.lost();
        if let Some(Lost { chunks, why: Some(why), .. }) = lost {
            let parts = counted(*chunks, "part");
            notes.push(format!("{parts} of the trace cannot be read; first error: {why}"));
        }
        if let Some(&Lost { faults: faults @ 1.., .. }) = lost {
            let are = if faults == 1 { "is" } else { "are" };
            notes.push(format!(
                "{} of the trace {are} damaged; the rest of each is omitted",
                counted(faults, "part")
            ));
        }
        if let Some(before) = self.before {
            let at = before.begin_ns as f64 / 1e9;
            let [allocations, frees] = [before.allocations, before.frees];
            notes.push(format!(
                "the trace begins at {at:.3} s: older events were dropped; before it, {} and {} \
                 are counted, and {} were live",
                counted(allocations, "allocation"),
                counted(frees, "free"),
                bytes(before.live_bytes)
            ));
        }
        if let Some(stopped_ns) = self.stopped_ns {
            let at = stopped_ns as f64 / 1e9;
            notes.push(format!("the trace ends at {at:.3} s: out of space"));
        }
        notes
    }
}
