//! Compares a trace with the logs of `trace_random.c`: an independent model of the same events,
//! which identifies blocks by numbers and has no lanes, ticks or pairing.

use heaptide_analysis::model::{LaneId, Process};
use heaptide_analysis::trace::{Event, Operation};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// Bytes of a log's header and of each record, as defined in the program.
const RECORD: usize = 64;

/// The maximum difference between the clock of the program and that of the trace.
const CLOCKS_NS: i64 = 20_000;

/// The kinds of records in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Allocated,
    Freed,
    Moved,
    NotMoved,
    ToNothing,
    Failed,
    Labelled(u16),
    Unlabelled,
}

/// A completed operation of the program.
#[derive(Clone, Copy, Debug)]
struct Done {
    what: What,
    scope: u64,
    block: u64,
    old: u64,
    address: u64,
    requested: u64,
    usable: u64,
    before_ns: u64,
    after_ns: u64,
}

/// The operations of a thread, in order.
pub struct Log {
    thread: u32,
    /// The number of operations begun: those completed, and possibly one more.
    begun: u64,
    done: Vec<Done>,
}

impl Log {
    fn read(path: &Path) -> Option<Log> {
        let bytes = fs::read(path).ok().filter(|bytes| bytes.len() >= RECORD)?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"));
        let done = (1..=word(16) as usize).map(|i| {
            let at = i * RECORD;
            let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            Done {
                what: What::of(half(at), half(at + 2)),
                scope: word(at) >> 32,
                block: word(at + 8),
                old: word(at + 16),
                address: word(at + 24),
                requested: word(at + 32),
                usable: word(at + 40),
                before_ns: word(at + 48),
                after_ns: word(at + 56),
            }
        });
        let done = done.collect();
        Some(Log { thread: word(0) as u32, begun: word(8), done }).filter(|log| log.thread != 0)
    }

    /// Reads the logs in a directory, including unfinished ones.
    pub fn all(place: &Path) -> Vec<Log> {
        let paths = (0..).map(|number| place.join(format!("{number}.log")));
        paths.map_while(|path| Log::read(&path)).collect()
    }

    /// Returns the number of completed operations in all logs.
    pub fn operations(logs: &[Log]) -> usize {
        logs.iter().map(|log| log.done.len()).sum()
    }
}

impl What {
    fn of(number: u16, label: u16) -> What {
        match number {
            1 => What::Allocated,
            2 => What::Freed,
            3 => What::Moved,
            4 => What::NotMoved,
            5 => What::ToNothing,
            6 => What::Failed,
            7 => What::Labelled(label),
            8 => What::Unlabelled,
            _ => panic!("no such operation: {number}"),
        }
    }
}

/// An event that must be in the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Expected {
    operation: Operation,
    reallocated: bool,
    temporary: bool,
    cross_thread: bool,
    scope: u64,
    address: u64,
    requested: u64,
    usable: u64,
}

/// An expected event, its block, and when it happened.
struct Known {
    event: Expected,
    block: u64,
    within_ns: (i64, i64),
}

/// The properties of a block when it is freed.
#[derive(Clone, Copy)]
struct Block {
    thread: u32,
    address: u64,
    requested: u64,
    usable: u64,
    labelled: bool,
}

/// Returns all blocks of the logs by number, with their last label.
fn blocks(logs: &[Log]) -> HashMap<u64, Block> {
    let mut blocks = HashMap::new();
    for log in logs {
        for done in &log.done {
            if matches!(done.what, What::Allocated | What::Moved) {
                let (requested, usable) = (done.requested, done.usable);
                let (thread, address) = (log.thread, done.address);
                let block = Block { thread, address, requested, usable, labelled: false };
                blocks.insert(done.block, block);
            }
        }
    }
    let labelled = logs.iter().flat_map(|log| &log.done);
    for done in labelled.filter(|done| matches!(done.what, What::Labelled(_) | What::Unlabelled)) {
        blocks.entry(done.block).and_modify(|block| block.labelled = true);
    }
    blocks
}

/// Returns whether `realloc` of glibc moved the pages of a block by `mremap`: both blocks are
/// mappings of their own, which end at the end of a page. The blocks are at the same place in
/// their page, behind a header, or where their alignment put them. Small blocks of other allocators
/// can be there, too.
fn is_moved_by_pages(old: Block, (address, usable): (u64, u64)) -> bool {
    let offset = old.address % 4096;
    let is_large = old.usable >= 16384 && usable >= 16384;
    let is_start = offset == 16 || offset > 16 && offset.is_power_of_two() && is_large;
    offset == address % 4096
        && is_start
        && [old.usable, usable].iter().all(|bytes| (bytes + offset).is_multiple_of(4096))
}

/// Returns the events of a thread in order, as far as the blocks are known: logs of running threads
/// are from slightly different times.
fn expected(log: &Log, blocks: &HashMap<u64, Block>) -> Vec<Known> {
    let mut last = None; // the scope of the thread's last allocation
    let mut known = Vec::new();
    let is_known = |done: &&Done| match done.what {
        What::Failed => true,
        What::Moved => blocks.contains_key(&done.old),
        _ => blocks.contains_key(&done.block),
    };
    for done in log.done.iter().take_while(is_known) {
        let mut add = |operation, number: u64, temporary| {
            let block = blocks.get(&number);
            let is_free = operation == Operation::Free;
            let event = Expected {
                operation,
                reallocated: matches!(done.what, What::Moved | What::ToNothing),
                temporary,
                cross_thread: is_free && block.is_some_and(|block| block.thread != log.thread),
                scope: done.scope,
                address: block.map_or(0, |block| block.address),
                requested: block.filter(|block| !block.labelled).map_or(0, |b| b.requested),
                usable: block.map_or(0, |block| block.usable),
            };
            let within_ns = (done.before_ns as i64, done.after_ns as i64);
            known.push(Known { event, block: number, within_ns });
        };
        match done.what {
            What::Allocated => {
                add(Operation::Allocate, done.block, false);
                last = Some(done.address);
            }
            What::Freed => {
                let temporary = last == Some(done.address);
                add(Operation::Free, done.block, temporary);
                last = last.filter(|_| !temporary);
            }
            What::Moved => {
                // If the block is copied, both exist for an instant.
                let new = (done.address, done.usable);
                let is_in_place =
                    |old: &Block| old.address == new.0 || is_moved_by_pages(*old, new);
                let in_place = blocks.get(&done.old).is_some_and(is_in_place);
                let both = [(Operation::Free, done.old), (Operation::Allocate, done.block)];
                let order = if in_place { [0, 1] } else { [1, 0] };
                for (operation, number) in order.map(|i| both[i]) {
                    add(operation, number, false);
                }
                last = Some(done.address);
            }
            What::ToNothing => add(Operation::Free, done.block, false),
            What::NotMoved | What::Failed => add(Operation::Fail, 0, false),
            What::Labelled(_) | What::Unlabelled => {}
        }
    }
    known
}

/// Returns for each site whether it belongs to the operations, not to blocks of the C library.
fn operations_sites(process: &Process) -> Vec<bool> {
    let mut within = vec![false; process.tables.stacks.len()];
    for (at, node) in process.tables.stacks.iter().enumerate().skip(1) {
        let function = process.tables.frames[node.frame.0 as usize].function.as_deref();
        within[at] = within[node.parent.0 as usize]
            || function.is_some_and(|name| name.starts_with("operation_"));
    }
    process.tables.sites.iter().map(|site| within[site.stack.0 as usize]).collect()
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself: the logs are complete.
    Itself,
    /// Killed: the logs lack the operations in flight.
    Killed,
    /// Still running: the logs were read before the trace.
    NotYet,
    /// By itself, after the trace had ended.
    Stopped,
}

impl Ended {
    /// Returns whether a trace may have `events` events of a thread with `known` known ones, while
    /// `begun` more operations were begun.
    fn may_have(self, events: usize, known: usize, begun: usize) -> bool {
        match self {
            Ended::Itself => events == known,
            Ended::Killed => (known..=known + 2 * begun).contains(&events),
            Ended::NotYet => events >= known,
            Ended::Stopped => events <= known,
        }
    }
}

/// Compares the trace of a process with the logs of its threads.
pub fn assert_held(process: &Process, logs: &[Log], ended: Ended) {
    let events: Vec<Event> = process.replay().expect("a trace").collect();
    assert_order(&events);
    let (blocks, within) = (blocks(logs), operations_sites(process));
    let mut numbers = HashMap::new();
    let mut clock = Clock::default();
    let mut lanes = HashSet::new();
    for log in logs {
        let of_thread = |event: &&Event| {
            event.thread == log.thread
                && !event.operation.is_of_scope()
                && within[event.site as usize]
                && !matches!(event.operation, Operation::Relabel | Operation::Unlabel)
        };
        let events: Vec<&Event> = events.iter().filter(of_thread).collect();
        let known = expected(log, &blocks);
        for (number, (event, known)) in events.iter().zip(&known).enumerate() {
            let place = || format!("event {number} of thread {}: {event:?}", log.thread);
            assert_eq!(seen(process, event, &known.event), known.event, "{}", place());
            clock.reads(event.time_ns, known.within_ns);
            if event.operation != Operation::Fail {
                let block = *numbers.entry(known.block).or_insert(event.block);
                assert_eq!(event.block, block, "{}", place());
            }
        }
        let (found, known) = (events.len(), known.len());
        let begun = log.begun as usize - log.done.len();
        assert!(ended.may_have(found, known, begun), "{ended:?}: {found} events, {known} known");
        let mut own: Vec<Option<LaneId>> = events.iter().map(|event| event.lane).collect();
        own.dedup();
        assert!(own.len() <= 1, "a thread on several lanes: {own:?}");
        assert!(own.is_empty() || lanes.insert(own[0]), "a lane of several threads");
    }
    let distinct: HashSet<u64> = numbers.values().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "blocks share a number");
    clock.assert_one();
}

/// Converts an event to the model; properties that the model lacks are those of `known`.
fn seen(process: &Process, event: &Event, known: &Expected) -> Expected {
    let is_free = event.operation == Operation::Free;
    let fails = event.operation == Operation::Fail;
    let lane = process.tables.sites[event.site as usize].lane;
    let scope = process.tables.scopes[event.scope.0 as usize].value.parse().unwrap_or(0);
    Expected {
        operation: event.operation,
        reallocated: event.reallocated,
        temporary: event.temporary,
        cross_thread: is_free && event.lane != Some(lane),
        scope,
        address: if fails { 0 } else { event.address },
        requested: if known.requested == 0 { 0 } else { event.requested },
        usable: event.usable,
    }
}

/// Checks the order: numbers increase from 1, those of blocks in the order of allocations; times do
/// not decrease; live bytes are the sum of previous events; frees refer to their allocation.
fn assert_order(events: &[Event]) {
    let (mut block, mut live, mut time_ns, mut number) = (0, 0, 0, 0);
    let mut made: HashMap<u64, &Event> = HashMap::new();
    for event in events {
        let is_of_scope = event.operation.is_of_scope();
        number += u64::from(!is_of_scope);
        assert_eq!(event.number, if is_of_scope { 0 } else { number }, "{event:?}");
        assert!(event.time_ns >= time_ns, "{event:?} before {time_ns}");
        time_ns = event.time_ns;
        match event.operation {
            Operation::Allocate => {
                block += 1;
                assert_eq!(event.block, block, "{event:?}");
                live += event.usable;
                made.insert(block, event);
            }
            Operation::Free => {
                let of =
                    made.remove(&event.block).unwrap_or_else(|| panic!("of nothing: {event:?}"));
                let at = (of.time_ns, of.number, of.address);
                let said = (event.allocated_ns, event.allocated_number, event.address);
                assert_eq!(said, at, "{event:?} of {of:?}");
                live -= event.usable;
            }
            Operation::Fail | Operation::Relabel | Operation::Unlabel => {}
            Operation::Begin | Operation::End | Operation::Mark => {}
        }
        assert_eq!(event.live_bytes, live, "{event:?}");
    }
}

/// The range of the difference between the program's clock and the trace's, which must not be
/// empty.
struct Clock {
    least: i64,
    most: i64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { least: i64::MIN, most: i64::MAX }
    }
}

impl Clock {
    fn reads(&mut self, time_ns: u64, (before, after): (i64, i64)) {
        self.least = self.least.max(before - time_ns as i64);
        self.most = self.most.min(after - time_ns as i64);
    }

    fn assert_one(&self) {
        let apart = self.least.saturating_sub(self.most);
        assert!(apart <= CLOCKS_NS, "the clocks drift apart by {apart} ns");
    }
}
