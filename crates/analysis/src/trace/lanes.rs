//! The records of a trace in one order: lanes merged by the clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::Receiver;

use heaptide_format::TraceStart;
use heaptide_trace::{Decoder, Record};
use zerocopy::FromBytes;

use super::chunks::{Ahead, Chunk, Loaded};
use super::clock::Clock;

/// A lane, and where its thread is.
pub(super) struct Lane {
    /// Its index in the profile.
    pub(super) index: u32,
    pub(super) scope: u32,
    pub(super) thread: u32,
    pub(super) node: u32,
    /// The block that its thread allocated last, if it has not been freed since; else 0.
    pub(super) last_block: u64,
    /// The next contents, the last one first.
    chunks: Vec<Chunk>,
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

/// What came of a visit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// There may be more.
    On,
    /// This was the last for now.
    Enough,
    /// This comes later.
    NotYet,
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
        let lanes = lanes.into_iter().map(|(index, chunks)| Lane::of(index, chunks)).collect();
        let mut lanes = Lanes { lanes, turns, ahead, clock, lost: Lost::default() };
        for lane in &mut lanes.lanes {
            lane.ask(&lanes.ahead);
        }
        for which in 0..lanes.lanes.len() {
            let turn = lanes.advance(which);
            lanes.turns.extend(turn.map(Reverse));
        }
        lanes
    }

    /// When the next record is, in ticks.
    pub(super) fn next_ticks(&self) -> Option<u64> {
        self.turns.peek().map(|Reverse((ticks, ..))| *ticks)
    }

    /// Gives `visit` records in order, with their ticks and the lane, until it has enough or there
    /// are no more.
    pub(super) fn run(
        &mut self,
        mut visit: impl FnMut(&mut Lane, &mut Clock, u64, Record) -> Visit,
    ) {
        while let Some(Reverse(first)) = self.turns.pop() {
            let until = self.turns.peek().map(|Reverse(turn)| *turn);
            let which = first.2 as usize;
            let mut turn = Some(first);
            let mut visited = Visit::On;
            while visited == Visit::On
                && let Some((ticks, ..)) =
                    turn.filter(|turn| until.is_none_or(|until| *turn < until))
            {
                let lane = &mut self.lanes[which];
                let record = lane.next;
                visited = visit(lane, &mut self.clock, ticks, record);
                if visited != Visit::NotYet {
                    turn = self.advance(which);
                }
            }
            self.turns.extend(turn.map(Reverse));
            if visited != Visit::On {
                return;
            }
        }
    }

    /// Goes to a lane's next record.
    #[inline]
    fn advance(&mut self, which: usize) -> Option<Turn> {
        let lane = &mut self.lanes[which];
        loop {
            let Some(decoder) = &mut lane.decoder else {
                if !lane.open(&self.ahead, &mut self.clock, &mut self.lost) {
                    return None;
                }
                continue;
            };
            match decoder.next() {
                Some(Ok((_, Record::Scope(scope)))) => lane.scope = scope,
                Some(Ok((_, Record::Node(node)))) => lane.node = node,
                Some(Ok((_, Record::Thread(thread)))) => lane.is_of(thread),
                Some(Ok((ticks, record))) => {
                    lane.ticks = lane.ticks.max(ticks);
                    lane.next = record;
                    return Some((lane.ticks, class(&record), which as u32));
                }
                Some(Err(_)) => self.lost.faults += 1,
                None => lane.decoder = None,
            }
        }
    }
}

fn class(record: &Record) -> Class {
    match record {
        Record::Freed { .. } | Record::Moving { .. } | Record::Closed { .. } => Class::Ends,
        _ => Class::Other,
    }
}

impl Lane {
    fn of(index: u32, mut chunks: Vec<Chunk>) -> Lane {
        chunks.reverse();
        let (scope, thread, node, last_block, ticks) = (0, 0, 0, 0, 0);
        let (coming, decoder, next) = (None, None, Record::StillThere);
        Lane { index, scope, thread, node, last_block, chunks, coming, decoder, ticks, next }
    }

    fn is_of(&mut self, thread: u32) {
        if self.thread != thread {
            (self.thread, self.last_block) = (thread, 0);
        }
    }

    /// Asks for the next contents.
    fn ask(&mut self, ahead: &Ahead) {
        self.coming = self.chunks.pop().map(|chunk| ahead.ask(chunk));
    }

    /// Takes the contents that were asked for, if there are any, and asks for those after them.
    #[cold]
    fn open(&mut self, ahead: &Ahead, clock: &mut Clock, lost: &mut Lost) -> bool {
        let Some(coming) = self.coming.take() else {
            return false;
        };
        self.ask(ahead);
        let loaded = coming.recv().unwrap_or_else(|_| Err("its reader ended".to_owned()));
        let contents = loaded.unwrap_or_else(|why| {
            lost.chunks += 1;
            lost.why.get_or_insert(why);
            Vec::new()
        });
        if let Ok((start, _)) = TraceStart::read_from_prefix(&contents) {
            clock.learn(&start);
            self.is_of(start.tid);
            (self.scope, self.node) = (start.scope, start.node);
            self.decoder = Some(records(&start, contents));
        }
        true
    }
}

fn records(start: &TraceStart, mut contents: Vec<u8>) -> Decoder<Vec<u8>> {
    contents.drain(..size_of::<TraceStart>());
    Decoder::new(start.ticks, contents)
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
