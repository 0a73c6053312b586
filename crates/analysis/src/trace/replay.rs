//! The events of a process in order, read as they are asked for.

use super::blocks::{Blocks, Counts, Unpaired};
use super::chunks::{Ahead, Files};
use super::clock::Clock;
use super::event::{Event, LiveBlock};
use super::lanes::{self, Lanes, Step};
use super::maps::Trace;
use crate::Error;
use crate::model::{Process, Site};

/// Events that are given at once, about.
const BATCH: usize = 4096;
/// Records that are looked at together.
const STEPS: usize = 64;

/// The events of a process. Those of sites that were filtered away are not given; which block an
/// event is of, numbers and live bytes are those of the whole process all the same.
///
/// Files are read ahead by a thread of its own. Memory is bounded by the blocks that are live at
/// once, and half a megabyte for each lane.
pub struct Replay {
    images: Vec<Image>,
    counts: Counts,
    /// What was not given yet to who takes one after the other, the next one last.
    ready: Vec<Event>,
}

/// One process image.
struct Image {
    lanes: Lanes,
    /// The next records, as they are gathered.
    steps: Vec<Step>,
    blocks: Blocks,
    after_ns: u64,
    /// After these nothing is given: the trace ended there, or what was read of the profile.
    stopped_ns: u64,
    stopped_ticks: u64,
    is_over: bool,
}

impl Process {
    /// Begins to read the events. Those of joined processes come together, in order of time.
    ///
    /// Errors: events were not recorded; a file cannot be read, or is no trace. Parts that turn out
    /// to be damaged are left out, and [`Replay::notes`] says so.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// let Err(error) = process.replay() else { panic!("it has none") };
    /// let says = "x: it has no events; `heaptide run --mode trace` records them";
    /// assert_eq!(error.to_string(), says);
    /// ```
    pub fn replay(&self) -> Result<Replay, Error> {
        if self.traces.is_empty() {
            return Err(Error::NoTrace { path: self.file.clone() });
        }
        let image = |trace: &Trace| Image::open(trace, &self.sites);
        let images = self.traces.iter().map(image).collect::<Result<_, _>>()?;
        Ok(Replay { images, counts: Counts::default(), ready: Vec::new() })
    }
}

impl Replay {
    /// Puts the next events in the place of those in `batch`, some thousand at once; false if there
    /// are none any more.
    pub fn fill(&mut self, batch: &mut Vec<Event>) -> bool {
        batch.clear();
        if !self.ready.is_empty() {
            batch.extend(self.ready.drain(..).rev());
            return true;
        }
        while batch.len() < BATCH && self.run(batch) {}
        !batch.is_empty()
    }

    /// Goes on in the image whose next event is first; false if there is none.
    fn run(&mut self, batch: &mut Vec<Event>) -> bool {
        let (mut first, mut until_ns) = (None, u64::MAX);
        for (index, image) in self.images.iter_mut().enumerate() {
            let Some(ns) = image.next_ns() else {
                continue;
            };
            match first {
                Some((_, first_ns)) if ns >= first_ns => until_ns = until_ns.min(ns),
                before => {
                    until_ns = before.map_or(until_ns, |(_, ns)| ns);
                    first = Some((index, ns));
                }
            }
        }
        let image = first.and_then(|(index, _)| self.images.get_mut(index));
        image.is_some_and(|image| {
            image.run(until_ns, &mut self.counts, batch);
            true
        })
    }

    /// The blocks that are live after the last event, in order of allocation. What was not given
    /// yet is passed over.
    pub fn into_live(mut self) -> Vec<LiveBlock> {
        let mut passed = Vec::new();
        while self.fill(&mut passed) {}
        let blocks = self.images.iter().flat_map(|image| image.blocks.live());
        let mut live: Vec<LiveBlock> = blocks.collect();
        live.sort_unstable_by_key(|block| block.uid);
        live
    }

    /// Events of the process so far, given or not.
    pub fn events(&self) -> u64 {
        self.counts.events
    }

    /// What did not fit together so far.
    pub fn unpaired(&self) -> Unpaired {
        let all = self.images.iter().map(|image| image.blocks.unpaired);
        all.fold(Unpaired::default(), |sum, of| Unpaired {
            frees: sum.frees + of.frees,
            blocks: sum.blocks + of.blocks,
        })
    }

    /// What a person should know of how complete the events are, after the last of them.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.images.iter().flat_map(Image::notes).collect();
        let Unpaired { frees, blocks } = self.unpaired();
        if frees > 0 {
            notes.push(format!("{frees} frees are of blocks whose allocation is not in the trace"));
        }
        if blocks > 0 {
            notes.push(format!("of {blocks} blocks the end is not in the trace"));
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

impl Image {
    fn open(trace: &Trace, sites: &[Site]) -> Result<Image, Error> {
        let (mut files, contents) = Files::open(trace)?;
        let mut clock = Clock::default();
        trace.extents.iter().for_each(|extent| clock.learn(&extent.start));
        let mut stopped_ticks = u64::MAX;
        if trace.running {
            let mut bytes = Vec::new();
            let mut last = |(chunk, length): &(_, usize)| {
                files.read(chunk, &mut bytes).ok()?; // said when it is its turn
                lanes::last_ticks(&bytes, *length)
            };
            stopped_ticks = contents.newest.iter().filter_map(&mut last).max().unwrap_or(u64::MAX);
        }
        let lanes = Lanes::of(contents.lanes, Ahead::of(files), clock);
        Ok(Image {
            blocks: Blocks::of(trace.clone(), sites, lanes.count()),
            lanes,
            steps: Vec::with_capacity(STEPS),
            after_ns: trace.after_ns,
            stopped_ns: trace.stopped_ns.unwrap_or(u64::MAX),
            stopped_ticks,
            is_over: false,
        })
    }

    /// When its next event is, on the clock of the process; none at its end.
    fn next_ns(&mut self) -> Option<u64> {
        if self.is_over {
            return None;
        }
        let ticks = self.lanes.next_ticks()?;
        Some(self.lanes.clock.ns(ticks).saturating_add(self.after_ns))
    }

    /// Gives events up to this time, and no more than fit a batch.
    fn run(&mut self, until_ns: u64, counts: &mut Counts, out: &mut Vec<Event>) {
        let Image { lanes, steps, blocks, is_over, .. } = self;
        let (after_ns, stopped_ns, stopped_ticks) =
            (self.after_ns, self.stopped_ns, self.stopped_ticks);
        let time_ns = |clock: &mut Clock, ticks| {
            let ns = clock.ns(ticks);
            *is_over = ns > stopped_ns || ticks > stopped_ticks;
            let time_ns = ns.saturating_add(after_ns);
            Some(time_ns).filter(|_| !*is_over && time_ns <= until_ns)
        };
        steps.clear();
        lanes.gather(steps, time_ns);
        blocks.take(steps, counts, out);
        if self.is_over || self.lanes.next_ticks().is_none() {
            self.blocks.finish(counts);
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let lost = &self.lanes.lost;
        if let Some(why) = &lost.why {
            let chunks = lost.chunks;
            notes.push(format!("{chunks} parts of the trace cannot be read; the first: {why}"));
        }
        if lost.faults > 0 {
            let faults = lost.faults;
            notes.push(format!("{faults} parts of the trace are damaged, and left out from there"));
        }
        if self.stopped_ns != u64::MAX {
            let at = self.stopped_ns as f64 / 1e9;
            notes.push(format!("the trace ends at {at:.3} s: there was no room for more"));
        }
        notes
    }
}
