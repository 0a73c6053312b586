//! Merges the records of all lanes by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use heaptide_format::TraceStart;
use heaptide_trace::{Block, Decoder, Record};
use zerocopy::FromBytes;

use super::chunks::{ByLane, Chunk, Files};
use super::clock::Clock;

/// The lane and thread of a record, with the state of the thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Who {
    /// Position among the lanes of the trace.
    pub(super) place: u32,
    /// Index in the profile.
    pub(super) lane: u32,
    pub(super) scope: u32,
    pub(super) thread: u32,
    /// How often a thread has taken the lane; a thread can take the same lane again.
    pub(super) taken: u32,
    pub(super) node: u32,
}

impl Who {
    /// Updates the state of the thread from a record.
    fn learn(&mut self, record: Record) {
        match record {
            Record::Scope(scope) => self.scope = scope,
            Record::Node(node) => self.node = node,
            Record::Thread(thread) => {
                self.thread = thread;
                self.taken = self.taken.wrapping_add(1);
            }
            _ => {}
        }
    }
}

/// A merged record, flat, in one cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) time_ns: u64,
    pub(super) who: Who,
    pub(super) kind: Kind,
    pub(super) reallocated: bool,
    pub(super) remapped: bool,
    /// Fields below that the kind does not have are 0.
    pub(super) site: u32,
    pub(super) address: u64,
    pub(super) requested: u64,
    pub(super) usable: u64,
}

/// The kinds of [`Record`]s, except those that only change the state of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Allocated,
    Freed,
    Moving,
    StillThere,
    Released,
    Failed,
    Relabelled,
    Unlabelled,
    Opened,
    Closed,
    /// The lane's next `Relabelled` or `Opened` is caused by a label: its number is `address`, its
    /// shape `site`.
    Labelled,
    /// The elements of the lane's next block have `requested` bytes.
    Element,
    /// The program put mark `site`.
    Mark,
    /// The thread changed to scope `site` from scope `address`.
    Scope,
}

/// A record with its kind.
#[derive(Clone, Copy, Debug)]
struct Item {
    kind: Kind,
    block: Block,
}

/// The reading state of a lane.
struct Lane {
    who: Who,
    /// Whether begins and ends of scopes are steps.
    has_scopes: bool,
    /// The remaining contents, in reverse order.
    chunks: Vec<Chunk>,
    decoder: Option<Decoder<Vec<u8>>>,
    ticks: u64,
    next: Item,
}

/// The order of a lane's next record among those of all lanes.
type Turn = (u64, Class, u32);

/// Among simultaneous events, ends of blocks come first, because their address can be reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Ends,
    Other,
}

/// All lanes of a trace.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Lanes with a next record.
    turns: BinaryHeap<Reverse<Turn>>,
    files: Files,
    clock: Clock,
    span: Span,
    lost: Lost,
}

/// The time range of the records of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Offset of its clock on the clock of the process.
    pub(super) after_ns: u64,
    /// Later records are ignored: the trace ended there, or the profile was read.
    pub(super) stopped_ns: u64,
    pub(super) stopped_ticks: u64,
    /// Earlier records are skipped, because some of that time were dropped.
    pub(super) begin_ticks: u64,
    /// Whether begins and ends of scopes are steps.
    pub(super) has_scopes: bool,
}

impl Span {
    /// Returns the time of a record on the clock of the process; `None` after the end.
    #[inline]
    fn time_ns(&self, clock: &mut Clock, ticks: u64) -> Option<u64> {
        let ns = clock.ns(ticks);
        let is_over = ns > self.stopped_ns || ticks > self.stopped_ticks;
        (!is_over).then(|| ns.saturating_add(self.after_ns))
    }
}

/// The unreadable parts of a trace.
#[derive(Clone, Default, Debug)]
pub(super) struct Lost {
    /// Number of unreadable contents of extents, and the reason for the first one.
    pub(super) chunks: u64,
    pub(super) why: Option<String>,
    /// Number of extents with invalid records.
    pub(super) faults: u64,
}

impl Lanes {
    /// Returns the lanes with their contents, which are in order for each lane.
    pub(super) fn of(lanes: ByLane, files: Files, clock: Clock, span: Span) -> Lanes {
        let lane = |(place, (index, of))| Lane::of(place, index, of, span.has_scopes);
        let lanes: Vec<Lane> = (0..).zip(lanes).map(lane).collect();
        let turns = lanes.iter().filter_map(Lane::turn_of_contents).map(Reverse).collect();
        Lanes { lanes, turns, files, clock, span, lost: Lost::default() }
    }

    /// Returns the index of each lane in the profile, by its position.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        self.lanes.iter().map(|lane| lane.who.lane)
    }

    /// Returns the unreadable parts so far.
    pub(super) fn into_lost(self) -> Lost {
        self.lost
    }

    /// Adds the next records in order up to the capacity of `steps`; none at the end.
    pub(super) fn gather(&mut self, steps: &mut Vec<Step>) {
        while steps.len() < steps.capacity()
            && let Some(Reverse(first)) = self.turns.pop()
        {
            let turn = if self.lanes[first.2 as usize].decoder.is_some() {
                self.run(first, steps)
            } else {
                self.open(first)
            };
            self.turns.extend(turn.map(Reverse));
        }
    }

    /// Opens the next contents of the lane whose turn it is.
    #[cold]
    fn open(&mut self, (ticks, _, place): Turn) -> Option<Turn> {
        if self.span.time_ns(&mut self.clock, ticks).is_none() {
            self.turns.clear();
            return None;
        }
        let lane = &mut self.lanes[place as usize];
        lane.open(&mut self.files, &mut self.clock, &mut self.lost);
        match lane.advance(&mut self.lost) {
            Some((ticks, item)) => {
                lane.next = item;
                Some((ticks, item.kind.class(), place))
            }
            None => lane.turn_of_contents(),
        }
    }

    /// Adds records of the lane whose turn it is, as long as it is first, up to the end of its
    /// current contents. Returns its next turn.
    fn run(&mut self, first: Turn, steps: &mut Vec<Step>) -> Option<Turn> {
        let until = self.turns.peek().map(|Reverse(turn)| *turn);
        let (mut ticks, _, place) = first;
        let lane = &mut self.lanes[place as usize];
        let mut item = lane.next;
        loop {
            let Some(time_ns) = self.span.time_ns(&mut self.clock, ticks) else {
                self.turns.clear();
                return None;
            };
            if ticks >= self.span.begin_ticks {
                steps.push(item.step(time_ns, lane.who));
            }
            let Some(next) = lane.advance(&mut self.lost) else {
                return lane.turn_of_contents(); // they are opened at their turn
            };
            (ticks, item) = next;
            let turn = (ticks, item.kind.class(), place);
            if steps.len() == steps.capacity() || until.is_some_and(|until| turn >= until) {
                lane.next = item;
                return Some(turn);
            }
        }
    }
}

impl Kind {
    fn class(self) -> Class {
        match self {
            Kind::Freed | Kind::Moving | Kind::Closed => Class::Ends,
            _ => Class::Other,
        }
    }
}

impl Item {
    fn of(kind: Kind) -> Item {
        Item::at(kind, 0, 0)
    }

    fn at(kind: Kind, address: u64, site: u32) -> Item {
        Item { kind, block: Block { address, site, ..Block::default() } }
    }

    #[inline(always)]
    fn step(self, time_ns: u64, who: Who) -> Step {
        let Block { address, site, requested, usable, reallocated, remapped } = self.block;
        let kind = self.kind;
        Step { time_ns, who, kind, reallocated, remapped, site, address, requested, usable }
    }
}

impl Lane {
    fn of(place: u32, lane: u32, mut chunks: Vec<Chunk>, has_scopes: bool) -> Lane {
        chunks.reverse();
        let who = Who { place, lane, ..Who::default() };
        let next = Item::of(Kind::StillThere); // unused before the first record
        Lane { who, has_scopes, chunks, decoder: None, ticks: 0, next }
    }

    /// Returns the turn at the beginning of the next contents, if there are any.
    fn turn_of_contents(&self) -> Option<Turn> {
        let ticks = self.chunks.last()?.first_ticks.max(self.ticks);
        Some((ticks, Class::Ends, self.who.place))
    }

    /// Reads its next contents.
    fn open(&mut self, files: &mut Files, clock: &mut Clock, lost: &mut Lost) {
        let Some(chunk) = self.chunks.pop() else {
            return;
        };
        let mut contents = Vec::new();
        if let Err(why) = files.read(&chunk, &mut contents) {
            lost.chunks += 1;
            lost.why.get_or_insert(why);
            return;
        }
        if let Ok((start, _)) = TraceStart::read_from_prefix(&contents) {
            clock.learn(&start);
            let TraceStart { scope, tid: thread, node, .. } = start;
            self.who = Who { scope, thread, node, ..self.who };
            self.decoder = Some(records(&start, contents));
        }
    }

    /// Returns the next record of the current contents and its time; `None` at their end.
    #[inline(always)]
    fn advance(&mut self, lost: &mut Lost) -> Option<(u64, Item)> {
        let decoder = self.decoder.as_mut()?;
        loop {
            let (ticks, record) = match decoder.next() {
                Some(Ok(next)) => next,
                Some(Err(_)) => {
                    lost.faults += 1;
                    continue;
                }
                None => {
                    self.decoder = None;
                    return None;
                }
            };
            let item = match record {
                Record::Allocated(block) => Item { kind: Kind::Allocated, block },
                Record::Freed { address } => Item::at(Kind::Freed, address, 0),
                Record::Moving { address } => Item::at(Kind::Moving, address, 0),
                Record::Ended { address, site, usable, moving } => Item {
                    kind: if moving { Kind::Moving } else { Kind::Freed },
                    block: Block { address, site, usable, ..Block::default() },
                },
                Record::StillThere => Item::of(Kind::StillThere),
                Record::Released => Item::of(Kind::Released),
                Record::Failed { site } => Item::at(Kind::Failed, 0, site),
                Record::Relabelled(block) => Item { kind: Kind::Relabelled, block },
                Record::Unlabelled { address, site } => Item::at(Kind::Unlabelled, address, site),
                Record::Opened(block) => Item { kind: Kind::Opened, block },
                Record::Closed { address, site } => Item::at(Kind::Closed, address, site),
                Record::Labelled { uid, shape } => Item::at(Kind::Labelled, uid, shape),
                Record::Element(bytes) => Item {
                    kind: Kind::Element,
                    block: Block { requested: bytes.into(), ..Block::default() },
                },
                Record::Mark { number } => Item::at(Kind::Mark, 0, number),
                Record::Scope(scope) if self.has_scopes && scope != self.who.scope => {
                    let before = std::mem::replace(&mut self.who.scope, scope);
                    Item::at(Kind::Scope, before.into(), scope)
                }
                whereabouts => {
                    self.who.learn(whereabouts);
                    continue;
                }
            };
            self.ticks = self.ticks.max(ticks);
            return Some((self.ticks, item));
        }
    }
}

fn records(start: &TraceStart, mut contents: Vec<u8>) -> Decoder<Vec<u8>> {
    contents.drain(..size_of::<TraceStart>());
    Decoder::new(start.ticks, contents)
}
