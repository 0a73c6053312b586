//! `caliper`: the records that Caliper's services write, with its attributes.
//!
//! With a trace, a record is an allocation, a free, the begin or end of a region, or a snapshot
//! that the program pushed. Without a trace, records are sums, as its service `aggregate` writes
//! them.

use std::sync::Arc;
use std::vec::IntoIter;

use heaptide_analysis::model::{Process, Site, SiteKind};
use heaptide_analysis::trace::{Event, Replay};

use rustc_hash::FxHashMap;

use super::info::Info;
use super::sites::{Places, stack_tree_of};
use super::source::{Change, Changes, Error, Filler, Origin, Records, Source, set_changes};
use crate::services::{Service, Services};
use crate::stream::{Make, Notes, Stream};
use crate::table::{AttributeId, Column, Form, NodeId, Shown, Table};
use crate::value::{Bits, Kind};
use records::{Facts, Records as State, Row, What};

mod records;
mod snapshots;

pub(super) const CALIPER: Source = Source {
    name: "caliper",
    says: "records with the attributes of Caliper's services, which `caliper(alloc,event)` \
           selects: allocations, regions, snapshots; sums without a trace",
    columns,
    records: Records::Trace(stream),
};

/// A column, with its value for a record.
struct Field {
    info: Info,
    value: fn(&Row, &Known) -> Option<Bits>,
}

const fn field(info: Info, value: fn(&Row, &Known) -> Option<Bits>) -> Field {
    Field { info, value }
}

const FIELDS: &[Field] = &[
    field(Info::text("mem.alloc", "label, or the function that allocated"), |row, _| {
        (row.what == What::Alloc).then_some(row.memory.name)
    }),
    field(Info::text("mem.free", "label, or the function that allocated"), |row, _| {
        (row.what == What::Free).then_some(row.memory.name)
    }),
    field(
        Info::new("alloc.total_size", Kind::Int, "bytes", "requested bytes; of a free negative"),
        |row, _| {
            let bytes = i64::try_from(row.memory.bytes).unwrap_or(i64::MAX);
            match row.what {
                What::Alloc => Some(Bits::int(bytes)),
                What::Free => Some(Bits::int(-bytes)),
                _ => None,
            }
        },
    ),
    field(Info::uint("alloc.uid", "", "number of the allocation"), |row, _| {
        row.is_of_memory().then_some(Bits(row.memory.uid))
    }),
    field(Info::new("alloc.address", Kind::Address, "", "address"), |row, _| {
        row.is_of_memory().then_some(Bits(row.memory.address))
    }),
    field(
        Info::text("alloc.type", "function that allocated, in recordings with --by-call"),
        |row, known| {
            let call = known.calls_known.get(row.memory.site as usize).copied().flatten();
            call.filter(|_| row.is_of_memory())
        },
    ),
    field(Info::uint("alloc.elem_size", "bytes", "bytes of an element"), |row, _| {
        (row.what == What::Alloc).then_some(Bits(row.memory.element_bytes))
    }),
    field(Info::uint("alloc.num_elems", "", "number of elements"), |row, _| {
        let elements = row.memory.bytes.checked_div(row.memory.element_bytes)?;
        (row.what == What::Alloc).then_some(Bits(elements))
    }),
    field(Info::uint("mem.active", "bytes", "active bytes before the event"), |row, known| {
        known.of(row, Service::Active).then_some(Bits(row.active))
    }),
    field(
        Info::uint(
            "alloc.region.highwatermark",
            "bytes",
            "the most active bytes since the previous record",
        ),
        |row, known| known.of(row, Service::Highwatermark).then_some(Bits(row.high)),
    ),
    field(Info::uint("region.count", "times", "1 for the end of a region"), |row, _| {
        (row.what == What::End).then_some(Bits(1))
    }),
    field(
        Info::uint("time.offset.ns", "ns", "time since the start of the process"),
        |row, known| known.of(row, Service::Timer).then_some(Bits(row.time_ns)),
    ),
    field(Info::uint("time.offset", "", "the same in microseconds"), |row, known| {
        known.of(row, Service::Timer).then_some(Bits(row.time_ns / 1000))
    }),
    field(
        Info::uint("time.duration.ns", "ns", "time since the thread's previous record")
            .also("time.duration"),
        |row, known| known.of(row, Service::Timer).then_some(Bits(row.duration_ns)),
    ),
    field(Info::uint("pthread.id", "", "number of the thread"), |row, known| {
        let has = known.of(row, Service::Pthread) && row.thread != 0;
        has.then_some(Bits(row.thread.into()))
    }),
    field(Info::text("thread", "name of the thread"), |row, known| {
        let lane = row.lane.filter(|_| known.of(row, Service::Pthread))?;
        known.lanes.get(lane.0 as usize).copied()
    }),
    field(Info::new("mpi.rank", Kind::Int, "", "rank in a parallel job"), |_, known| {
        known.rank.filter(|_| known.services.has(Service::Mpi))
    }),
    field(
        Info::uint("alloc.tally", "bytes", "the most live bytes that the region allocated"),
        |row, _| row.is_of_region().then_some(Bits(row.stats.tally)),
    ),
    field(Info::uint("alloc.count", "", "number of allocations of the region"), |row, _| {
        row.is_of_region().then_some(Bits(row.stats.count))
    }),
    field(Info::uint("avg#alloc.size", "bytes", "their average size"), |row, _| {
        let average = row.stats.total.checked_div(row.stats.count)?;
        row.is_of_region().then_some(Bits(average))
    }),
    field(Info::uint("max#alloc.size", "bytes", "the largest of them"), |row, _| {
        row.is_of_region().then_some(Bits(row.stats.largest))
    }),
    field(
        Info::uint("aggregate.slot", "", "number of the path, in order of the first records"),
        |row, _| (row.what != What::Stats).then_some(Bits(row.slot.into())),
    ),
];

/// The columns that only sums have.
fn of_sums() -> [Info; 2] {
    [
        Info::uint("count", "", "number of summed records; the column that count() sums"),
        Info::uint("sum#alloc.total_size", "bytes", "their requested bytes"),
    ]
}

fn columns() -> Vec<Info> {
    FIELDS.iter().map(|field| field.info.clone()).chain(of_sums()).collect()
}

impl Row {
    fn is_of_memory(&self) -> bool {
        matches!(self.what, What::Alloc | What::Free)
    }

    fn is_of_region(&self) -> bool {
        self.what == What::Stats
    }
}

/// Data of one process that records refer to.
struct Known {
    services: Services,
    facts: Facts,
    places: Places,
    lanes: Vec<Bits>,
    /// By site, the function that allocated its blocks, if it was recorded.
    calls_known: Vec<Option<Bits>>,
    rank: Option<Bits>,
    origin: Origin,
    changes: Changes,
    /// Paths of functions by site, if nothing is annotated; else empty.
    functions: Vec<NodeId>,
}

impl Known {
    fn new(filler: &mut Filler, process: &Process, function: Option<AttributeId>) -> Known {
        let places = Places::of(filler, process);
        let functions = function.map(|function| {
            let stacks = stack_tree_of(filler, process, function);
            let sites = process.tables.sites.iter();
            sites.map(|site| stacks[site.stack.0 as usize]).collect()
        });
        let changes = super::traced::scope_changes(filler, process);
        let strings = &mut filler.table.strings;
        let labels: Vec<Bits> =
            process.tables.labels.iter().map(|label| strings.bits(&label.name)).collect();
        let sites = &process.tables.sites;
        let malloc = strings.bits("malloc");
        let mut call = |site: &Site| site.call.map(|call| strings.bits(hooked(call.name())));
        let calls_known: Vec<Option<Bits>> = sites.iter().map(&mut call).collect();
        let calls = calls_known.iter().map(|call| call.unwrap_or(malloc)).collect();
        let facts = Facts {
            labels: (0..sites.len()).map(|site| Facts::label(process, site, &labels)).collect(),
            calls,
            is_heap: sites.iter().map(|site| site.kind == SiteKind::Heap).collect(),
            elements: process.tables.shapes.iter().map(|shape| shape.element_bytes).collect(),
            parents: process.tables.scopes.iter().map(|scope| scope.parent).collect(),
            snapshots: snapshots::of_process(&mut filler.table, process),
        };
        let strings = &mut filler.table.strings;
        Known {
            services: filler.services,
            facts,
            places,
            lanes: process.tables.lanes.iter().map(|lane| strings.bits(&lane.name)).collect(),
            calls_known,
            rank: process.identity.rank.map(|rank| Bits::int(i64::from(rank.number))),
            origin: Origin::of(&mut filler.table, process),
            changes,
            functions: functions.unwrap_or_default(),
        }
    }

    /// Returns the path of a record: the regions of the thread, or the functions of an allocation.
    fn path(&self, row: &Row) -> NodeId {
        let function = self.functions.get(row.memory.site as usize);
        match function.filter(|_| row.what == What::Alloc) {
            Some(&function) => function,
            None => self.places.nodes[row.scope.0 as usize],
        }
    }

    /// Returns whether a record has the attributes of a service; sums of regions have none.
    fn of(&self, row: &Row, service: Service) -> bool {
        self.services.has(service) && row.what != What::Stats
    }
}

/// Returns the function that Caliper wraps: operator new and aligned functions call malloc there.
fn hooked(call: &'static str) -> &'static str {
    match call {
        "calloc" | "realloc" => call,
        _ => "malloc",
    }
}

/// The part that all batches share.
struct Shared {
    template: Table,
    origin: [Option<AttributeId>; 6],
    fields: Vec<(AttributeId, &'static Field)>,
    changes: Vec<[AttributeId; 2]>,
}

impl Shared {
    fn table(&self, known: &Known, rows: &[Row]) -> Table {
        let mut table = self.template.without_rows();
        known.origin.fill(self.origin, &mut table, rows.len());
        set_changes(&mut table, &self.changes, (&known.changes, rows), |row| match row.what {
            What::Begin => Some(Change::Begin(row.changed)),
            What::End => Some(Change::End(row.changed)),
            _ => None,
        });
        let mut set = |id: AttributeId, column| table.of_mut(id).column = column;
        for (id, field) in &self.fields {
            set(*id, Column::of(rows.iter().map(|row| (field.value)(row, known))));
        }
        for (id, values) in &known.places.iterations {
            set(*id, Column::of(rows.iter().map(|row| values[row.scope.0 as usize])));
        }
        table.paths = rows.iter().map(|row| known.path(row)).collect();
        table.others = vec![Default::default(); rows.len()];
        for (at, row) in rows.iter().enumerate() {
            for &(id, value) in &row.values {
                table.of_mut(id).column.set(at, value);
            }
        }
        table
    }
}

/// Streams the records of all processes that have a trace; without any trace, sums of all.
fn stream<'a>(mut filler: Filler, processes: Vec<&'a Process>) -> Result<Stream<'a>, Error> {
    if filler.is_of_all {
        filler.origin = [None; 6];
    }
    for id in filler.changes.values().flatten() {
        filler.table.of_mut(*id).shown = Shown::Always;
    }
    // Without annotations, functions on stacks take the place of annotated functions.
    let is_annotated = processes.iter().any(|process| process.tables.scopes.len() > 1);
    let function =
        (!is_annotated).then(|| filler.table.attribute("function", Kind::Text, Form::Nested));
    if !processes.iter().any(|process| process.has_trace()) {
        processes.into_iter().for_each(|process| fill_sums(&mut filler, process, function));
        return Ok(Stream::of(filler.table).with_notes(filler.notes));
    }
    let traced = processes.into_iter().filter(|process| process.has_trace());
    let of = |process: &'a Process| (Arc::new(Known::new(&mut filler, process, function)), process);
    let mut sources = traced.map(of).collect::<Vec<_>>().into_iter();
    let (known, process) = sources.next().ok_or(Error::NoTrace)?;
    let first = Reading::of(known, process.replay().map_err(Error::Unreadable)?);
    let fields = FIELDS.iter();
    let fields =
        fields.filter_map(|field| filler.column(field.info.name).map(|id| (id, field))).collect();
    let changes = filler.changes.into_values().collect();
    let (origin, template) = (filler.origin, filler.table);
    let shared = Shared { template: template.clone(), origin, fields, changes };
    let notes = Notes::default();
    let all = All {
        shared: Arc::new(shared),
        sources,
        at: Some(first),
        events: Vec::new(),
        notes: notes.clone(),
    };
    Ok(Stream::new(template, all.supply()).with_notes(notes))
}

/// A process whose trace is being read.
struct Reading {
    known: Arc<Known>,
    state: State,
    replay: Replay,
    /// Numbers of paths.
    slots: FxHashMap<NodeId, u32>,
}

impl Reading {
    fn of(known: Arc<Known>, replay: Replay) -> Reading {
        let state = State::new(known.services, &known.facts);
        Reading { known, state, replay, slots: FxHashMap::default() }
    }

    /// Numbers the paths of records.
    fn number(&mut self, rows: &mut [Row]) {
        for row in rows.iter_mut().filter(|row| row.what != What::Stats) {
            let next = self.slots.len() as u32;
            row.slot = *self.slots.entry(self.known.path(row)).or_insert(next);
        }
    }
}

/// The processes, read one after the other.
struct All<'a> {
    shared: Arc<Shared>,
    sources: IntoIter<(Arc<Known>, &'a Process)>,
    at: Option<Reading>,
    events: Vec<Event>,
    notes: Notes,
}

impl<'a> All<'a> {
    fn supply(mut self) -> impl FnMut() -> Option<(usize, Make<'a>)> + Send {
        move || {
            let (known, rows) = self.next()?;
            let (count, shared) = (rows.len(), self.shared.clone());
            let make = move || shared.table(&known, &rows);
            Some((count, Box::new(make) as Make<'a>))
        }
    }

    /// Returns the next records, with the data that they refer to.
    fn next(&mut self) -> Option<(Arc<Known>, Vec<Row>)> {
        let mut rows = Vec::new();
        loop {
            let mut reading = match self.at.take() {
                Some(reading) => reading,
                None => {
                    let (known, process) = self.sources.next()?;
                    match process.replay() {
                        Ok(replay) => Reading::of(known, replay),
                        Err(error) => {
                            self.notes.add(vec![error.to_string()]);
                            continue;
                        }
                    }
                }
            };
            let known = reading.known.clone();
            if reading.replay.fill(&mut self.events) {
                let (state, facts) = (&mut reading.state, &known.facts);
                self.events.iter().for_each(|event| state.add(event, facts, &mut rows));
                reading.number(&mut rows);
                self.at = Some(reading);
            } else {
                self.notes.add(reading.replay.notes());
                reading.state.finish(&mut rows);
            }
            if !rows.is_empty() {
                return Some((known, rows));
            }
        }
    }
}

/// Adds sums of the allocations of each site.
fn fill_sums(filler: &mut Filler, process: &Process, function: Option<AttributeId>) {
    let known = Known::new(filler, process, function);
    for (index, site) in process.tables.sites.iter().enumerate() {
        let label = known.facts.labels[index];
        let is_tracked = label.is_some() || known.services.has(Service::Sysalloc);
        if site.measures.allocations == 0 || !is_tracked {
            continue;
        }
        let row = filler.table.add_row();
        for (id, value) in filler.origin.into_iter().zip(known.origin.values) {
            filler.set(id, row, value);
        }
        known.places.set(filler, row, site.scope);
        if let Some(&path) = known.functions.get(index) {
            filler.table.paths[row] = path;
        }
        let name = label.or(Some(known.facts.calls[index]));
        let size = site.size.and_then(|bytes| i64::try_from(bytes).ok()).map(Bits::int);
        let lane = known.lanes.get(site.lane.0 as usize).copied();
        for (column, value) in [
            ("mem.alloc", name),
            ("alloc.total_size", size),
            ("alloc.type", known.calls_known[index]),
            ("thread", lane),
            ("mpi.rank", known.rank),
            ("count", Some(Bits(site.measures.allocations))),
            ("sum#alloc.total_size", Some(Bits(site.measures.requested_bytes))),
            ("max#alloc.size", Some(Bits(site.measures.largest_bytes))),
        ] {
            filler.set(filler.column(column), row, value);
        }
    }
}
