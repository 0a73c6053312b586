//! The records of a trace in one order: lanes merged by the clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::Receiver;

use heaptide_format::{TRACE_WRITING, TraceStart};
use heaptide_trace::{Decoder, Record};
use zerocopy::FromBytes;

use super::chunks::{Ahead, Chunk, Loaded};
use super::clock::Clock;

/// Who wrote a record, and where its thread was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Who {
    /// Its number among the lanes of the trace.
    pub(super) place: u32,
    /// Its index in the profile.
    pub(super) lane: u32,
    pub(super) scope: u32,
    pub(super) thread: u32,
    /// How often a thread has taken the lane: the same may give it back and take it again.
    pub(super) taken: u32,
    pub(super) node: u32,
}

/// The next record of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) time_ns: u64,
    pub(super) who: Who,
    pub(super) record: Record,
}

impl Step {
    /// The address that it is about, or 0.
    pub(super) fn address(&self) -> u64 {
        match self.record {
            Record::Allocated(block) | Record::Relabelled(block) => block.address,
            Record::Freed { address } | Record::Moving { address } => address,
            _ => 0,
        }
    }
}

/// A lane as it is read.
struct Lane {
    who: Who,
    /// The next contents, the last one first.
    chunks: Vec<Chunk>,
    /// The next of them, if they were asked for.
    coming: Option<Receiver<Loaded>>,
    decoder: Option<Decoder<Vec<u8>>>,
    ticks: u64,
    next: Record,
}

/// Where a lane's next record is among those of all lanes.
type Turn = (u64, Class, u32);

/// Of events of one moment what ends a block comes first: its address may be another's then.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Ends,
    Other,
}

/// All lanes of a trace.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Those that have a next record.
    turns: BinaryHeap<Reverse<Turn>>,
    ahead: Ahead,
    pub(super) clock: Clock,
    /// What of it is lost.
    pub(super) lost: Lost,
}

/// What could not be read.
#[derive(Clone, Default, Debug)]
pub(super) struct Lost {
    /// Contents of extents, and why not the first of them.
    pub(super) chunks: u64,
    pub(super) why: Option<String>,
    /// Extents with bytes that are no record.
    pub(super) faults: u64,
}

impl Lanes {
    /// The lanes with their contents, each lane's in order.
    pub(super) fn of(lanes: Vec<(u32, Vec<Chunk>)>, ahead: Ahead, clock: Clock) -> Lanes {
        let turns = BinaryHeap::with_capacity(lanes.len());
        let lanes = lanes.into_iter().zip(0..);
        let lanes = lanes.map(|((index, chunks), place)| Lane::of(place, index, chunks)).collect();
        let mut lanes = Lanes { lanes, turns, ahead, clock, lost: Lost::default() };
        lanes.turns.extend(lanes.lanes.iter().filter_map(Lane::turn_of_contents).map(Reverse));
        lanes
    }

    /// How many lanes there are.
    pub(super) fn count(&self) -> usize {
        self.lanes.len()
    }

    /// When the next record is, in ticks.
    pub(super) fn next_ticks(&self) -> Option<u64> {
        self.turns.peek().map(|Reverse((ticks, ..))| *ticks)
    }

    /// Adds the next records in order, while there is room for more and `time_ns` says when they
    /// were: none for what is to come later.
    pub(super) fn gather(
        &mut self,
        steps: &mut Vec<Step>,
        mut time_ns: impl FnMut(&mut Clock, u64) -> Option<u64>,
    ) {
        while steps.len() < steps.capacity()
            && let Some(Reverse(first)) = self.turns.pop()
        {
            if self.lanes[first.2 as usize].decoder.is_none() {
                let comes_now = time_ns(&mut self.clock, first.0).is_some();
                let turn = if comes_now { self.open(first.2) } else { Some(first) };
                self.turns.extend(turn.map(Reverse));
                if comes_now { continue } else { return }
            }
            let until = self.turns.peek().map(|Reverse(turn)| *turn);
            let is_next = |turn: &Turn| until.is_none_or(|until| *turn < until);
            let mut turn = Some(first);
            let mut now = None;
            while steps.len() < steps.capacity()
                && let Some((ticks, _, place)) = turn.filter(is_next)
            {
                now = time_ns(&mut self.clock, ticks);
                let Some(time_ns) = now else {
                    break;
                };
                let lane = &self.lanes[place as usize];
                steps.push(Step { time_ns, who: lane.who, record: lane.next });
                turn = self.advance(place);
                if self.lanes[place as usize].decoder.is_none() {
                    break; // contents are opened when it is their turn
                }
            }
            self.turns.extend(turn.map(Reverse));
            if now.is_none() {
                return;
            }
        }
    }

    /// Opens a lane's next contents.
    #[cold]
    fn open(&mut self, place: u32) -> Option<Turn> {
        self.lanes[place as usize].open(&self.ahead, &mut self.clock, &mut self.lost);
        self.advance(place)
    }

    /// Goes to a lane's next record, or to the next contents if there is none.
    #[inline]
    fn advance(&mut self, place: u32) -> Option<Turn> {
        let lane = &mut self.lanes[place as usize];
        while let Some(decoder) = &mut lane.decoder {
            match decoder.next() {
                Some(Ok((_, Record::Scope(scope)))) => lane.who.scope = scope,
                Some(Ok((_, Record::Node(node)))) => lane.who.node = node,
                Some(Ok((_, Record::Thread(thread)))) => {
                    lane.who.thread = thread;
                    lane.who.taken = lane.who.taken.wrapping_add(1);
                }
                Some(Ok((ticks, record))) => {
                    lane.ticks = lane.ticks.max(ticks);
                    lane.next = record;
                    return Some((lane.ticks, class(&record), place));
                }
                Some(Err(_)) => self.lost.faults += 1,
                None => lane.decoder = None,
            }
        }
        lane.turn_of_contents()
    }
}

fn class(record: &Record) -> Class {
    match record {
        Record::Freed { .. } | Record::Moving { .. } | Record::Closed { .. } => Class::Ends,
        _ => Class::Other,
    }
}

impl Lane {
    fn of(place: u32, lane: u32, mut chunks: Vec<Chunk>) -> Lane {
        chunks.reverse();
        let who = Who { place, lane, ..Who::default() };
        let next = Record::StillThere; // not read before the first is
        Lane { who, chunks, coming: None, decoder: None, ticks: 0, next }
    }

    /// When its next contents begin, if there are any.
    fn turn_of_contents(&self) -> Option<Turn> {
        let ticks = self.chunks.last()?.first_ticks.max(self.ticks);
        Some((ticks, Class::Ends, self.who.place))
    }

    /// Takes its next contents, which may have been asked for, and asks for those after them.
    fn open(&mut self, ahead: &Ahead, clock: &mut Clock, lost: &mut Lost) {
        let Some(chunk) = self.chunks.pop() else {
            return;
        };
        let coming = self.coming.take().unwrap_or_else(|| ahead.ask(chunk));
        self.coming = self.chunks.last().map(|&next| ahead.ask(next));
        let loaded = coming.recv().unwrap_or_else(|_| Err("its reader ended".to_owned()));
        let contents = loaded.unwrap_or_else(|why| {
            lost.chunks += 1;
            lost.why.get_or_insert(why);
            Vec::new()
        });
        if let Ok((start, _)) = TraceStart::read_from_prefix(&contents) {
            clock.learn(&start);
            let TraceStart { scope, tid: thread, node, .. } = start;
            self.who = Who { scope, thread, node, ..self.who };
            self.decoder = Some(records(&start, contents));
        }
    }
}

fn records(start: &TraceStart, mut contents: Vec<u8>) -> Decoder<Vec<u8>> {
    contents.drain(..size_of::<TraceStart>());
    Decoder::new(start.ticks, contents)
}

/// Whether the lane writes elsewhere by now.
pub(super) fn is_left(contents: &[u8]) -> bool {
    TraceStart::read_from_prefix(contents).is_ok_and(|(start, _)| start.state != TRACE_WRITING)
}

/// The ticks of the last record in contents, up to so many bytes.
pub(super) fn last_ticks(contents: &[u8], length: usize) -> Option<u64> {
    let (start, rest) = TraceStart::read_from_prefix(contents).ok()?;
    let length = length.saturating_sub(size_of::<TraceStart>()).min(rest.len());
    let mut decoder = Decoder::new(start.ticks, &rest[..length]);
    let mut last = start.ticks;
    while let Some(Ok((ticks, _))) = decoder.next() {
        last = last.max(ticks);
    }
    Some(last)
}
