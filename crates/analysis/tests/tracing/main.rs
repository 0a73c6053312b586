//! Events of hand-written traces, and of random programs compared with a model.

mod views;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use heaptide_analysis::model::{LaneId, Process, Recording, ScopeId, StackId};
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::selection::filter::Filter;
use heaptide_analysis::trace::file::Appender;
use heaptide_analysis::trace::{Event, Operation, Unpaired};
use heaptide_fixtures::{ProfileBuilder, Random, Scratch, site};
use heaptide_format::{
    EXTENT_MAGIC, ExtentHeader, Kind, Mode, PAGE, TRACE_FREE_STACKS, TRACE_FULL, TRACE_MOVED,
    TRACE_NOBODY, TRACE_ON, TraceStart,
};
use heaptide_trace::{Block, Encoder, LONGEST, Record};
use zerocopy::{FromZeros, IntoBytes};

/// Nanoseconds per tick.
const TICK: u64 = 10;

/// A profile with a trace: sites with one stack each, on two lanes, the second in a scope.
struct Traced {
    profile: ProfileBuilder,
    /// Ids of sites, in the order of the sites in the process.
    sites: Vec<u32>,
    /// A scope of lane 0.
    scope: u32,
    /// The nodes of their stacks.
    nodes: Vec<u32>,
    number: u32,
}

impl Traced {
    fn new(sites: u32) -> Traced {
        let mut profile = ProfileBuilder::new(Mode::Stacks, 12, 0);
        profile.header.trace = TRACE_ON | TRACE_FREE_STACKS;
        profile.program("/bin/app", &["app"]);
        let app = profile.module("/nowhere/app", 0x1000_0000, &[7; 20]);
        let name = profile.name("region", "load");
        let root = profile.scope(0, 0, 0, |_| {});
        let scope = profile.scope(0, root, name, |scope| scope.entered = 1);
        profile.lane(0, "app", |_| {});
        (1..4).for_each(|lane| profile.lane(lane, "worker", |_| {}));
        let add = |number: u32| {
            let node = profile.node(0, app, 0x1000_0000 + after(number), 0);
            (profile.site(number % 2, site(node, 1, 32)), node)
        };
        let (sites, nodes) = (0..sites).map(add).unzip();
        Traced { profile, sites, scope, nodes, number: 0 }
    }

    /// Returns the first record of the next extent.
    fn start(&mut self, ticks: u64, tid: u32) -> TraceStart {
        self.number += 1;
        TraceStart {
            ticks,
            time_ns: ticks * TICK,
            last_ticks: ticks + 7,
            last_time_ns: (ticks + 7) * TICK,
            tid,
            number: self.number,
            ..TraceStart::default()
        }
    }

    /// Adds an extent with records of one lane.
    fn events(&mut self, lane: u32, records: &[(u64, Record)]) {
        let start = self.start(records[0].0, 100 + lane);
        self.profile.events(lane, start, &packed(&start, records));
    }

    fn read(&self, name: &str) -> (Scratch, Process) {
        let scratch = Scratch::new(name);
        let file = scratch.write("12-0.profile", &self.profile.finish());
        let process = Recording::open(&file).unwrap().processes.remove(0);
        (scratch, process)
    }
}

fn packed(start: &TraceStart, records: &[(u64, Record)]) -> Vec<u8> {
    let (mut encoder, mut room) = (Encoder::new(), [0; LONGEST]);
    encoder.begin(start.ticks);
    let mut bytes = Vec::new();
    for (ticks, record) in records {
        let length = encoder.record(&mut room, *ticks, record);
        bytes.extend_from_slice(&room[..length]);
    }
    bytes
}

fn block(address: u64, site: u32, requested: u64) -> Block {
    Block { address, site, requested, usable: requested + 8, ..Block::default() }
}

fn allocated(address: u64, site: u32, requested: u64) -> Record {
    Record::Allocated(block(address, site, requested))
}

fn reallocated(address: u64, site: u32, requested: u64) -> Record {
    Record::Allocated(Block { reallocated: true, ..block(address, site, requested) })
}

fn freed(address: u64) -> Record {
    Record::Freed { address }
}

/// Time in ticks, operation, uid, site, live bytes.
type Short = (u64, Operation, u64, u32, u64);

fn short(process: &Process) -> Vec<Short> {
    let short = |e: Event| (e.time_ns / TICK, e.operation, e.uid, e.site, e.live_bytes);
    process.replay().unwrap().map(short).collect()
}

use Operation::{Allocate, Fail, Free, Relabel, Unlabel};

#[test]
fn blocks_are_followed_over_lanes() {
    let mut t = Traced::new(2);
    let (a, b) = (t.sites[0], t.sites[1]);
    let own = [
        (10, allocated(0x1000, a, 10)),
        (12, allocated(0x2000, a, 20)),
        (13, freed(0x2000)),
        (15, Record::Failed { site: a }),
        (40, allocated(0x1000, a, 50)),
    ];
    t.events(0, &own);
    let others = [
        (14, allocated(0x2000, b, 30)),
        (20, Record::Node(t.nodes[1])),
        (20, freed(0x1000)),
        (21, freed(0x9000)),
    ];
    t.events(1, &others);
    let (_scratch, process) = t.read("lanes");
    let expected = [
        (10, Allocate, 1, 0, 18),
        (12, Allocate, 2, 0, 46),
        (13, Free, 2, 0, 18),
        (14, Allocate, 3, 1, 56),
        (15, Fail, 0, 0, 56),
        (20, Free, 1, 0, 38),
        (40, Allocate, 4, 0, 96),
    ];
    assert_eq!(short(&process), expected);
    let mut replay = process.replay().unwrap();
    let events: Vec<Event> = replay.by_ref().collect();
    let free = events[5];
    assert_eq!((free.number, free.lane, free.thread), (6, Some(LaneId(1)), 101));
    assert_eq!((free.allocated_ns, free.allocated_number, free.temporary), (100, 1, false));
    assert_eq!((free.requested, free.usable, free.address), (10, 18, 0x1000));
    assert_eq!(free.free_stack, process.tables.sites[1].stack);
    assert!(events[2].temporary && events[2].free_stack == StackId(0));
    assert_eq!(replay.unpaired(), Unpaired { frees: 1, blocks: 0 });
    assert_eq!(
        replay.notes(),
        ["1 free is of a block whose allocation is not in the trace".to_owned()]
    );
    let live = replay.into_live();
    let live: Vec<_> = live.iter().map(|b| (b.uid, b.site, b.requested, b.allocated_ns)).collect();
    assert_eq!(live, [(3, 1, 30, 140), (4, 0, 50, 400)]);
}

/// Adds a site with a label, and its shape of 3 × 4 elements of 8 bytes.
fn labelled(t: &mut Traced, label: &str) -> (u32, u32) {
    let name = t.profile.name("label", label);
    let key = t.profile.key(0, |key| key.label = name);
    let site = t.profile.site(0, site(key, 1, 32));
    (site, t.profile.shape(name, 8, &[3, 4]))
}

/// Labelled memory has the number of its labelling, other memory the numbers after those.
#[test]
fn labels_give_numbers_and_shapes() {
    let mut t = Traced::new(1);
    t.profile.header.labellings = 7;
    let (grid, of_grid) = labelled(&mut t, "grid");
    let (cells, of_cells) = labelled(&mut t, "cells");
    let label = |uid, shape| Record::Labelled { uid, shape };
    let own = [
        (10, allocated(0x1000, t.sites[0], 10)),
        (11, label(5, of_grid)),
        (11, Record::Relabelled(block(0x1000, grid, 96))),
        (12, label(6, 0)),
        (12, Record::Relabelled(block(0x1000, grid, 96))),
        (13, Record::Unlabelled { address: 0x1000, site: t.sites[0] }),
        (14, freed(0x1000)),
        (20, label(7, of_cells)),
        (20, Record::Opened(block(0x2000, cells, 96))),
    ];
    t.events(0, &own);
    // The label is in one extent, its memory in the next; a label without memory has no effect.
    t.events(1, &[(30, label(3, of_grid))]);
    let own = [
        (31, Record::Relabelled(block(0x9000, grid, 96))),
        (32, allocated(0x3000, t.sites[0], 10)),
        (33, Record::Relabelled(block(0x3000, grid, 96))),
        (34, Record::Closed { address: 0x2000, site: cells }),
    ];
    t.events(1, &own);
    let (_scratch, process) = t.read("label-numbers");
    let shapes = &process.tables.shapes;
    let dims: Vec<_> = shapes.iter().map(|s| (s.dims(), s.element_bytes, s.labelled)).collect();
    assert_eq!(dims, [("3x4".to_owned(), 8, 1), ("3x4".to_owned(), 8, 1)]);
    let mut replay = process.replay().unwrap();
    let events: Vec<_> =
        replay.by_ref().map(|e| (e.time_ns / TICK, e.operation, e.uid, e.block, e.shape)).collect();
    let expected = [
        (10, Allocate, 8, 1, None),
        (11, Relabel, 5, 1, Some(0)),
        (12, Relabel, 6, 1, None),
        (13, Unlabel, 6, 1, None),
        (14, Free, 8, 1, None),
        (20, Allocate, 7, 2, Some(1)),
        (32, Allocate, 10, 3, None),
        (33, Relabel, 10, 3, None),
        (34, Free, 7, 2, Some(1)),
    ];
    assert_eq!(events, expected);
    let live: Vec<_> = replay.into_live().iter().map(|b| (b.uid, b.block, b.shape)).collect();
    assert_eq!(live, [(10, 3, None)]);
}

#[test]
fn reallocations_are_a_free_and_an_allocation() {
    let mut t = Traced::new(2);
    let (a, b) = (t.sites[0], t.sites[1]);
    let moving = |address| Record::Moving { address };
    let own = [
        (10, allocated(0x1000, a, 10)),
        (20, moving(0x1000)),
        (22, reallocated(0x3000, b, 20)),
        (30, moving(0x3000)),
        (31, reallocated(0x3000, a, 30)),
        (32, freed(0x3000)),
        (40, allocated(0x1008, a, 40)),
        (41, moving(0x1008)),
        (42, Record::Failed { site: a }),
        (43, Record::StillThere),
        (50, moving(0x1008)),
        (51, Record::Released),
        (60, allocated(0x1010, a, 1)),
        (61, moving(0x1010)),
    ];
    t.events(0, &own);
    t.events(1, &[(21, allocated(0x1000, b, 5))]);
    let (_scratch, process) = t.read("realloc");
    let expected = [
        (10, Allocate, 1, 0, 18),
        (21, Allocate, 2, 1, 31),
        (22, Allocate, 3, 1, 59),
        (22, Free, 1, 0, 41),
        (31, Free, 3, 1, 13),
        (31, Allocate, 4, 0, 51),
        (32, Free, 4, 0, 13),
        (40, Allocate, 5, 0, 61),
        (42, Fail, 0, 0, 61),
        (51, Free, 5, 0, 13),
        (60, Allocate, 6, 0, 22),
    ];
    assert_eq!(short(&process), expected);
    let events: Vec<Event> = process.replay().unwrap().collect();
    let parts: Vec<usize> = (0..11).filter(|&i| events[i].reallocated).collect();
    assert_eq!(parts, [2, 3, 4, 5, 9]);
    // The block that realloc returned was the thread's last one when it was freed.
    let temporary: Vec<usize> = (0..11).filter(|&i| events[i].temporary).collect();
    assert_eq!(temporary, [6]);
    let live: Vec<u64> = process.replay().unwrap().into_live().iter().map(|b| b.uid).collect();
    assert_eq!(live, [2, 6]);
}

#[test]
fn a_block_of_another_lane_is_not_temporary() {
    let mut t = Traced::new(2);
    let (a, b) = (t.sites[0], t.sites[1]);
    t.events(0, &[(10, allocated(0x1000, a, 8)), (40, freed(0x1000))]);
    t.events(1, &[(20, freed(0x1000)), (30, allocated(0x1000, b, 8))]);
    let (_scratch, process) = t.read("handed");
    let events: Vec<_> = process.replay().unwrap().map(|e| (e.uid, e.temporary)).collect();
    assert_eq!(events, [(1, false), (1, false), (2, false), (2, false)]);
}

#[test]
fn labels_move_blocks_between_sites() {
    let mut t = Traced::new(3);
    let (plain, named) = (t.sites[0], t.sites[2]);
    let said =
        Block { address: 0x1000, site: named, requested: 64, usable: 18, ..Block::default() };
    let own = [
        (10, allocated(0x1000, plain, 10)),
        (11, Record::Relabelled(said)),
        (12, Record::Unlabelled { address: 0x1000, site: plain }),
        (13, Record::Relabelled(said)),
        (14, Record::Opened(block(0x1000, t.sites[1], 4))),
        (15, freed(0x1000)),
        (16, Record::Closed { address: 0x1000, site: t.sites[1] }),
    ];
    t.events(0, &own);
    let (_scratch, process) = t.read("labels");
    let expected = [
        (10, Allocate, 1, 0, 18),
        (11, Relabel, 1, 1, 18),
        (12, Unlabel, 1, 0, 18),
        (13, Relabel, 1, 1, 18),
        (14, Allocate, 2, 2, 18),
        (15, Free, 1, 1, 0),
        (16, Free, 2, 2, 0),
    ];
    assert_eq!(short(&process), expected);
    let replayed = process.replayed().unwrap();
    let figures = |index: usize| {
        let m = &replayed.sites[index];
        (m.allocations, m.frees, m.requested_bytes, m.freed_bytes, m.largest_bytes)
    };
    assert_eq!(figures(0), (1, 1, 10, 18, 10));
    assert_eq!(figures(1), (2, 2, 128, 36, 64));
    let before: Vec<u32> = process.replay().unwrap().map(|e| e.site_before).collect();
    assert_eq!(before, [0, 0, 1, 0, 2, 1, 2]);
}

#[test]
fn clocks_of_cores_may_differ() {
    let mut t = Traced::new(2);
    let (a, b) = (t.sites[0], t.sites[1]);
    t.events(0, &[(10, allocated(0x1000, a, 10)), (20, allocated(0x2000, a, 10))]);
    let late = [
        (1000, allocated(0x1000, b, 20)), // the other lane's free of it comes at 1100
        (1050, freed(0x1000)),            // by the allocating lane, so it frees the new block
        (1060, allocated(0x1000, b, 30)),
        (5000, allocated(0x2000, b, 40)), // the end of the old one does not come in time
    ];
    t.events(1, &late);
    t.events(0, &[(1100, freed(0x1000)), (6000, freed(0x2000))]);
    let (_scratch, process) = t.read("skew");
    let mut replay = process.replay().unwrap();
    let events: Vec<(u64, Operation, u64)> =
        replay.by_ref().map(|e| (e.time_ns / TICK, e.operation, e.uid)).collect();
    let expected = [
        (10, Allocate, 1),
        (20, Allocate, 2),
        (1000, Allocate, 3),
        (1050, Free, 3),
        (1060, Allocate, 4),
        (1100, Free, 1),
        (5000, Allocate, 5),
        (6000, Free, 5),
    ];
    assert_eq!(events, expected);
    assert_eq!(replay.unpaired(), Unpaired { frees: 0, blocks: 1 });
    let live: Vec<_> = replay.into_live().iter().map(|b| (b.uid, b.usable)).collect();
    assert_eq!(live, [(4, 38)]);
}

#[test]
fn a_trace_that_was_stopped_ends_there() {
    let mut t = Traced::new(1);
    let a = t.sites[0];
    t.profile.header.trace_stopped_ns = 25 * TICK;
    t.events(
        0,
        &[(10, allocated(0x1000, a, 10)), (20, freed(0x1000)), (30, allocated(0x1000, a, 1))],
    );
    let (_scratch, process) = t.read("stopped");
    let mut replay = process.replay().unwrap();
    assert_eq!(replay.by_ref().count(), 2);
    assert_eq!(replay.notes(), ["the trace ends at 0.000 s: out of space"]);
    assert!(replay.into_live().is_empty());
}

#[test]
fn contents_are_taken_once_wherever_they_are() {
    let mut t = Traced::new(1);
    let a = t.sites[0];
    let scratch = Scratch::new("moved");
    let (mut first, mut moved) = (t.start(10, 100), t.start(30, 100));
    let one = packed(&first, &[(10, allocated(0x1000, a, 10)), (20, allocated(0x2000, a, 10))]);
    let two = packed(&moved, &[(30, freed(0x1000)), (31, allocated(0x3000, a, 10))]);
    first.state = TRACE_FULL;
    t.profile.events(0, first, &one);
    moved.state = TRACE_MOVED;
    t.profile.events(0, moved, b"no records, for these were moved");
    t.events(0, &[(40, freed(0x2000)), (41, freed(0x3000))]);
    let file = scratch.write("12-0.profile", &t.profile.finish());
    let mut appender = Appender::of(&file).unwrap();
    appender.append(0, &[moved.as_bytes(), &*two].concat()).unwrap();
    appender.append(0, &[first.as_bytes(), &*one].concat()).unwrap(); // and not yet marked as moved
    let process = Recording::open(&file).unwrap().processes.remove(0);
    let ticks: Vec<u64> = short(&process).iter().map(|event| event.0).collect();
    assert_eq!(ticks, [10, 20, 30, 31, 40, 41]);
    assert_eq!(process.replay().unwrap().unpaired(), Unpaired::default());
    // A lost chunk is reported.
    std::fs::remove_file(scratch.join("12-0.trace")).unwrap();
    let process = Recording::open(&file).unwrap().processes.remove(0);
    let mut replay = process.replay().unwrap();
    assert_eq!(replay.by_ref().count(), 3);
    assert_eq!(replay.unpaired(), Unpaired { frees: 1, blocks: 0 });
}

#[test]
fn events_are_not_read_with_the_profile() {
    // Sites after an extent of events that is larger than the maximum profile without events.
    let whole = {
        let mut t = Traced::new(1);
        let a = t.sites[0];
        t.events(0, &[(10, allocated(0x1000, a, 10))]);
        t
    };
    let (bytes, length) = (whole.profile.finish(), 6u64 << 30);
    let mut header = whole.profile.header;
    header.file_end = bytes.len() as u64 + length;
    let mut extent = ExtentHeader::new_zeroed();
    (extent.magic, extent.kind, extent.length) = (EXTENT_MAGIC, Kind::Events as u16, length);
    let scratch = Scratch::new("sparse");
    let file = scratch.write("12-0.profile", header.as_bytes());
    let opened = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    opened.write_all_at(extent.as_bytes(), PAGE).unwrap();
    opened.write_all_at(&bytes[PAGE as usize..], PAGE + length).unwrap();
    let process = Recording::open(&file).unwrap().processes.remove(0);
    assert_eq!((process.tables.sites.len(), &*process.completeness.notes), (1, &[][..]));
    // Ids are file positions, so the events belong to other sites.
    assert_eq!(process.replay().unwrap().count(), 0);
    assert_eq!(process.replay().unwrap().into_live().len(), 0);
    opened.set_len(PAGE + length / 2).unwrap();
    let process = Recording::open(&file).unwrap().processes.remove(0);
    assert_eq!(process.tables.sites.len(), 0);
}

#[test]
fn selections_keep_events_true() {
    let mut t = Traced::new(4);
    let sites = t.sites.clone();
    let scope = t.scope;
    let own = [
        (10, allocated(0x1000, sites[0], 10)),
        (11, allocated(0x2000, sites[2], 20)),
        (12, Record::Scope(scope)),
        (12, Record::Node(t.nodes[3])),
        (13, freed(0x1000)),
    ];
    t.events(0, &own);
    t.events(1, &[(14, allocated(0x1000, sites[1], 30)), (15, allocated(0x3000, sites[3], 40))]);
    let (_scratch, mut process) = t.read("selections");
    let frames = |process: &Process, stack: StackId| {
        let path = process.path_of(stack);
        path.iter().map(|frame| process.tables.frames[frame.0 as usize].offset).collect::<Vec<_>>()
    };
    let free = process.replay().unwrap().nth(2).unwrap();
    assert_eq!((free.scope, free.operation), (ScopeId(1), Free));
    let freed_at = frames(&process, free.free_stack);
    let focus = vec!["thread:app".parse().unwrap()];
    Filter { focus, ..Filter::default() }.apply(&mut process, "--focus thread:app");
    let events: Vec<Event> = process.replay().unwrap().collect();
    let numbers: Vec<_> = events.iter().map(|e| (e.number, e.uid, e.live_bytes)).collect();
    assert_eq!(numbers, [(1, 1, 18), (2, 2, 46), (3, 1, 28)]);
    for event in &events {
        assert_eq!(process.tables.sites[event.site as usize].lane, LaneId(0));
    }
    assert_eq!(frames(&process, events[2].free_stack), freed_at);
    process.hide(&["scope:load".parse().unwrap()]);
    process.scopes_to_frames(heaptide_analysis::selection::scope_frames::Inside::Functions);
    let free = process.replay().unwrap().nth(2).unwrap();
    assert_eq!((free.scope, free.site), (ScopeId(0), 0));
    assert_eq!(frames(&process, free.free_stack), freed_at);
    process.cut_stacks(1);
    let sites: Vec<u32> = process.replay().unwrap().map(|event| event.site).collect();
    assert_eq!((sites, process.tables.sites.len()), (vec![0, 0, 0], 1));
    assert_eq!(process.replay().unwrap().into_live().len(), 1);
}

#[test]
fn joined_processes_have_one_order_of_events() {
    let scratch = Scratch::new("joined-traces");
    for (pid, second) in [(12, 1), (13, 2)] {
        let mut t = Traced::new(2);
        t.profile.header.pid = pid;
        t.profile.header.start_realtime_ns = second * 1000;
        let a = t.sites[0];
        let own =
            [(10, allocated(0x1000, a, 10)), (200, freed(0x1000)), (300, allocated(0x10, a, 9))];
        t.events(0, &own);
        scratch.write(&format!("{pid}-0.profile"), &t.profile.finish());
    }
    let mut recording = Recording::open(&scratch).unwrap();
    recording.join(Apart::Nowhere);
    let process = &recording.processes[0];
    let expected = [
        (10, Allocate, 1, 0, 18),
        (110, Allocate, 2, 0, 36),
        (200, Free, 1, 0, 18),
        (300, Allocate, 3, 0, 35),
        (300, Free, 2, 0, 0), // the other one has ended, with its live bytes
        (400, Allocate, 4, 0, 17),
    ];
    assert_eq!(short(process), expected);
    let live: Vec<_> = process.replay().unwrap().into_live().iter().map(|b| b.uid).collect();
    assert_eq!(live, [3, 4]);
}

/// A block of the model.
#[derive(Clone, Copy)]
struct Model {
    uid: u64,
    site: u32,
    origin: u32,
    usable: u64,
    allocated: (u64, u64),
}

/// A random program: the records of its lanes, and the expected events.
#[derive(Default)]
struct Program {
    written: Vec<Vec<(u64, Record)>>,
    expected: Vec<(u64, Operation, u64, u32, u64, u64)>,
    live: BTreeMap<u64, Model>,
    moving: BTreeMap<usize, (u64, Model)>,
    uids: u64,
    bytes: u64,
}

impl Program {
    fn tell(&mut self, ticks: u64, operation: Operation, site: u32, block: Option<&Model>) {
        let (uid, allocated) = block.map_or((0, 0), |b| (b.uid, b.allocated.1));
        let number = self.expected.len() as u64 + 1;
        let allocated = if operation == Allocate { number } else { allocated };
        self.expected.push((ticks, operation, uid, site, self.bytes, allocated));
    }

    fn allocate(&mut self, ticks: u64, address: u64, site: u32, usable: u64) {
        self.uids += 1;
        self.bytes += usable;
        let allocated = (ticks, self.expected.len() as u64 + 1);
        let block = Model { uid: self.uids, site, origin: site, usable, allocated };
        self.tell(ticks, Allocate, site, Some(&block));
        assert!(self.live.insert(address, block).is_none());
    }

    fn free(&mut self, ticks: u64, block: &Model) {
        self.bytes -= block.usable;
        self.tell(ticks, Free, block.site, Some(block));
    }

    /// Returns an address that is not in use.
    fn address(&self, random: &mut Random) -> u64 {
        loop {
            let address = 0x10_0000 + 16 * random.below(400);
            let moving = self.moving.values().any(|(at, _)| *at == address);
            if !self.live.contains_key(&address) && !moving {
                return address;
            }
        }
    }

    fn any(&self, random: &mut Random) -> Option<u64> {
        let count = self.live.len() as u64;
        (count > 0)
            .then(|| random.below(count) as usize)
            .and_then(|n| self.live.keys().nth(n).copied())
    }

    /// Continues the reallocation of a lane, if there is one; else performs a random operation.
    fn step(&mut self, ticks: u64, lane: usize, random: &mut Random, sites: u32) {
        let site = random.below(sites.into()) as u32;
        let requested = random.below(300);
        let usable = requested + 8;
        if let Some((old, block)) = self.moving.remove(&lane) {
            let record = match random.below(6) {
                0 => {
                    self.live.insert(old, block);
                    Record::StillThere
                }
                1 => {
                    self.free(ticks, &block);
                    Record::Released
                }
                2 | 3 if !self.live.contains_key(&old) => {
                    self.free(ticks, &block);
                    self.allocate(ticks, old, site, usable);
                    reallocated(old, site, requested)
                }
                _ => {
                    let mut address = old;
                    while address == old {
                        address = self.address(random);
                    }
                    self.allocate(ticks, address, site, usable);
                    self.free(ticks, &block);
                    reallocated(address, site, requested)
                }
            };
            self.written[lane].push((ticks, record));
            return;
        }
        let record = match (random.below(12), self.any(random)) {
            (0..3, Some(address)) => {
                let block = self.live.remove(&address).unwrap();
                self.free(ticks, &block);
                freed(address)
            }
            (3, Some(address)) => {
                let block = self.live.remove(&address).unwrap();
                self.moving.insert(lane, (address, block));
                Record::Moving { address }
            }
            (4, Some(address)) => {
                let block = self.live.get_mut(&address).unwrap();
                block.site = site;
                let (block, usable) = (*block, block.usable);
                self.tell(ticks, Relabel, site, Some(&block));
                Record::Relabelled(Block { address, site, requested, usable, ..Block::default() })
            }
            (5, Some(address)) => {
                let block = self.live.get_mut(&address).unwrap();
                block.site = block.origin;
                let (block, site) = (*block, block.origin);
                self.tell(ticks, Unlabel, site, Some(&block));
                Record::Unlabelled { address, site }
            }
            (6, _) => {
                self.tell(ticks, Fail, site, None);
                Record::Failed { site }
            }
            _ => {
                let address = self.address(random);
                self.allocate(ticks, address, site, usable);
                allocated(address, site, requested)
            }
        };
        self.written[lane].push((ticks, record));
    }
}

/// Replaces the indices of sites in a record by their ids.
fn with_ids(record: Record, ids: &[u32]) -> Record {
    let id = |site: u32| ids[site as usize];
    let block = |block: Block| Block { site: id(block.site), ..block };
    match record {
        Record::Allocated(b) => Record::Allocated(block(b)),
        Record::Relabelled(b) => Record::Relabelled(block(b)),
        Record::Unlabelled { address, site } => Record::Unlabelled { address, site: id(site) },
        Record::Failed { site } => Record::Failed { site: id(site) },
        other => other,
    }
}

#[test]
fn random_programs_come_out_as_they_were() {
    const SITES: u32 = 6;
    for seed in 1..40 {
        let mut random = Random::new(seed);
        let lanes = 1 + random.below(5) as usize;
        let mut program = Program { written: vec![Vec::new(); lanes], ..Program::default() };
        let mut ticks = 1000;
        for _ in 0..2000 {
            ticks += 1 + random.below(3) * random.below(200);
            let lane = random.below(lanes as u64) as usize;
            program.step(ticks, lane, &mut random, SITES);
        }
        let mut t = Traced::new(SITES);
        let scratch = Scratch::new(&format!("random-{seed}"));
        let mut moved = Vec::new();
        // Contents of lanes alternate, and are in any of the places.
        let mut rest: Vec<&[(u64, Record)]> = program.written.iter().map(|w| &w[..]).collect();
        while let Some(lane) = (0..lanes).find(|&lane| !rest[lane].is_empty()) {
            let lane = (lane + random.below(lanes as u64) as usize) % lanes;
            let count = (1 + random.below(300) as usize).min(rest[lane].len());
            let (now, later) = rest[lane].split_at(count);
            rest[lane] = later;
            let Some(first) = now.first() else {
                continue;
            };
            let records: Vec<_> = now.iter().map(|&(at, r)| (at, with_ids(r, &t.sites))).collect();
            let mut start = t.start(first.0, 7);
            let index = if lane == 4 { TRACE_NOBODY } else { lane as u32 };
            let bytes = packed(&start, &records);
            if random.below(2) == 0 {
                moved.push((index, [start.as_bytes(), &*bytes].concat()));
                start.state = TRACE_MOVED;
            }
            t.profile.events(index, start, &bytes);
        }
        let file = scratch.write("12-0.profile", &t.profile.finish());
        let mut appender = Appender::of(&file).unwrap();
        moved.iter().for_each(|(lane, contents)| appender.append(*lane, contents).unwrap());
        let process = Recording::open(&file).unwrap().processes.remove(0);
        let mut replay = process.replay().unwrap();
        let (mut events, mut batch) = (Vec::new(), Vec::new());
        while replay.fill(&mut batch) {
            events.extend(batch.iter().map(|e| {
                (e.time_ns / TICK, e.operation, e.uid, e.site, e.live_bytes, e.allocated_number)
            }));
        }
        let order: BTreeMap<u32, u32> = (0..).zip(order_of_sites(&process, &t)).collect();
        let expected: Vec<_> = program
            .expected
            .iter()
            .map(|&(at, op, uid, site, bytes, number)| (at, op, uid, order[&site], bytes, number))
            .collect();
        assert_eq!(events.len(), expected.len(), "seed {seed}");
        for (event, expected) in events.iter().zip(&expected) {
            assert_eq!(event, expected, "seed {seed}");
        }
        assert_eq!(replay.unpaired(), Unpaired::default());
        let moving = program.moving.values().map(|(_, block)| block);
        let mut live: Vec<u64> = program.live.values().chain(moving).map(|b| b.uid).collect();
        live.sort_unstable();
        let uids: Vec<u64> = replay.into_live().iter().map(|block| block.uid).collect();
        assert_eq!(uids, live, "seed {seed}");
    }
}

/// Returns the return address of a site's frame, relative to the module.
fn after(number: u32) -> u64 {
    16 * u64::from(number) + 16
}

/// Returns the index in the process of each site: sites of a lane are adjacent.
fn order_of_sites(process: &Process, traced: &Traced) -> Vec<u32> {
    let frame = |stack: StackId| process.path_of(stack).first().copied();
    (0..traced.sites.len() as u32)
        .map(|index| {
            let is_it = |site: &heaptide_analysis::model::Site| {
                frame(site.stack).is_some_and(|frame| {
                    process.tables.frames[frame.0 as usize].offset == after(index) - 1
                })
            };
            process.tables.sites.iter().position(is_it).expect("a site") as u32
        })
        .collect()
}

#[test]
fn whatever_the_bytes_reading_ends() {
    let mut t = Traced::new(2);
    let (a, b) = (t.sites[0], t.sites[1]);
    let mut own = vec![(5, Record::Thread(3)), (6, Record::Scope(t.scope))];
    for n in 0..60 {
        own.push((10 + 2 * n, allocated(0x1000 + 16 * n, if n % 2 == 0 { a } else { b }, n)));
        own.push((11 + 2 * n, if n % 3 == 0 { freed(0x1000) } else { freed(0x1000 + 16 * n) }));
    }
    t.events(0, &own);
    t.events(1, &[(21, Record::Moving { address: 0x1000 }), (22, reallocated(0x5000, b, 20))]);
    let whole = t.profile.finish();
    let scratch = Scratch::new("damaged-traces");
    let mut random = Random::new(88);
    let (mut replayed, mut given) = (0, 0);
    for _ in 0..1500 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(12) {
            let at = bytes.len() as u64 - 8192 + random.below(8192);
            bytes[at as usize] ^= 1 << random.below(8);
        }
        let file = scratch.write("12-0.profile", &bytes);
        let Ok(recording) = Recording::open(&file) else {
            continue;
        };
        for process in recording.processes.iter().filter(|p| p.has_trace()) {
            let replay = process.replay().unwrap();
            let mut last = 0;
            for event in replay {
                assert!(
                    event.time_ns >= last && (event.site as usize) < process.tables.sites.len()
                );
                last = event.time_ns;
                given += 1;
            }
            replayed += 1;
        }
    }
    assert!(replayed > 500 && given > 10_000, "{replayed} traces, {given} events");
}
