//! Tables from traces: `events`, and `lifetimes` of blocks.
//!
//! One thread at a time replays the trace; any thread converts events to tables.

use std::sync::{Arc, Mutex, PoisonError};
use std::vec::IntoIter;

use heaptide_analysis::model::{LaneId, Process, ScopeId, Shape, StackId};
use heaptide_analysis::trace::{Event, LiveBlock, Operation, Replay};

use super::info::Info;
use super::sites::{Blocks, Places, of_blocks, stack_tree};
use super::source::{Change, Changes, Error, Filler, Origin, Records, Source, set_changes};
use crate::stream::{Make, Notes, Stream};
use crate::table::{AttributeId, Column, Form, NodeId, Table};
use crate::value::{Bits, Kind, Strings};

pub(super) const EVENTS: Source = Source {
    name: "events",
    says: "events of a trace: allocations, frees, failures, changes of label, begins and ends of \
           scopes, marks",
    columns: || columns(What::Events),
    records: Records::Trace(|filler, processes| stream(What::Events, filler, processes)),
};

pub(super) const LIFETIMES: Source = Source {
    name: "lifetimes",
    says: "blocks of a trace, from allocation to free; in order of the frees, unfreed blocks \
           last",
    columns: || columns(What::Lifetimes),
    records: Records::Trace(|filler, processes| stream(What::Lifetimes, filler, processes)),
};

/// The kind of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Every event.
    Events,
    /// Blocks, when they are freed, and at the end.
    Lifetimes,
}

/// A column, with its value for an event. For lifetimes the event is the free of a block, or, if it
/// was never freed, its allocation.
struct Field {
    info: Info,
    value: fn(&Event, &Known) -> Option<Bits>,
}

const fn field(info: Info, value: fn(&Event, &Known) -> Option<Bits>) -> Field {
    Field { info, value }
}

const OF_EVENTS: &[Field] = &[
    field(
        Info::uint(
            "number",
            "",
            "number from 1, in order of time within the process; none for scopes and marks",
        ),
        |event, _| Some(Bits(event.number)).filter(|number| number.0 > 0),
    ),
    field(Info::uint("time_ns", "ns", "time from the start of the process"), |event, _| {
        Some(Bits(event.time_ns))
    }),
    field(
        Info::text(
            "operation",
            "allocate, free, fail, relabel, unlabel; begin or end of a scope; mark",
        ),
        |event, known| Some(known.operations[event.operation as usize]),
    ),
    field(Info::text("mark", "name of the mark"), |event, known| {
        known.marks.get(event.mark? as usize).copied()
    }),
    field(Info::new("reallocated", Kind::Bool, "", "part of a reallocation"), |event, _| {
        Some(Bits(event.reallocated.into()))
    }),
    UID,
    BLOCK,
    ADDRESS,
    SIZE,
    USABLE,
    DIMS,
    ELEMENT,
    field(
        Info::text("mem.alloc", "label, or `malloc`; for allocations and relabelling"),
        |event, known| match event.operation {
            Operation::Allocate | Operation::Relabel => known.label_or_malloc(event.site),
            _ => None,
        },
    ),
    field(
        Info::text("mem.free", "label, or `malloc`; for frees and unlabelling"),
        |event, known| match event.operation {
            Operation::Free => known.label_or_malloc(event.site),
            Operation::Unlabel => known.label_or_malloc(event.site_before),
            _ => None,
        },
    ),
    field(
        Info::uint("live_bytes", "bytes", "live bytes of the process after the event")
            .also("mem.active"),
        |event, _| Some(Bits(event.live_bytes)),
    ),
    field(
        Info::uint(
            "labelled_bytes",
            "bytes",
            "live bytes with a label or of pool blocks, in the heap and outside; mem.active with \
             `WHERE label`",
        ),
        |event, _| Some(Bits(event.labelled_bytes)),
    ),
    field(Info::text("lane", "name of the thread").also("thread"), |event, known| {
        known.lane(event.lane?)
    }),
    field(Info::uint("tid", "", "number of that thread"), |event, _| {
        Some(Bits(event.thread.into())).filter(|tid| tid.0 > 0)
    }),
    field(
        Info::text("allocated_lane", "name of the allocating thread").also("allocated_thread"),
        |event, known| known.lane(known.site_lanes[event.site as usize]),
    ),
    LIFETIME,
    LIFETIME_EVENTS,
    TEMPORARY,
    CROSS_THREAD,
    FREE_STACK,
];

const OF_LIFETIMES: &[Field] = &[
    UID,
    BLOCK,
    ADDRESS,
    SIZE,
    USABLE,
    DIMS,
    ELEMENT,
    field(Info::text("mem.alloc", "label, or `malloc`"), |event, known| {
        known.label_or_malloc(event.site)
    }),
    field(
        Info::uint("allocated_ns", "ns", "time of the allocation, from the start of the process"),
        |event, _| from_the_trace(event).map(|event| Bits(event.allocated_ns)),
    ),
    field(
        Info::uint("freed_ns", "ns", "time of the free, from the start of the process"),
        |event, _| freed(event).map(|event| Bits(event.time_ns)),
    ),
    LIFETIME,
    LIFETIME_EVENTS,
    field(Info::new("freed", Kind::Bool, "", "was freed"), |event, _| {
        Some(Bits(freed(event).is_some().into()))
    }),
    field(Info::new("reallocated", Kind::Bool, "", "ended by a reallocation"), |event, _| {
        freed(event).map(|event| Bits(event.reallocated.into()))
    }),
    TEMPORARY,
    CROSS_THREAD,
    field(Info::text("lane", "name of the allocating thread").also("thread"), |event, known| {
        known.lane(known.site_lanes[event.site as usize])
    }),
    field(
        Info::text("freed_lane", "name of the freeing thread").also("freed_thread"),
        |event, known| known.lane(freed(event)?.lane?),
    ),
    field(Info::uint("freed_tid", "", "number of that thread"), |event, _| {
        Some(Bits(freed(event)?.thread.into())).filter(|tid| tid.0 > 0)
    }),
    field(
        Info::text("freed_in", "scopes of the freeing thread, outermost first"),
        |event, known| known.scope_texts.get(freed(event)?.scope.0 as usize).copied().flatten(),
    ),
    FREE_STACK,
];

const UID: Field = field(
    Info::uint(
        "uid",
        "",
        "for labelled memory, the number that heaptide_resolve() returns; for other memory, numbers \
         above those of all labels, in order of allocation within the process",
    )
    .also("alloc.uid"),
    |event, _| Some(Bits(event.uid)).filter(|uid| uid.0 > 0),
);
const BLOCK: Field = field(
    Info::uint(
        "block",
        "",
        "number of the block, from 1, in order of allocation within the process; with and without \
         a label",
    ),
    |event, _| Some(Bits(event.block)).filter(|block| block.0 > 0),
);
const DIMS: Field = field(
    Info::text("dims", "dimensions that the label gives, such as 3x4").also("alloc.dims"),
    |event, known| known.shape(event).map(|shape| shape.0),
);
const ELEMENT: Field = field(
    Info::uint("element_bytes", "bytes", "bytes of an element of these dimensions"),
    |event, known| known.shape(event).map(|shape| shape.1),
);
const ADDRESS: Field = field(
    Info::new("address", Kind::Address, "", "address of the block").also("alloc.address"),
    |event, _| of_block(event).map(|event| Bits(event.address)),
);
const SIZE: Field =
    field(Info::uint("size", "bytes", "requested bytes").also("alloc.total_size"), |event, _| {
        of_block(event).and_then(from_the_trace).map(|event| Bits(event.requested))
    });
const USABLE: Field = field(Info::uint("usable_bytes", "bytes", "usable bytes"), |event, _| {
    of_block(event).map(|event| Bits(event.usable))
});
const LIFETIME: Field =
    field(Info::uint("lifetime_ns", "ns", "time from the allocation to the free"), |event, _| {
        let event = freed(event).and_then(from_the_trace);
        event.map(|event| Bits(event.time_ns.saturating_sub(event.allocated_ns)))
    });
const LIFETIME_EVENTS: Field = field(
    Info::uint("lifetime_events", "events", "events of the process between allocation and free"),
    |event, _| {
        let event = freed(event).and_then(from_the_trace);
        event.map(|event| Bits(event.number.saturating_sub(event.allocated_number)))
    },
);
const TEMPORARY: Field = field(
    Info::new("temporary", Kind::Bool, "", "for frees: no allocation by the thread in between"),
    |event, _| freed(event).map(|event| Bits(event.temporary.into())),
);
const CROSS_THREAD: Field = field(
    Info::new(
        "cross_thread",
        Kind::Bool,
        "",
        "for frees: freed by a thread other than the allocating one",
    ),
    |event, known| {
        let allocated = known.site_lanes[event.site as usize];
        freed(event).map(|event| Bits(event.lane.is_some_and(|lane| lane != allocated).into()))
    },
);
const FREE_STACK: Field = field(
    Info::text("free_stack", "stack of the free, in recordings made with --free-stacks")
        .form(Form::Tree),
    |event, known| {
        let node = known.free_stacks.get(event.free_stack.0 as usize)?;
        Some(Bits(node.0.into())).filter(|node| node.0 > 0)
    },
);

/// Returns the event if it is a free.
fn freed(event: &Event) -> Option<&Event> {
    Some(event).filter(|event| event.operation == Operation::Free)
}

/// The event, if the allocation of its block is in the trace.
fn from_the_trace(event: &Event) -> Option<&Event> {
    Some(event).filter(|event| event.allocated_number > 0 || event.operation != Operation::Free)
}

/// Returns the event if it has a block.
fn of_block(event: &Event) -> Option<&Event> {
    Some(event).filter(|event| event.operation.is_of_block())
}

impl What {
    const fn fields(self) -> &'static [Field] {
        match self {
            What::Events => OF_EVENTS,
            What::Lifetimes => OF_LIFETIMES,
        }
    }
}

fn columns(what: What) -> Vec<Info> {
    let fields = what.fields().iter().map(|field| field.info.clone());
    fields.chain(of_blocks()).collect()
}

/// Data of one process that events refer to.
struct Known {
    origin: Origin,
    /// Columns that blocks inherit from their site, by site, and their stacks.
    of_sites: Vec<(AttributeId, Column)>,
    stacks: Vec<NodeId>,
    site_scopes: Vec<ScopeId>,
    site_lanes: Vec<LaneId>,
    labels: Vec<Option<Bits>>,
    /// Dimensions, and bytes of an element, by shape.
    shapes: Vec<(Bits, Bits)>,
    lanes: Vec<Bits>,
    places: Places,
    scope_texts: Vec<Option<Bits>>,
    changes: Changes,
    free_stacks: Vec<NodeId>,
    operations: Vec<Bits>,
    marks: Vec<Bits>,
    malloc: Bits,
}

impl Known {
    fn of(filler: &mut Filler, process: &Process) -> Known {
        let places = Places::of(filler, process);
        let free_stacks = stack_tree(filler, process, "free_stack");
        let blocks = Blocks::new(filler, process);
        for site in &process.tables.sites {
            let row = filler.table.add_row();
            blocks.set(filler, process, row, site);
        }
        let scope_texts = scope_texts(filler, &places);
        let changes = scope_changes(filler, process);
        let strings = &mut filler.table.strings;
        let mut known = Known {
            origin: Origin::default(),
            of_sites: Vec::new(),
            stacks: std::mem::take(&mut filler.table.others),
            site_scopes: process.tables.sites.iter().map(|site| site.scope).collect(),
            site_lanes: process.tables.sites.iter().map(|site| site.lane).collect(),
            labels: process.tables.sites.iter().map(|site| blocks.label(site)).collect(),
            shapes: process.tables.shapes.iter().map(|shape| shape_bits(strings, shape)).collect(),
            lanes: process.tables.lanes.iter().map(|lane| strings.bits(&lane.name)).collect(),
            places,
            scope_texts,
            changes,
            free_stacks,
            operations: Operation::all().iter().map(|of| strings.bits(of.name())).collect(),
            marks: process.time.mark_names.iter().map(|name| strings.bits(name)).collect(),
            malloc: strings.bits("malloc"),
        };
        // For events without a site.
        known.stacks.push(NodeId(0));
        known.site_scopes.push(ScopeId(0));
        known.site_lanes.push(LaneId(u32::MAX));
        known.labels.push(None);
        filler.table.paths.clear();
        for (of, id) in filler.table.attributes.iter_mut().zip(0..) {
            if !of.column.is_empty() {
                known.of_sites.push((AttributeId(id), std::mem::take(&mut of.column)));
            }
        }
        known.origin = Origin::of(&mut filler.table, process);
        known
    }

    fn label_or_malloc(&self, site: u32) -> Option<Bits> {
        self.labels[site as usize].or(Some(self.malloc))
    }

    /// Returns the shape of an event's memory; `None` if the label is hidden.
    fn shape(&self, event: &Event) -> Option<(Bits, Bits)> {
        let is_unlabelled = event.operation == Operation::Unlabel;
        let site = if is_unlabelled { event.site_before } else { event.site };
        self.labels.get(site as usize)?.as_ref()?;
        self.shapes.get(event.shape? as usize).copied()
    }

    fn lane(&self, lane: LaneId) -> Option<Bits> {
        self.lanes.get(lane.0 as usize).copied()
    }

    /// Returns the scope of the thread, or the scope in which the block was allocated.
    fn scope(&self, what: What, event: &Event) -> usize {
        match what {
            What::Events => event.scope.0 as usize,
            What::Lifetimes => self.site_scopes[event.site as usize].0 as usize,
        }
    }
}

fn shape_bits(strings: &mut Strings, shape: &Shape) -> (Bits, Bits) {
    (strings.bits(&shape.dims()), Bits(shape.element_bytes))
}

/// Returns paths as text, by scope path, if needed.
fn scope_texts(filler: &mut Filler, places: &Places) -> Vec<Option<Bits>> {
    if filler.column("freed_in").is_none() {
        return Vec::new();
    }
    let text = |node: &NodeId| {
        let shown = filler.table.chain_text(*node)?;
        Some(filler.table.strings.bits(&shown))
    };
    places.nodes.iter().map(text).collect()
}

/// Returns, by scope, the columns of its begin and end, with their value.
pub(super) fn scope_changes(filler: &mut Filler, process: &Process) -> Changes {
    let mut change = |attribute: &str, value: &str| {
        let ids = *filler.changes.get(attribute)?;
        let kind = filler.table.of(ids[0]).kind;
        Some((ids, filler.table.strings.parse(value, kind)?))
    };
    let scopes = &process.tables.scopes;
    scopes.iter().map(|scope| change(&scope.attribute, &scope.value)).collect()
}

/// The part that all batches share.
struct Shared {
    what: What,
    template: Table,
    origin: [Option<AttributeId>; 6],
    fields: Vec<(AttributeId, &'static Field)>,
    /// Columns of begins and ends of scopes.
    changes: Vec<[AttributeId; 2]>,
}

impl Shared {
    fn table(&self, known: &Known, events: &[Event]) -> Table {
        let mut table = self.template.without_rows();
        known.origin.fill(self.origin, &mut table, events.len());
        set_changes(&mut table, &self.changes, (&known.changes, events), |event| {
            match event.operation {
                Operation::Begin => Some(Change::Begin(event.scope)),
                Operation::End => Some(Change::End(event.scope)),
                _ => None,
            }
        });
        let mut set = |id: AttributeId, column| table.of_mut(id).column = column;
        for (id, field) in &self.fields {
            set(*id, Column::of(events.iter().map(|event| (field.value)(event, known))));
        }
        let sites = || events.iter().map(|event| event.site as usize);
        for (id, of_site) in &known.of_sites {
            set(*id, Column::of(sites().map(|site| of_site.get(site))));
        }
        let scopes = || events.iter().map(|event| known.scope(self.what, event));
        for (id, values) in &known.places.iterations {
            set(*id, Column::of(scopes().map(|scope| values[scope])));
        }
        table.paths = scopes().map(|scope| known.places.nodes[scope]).collect();
        table.others = sites().map(|site| known.stacks[site]).collect();
        table
    }
}

/// Streams the records of all processes that have a trace.
fn stream<'a>(
    what: What,
    mut filler: Filler,
    processes: Vec<&'a Process>,
) -> Result<Stream<'a>, Error> {
    let traced = processes.into_iter().filter(|process| process.has_trace());
    let of = |process: &'a Process| (Arc::new(Known::of(&mut filler, process)), process);
    let mut sources = traced.map(of).collect::<Vec<_>>().into_iter();
    // If a later trace cannot be read, that is only a note: there may be hundreds, and some records
    // have been returned already.
    let (known, process) = sources.next().ok_or(Error::NoTrace)?;
    let first = (known, From::Replay(Box::new(process.replay().map_err(Error::Unreadable)?)));
    let fields = what.fields().iter();
    let fields =
        fields.filter_map(|field| filler.column(field.info.name).map(|id| (id, field))).collect();
    let changes = filler.changes.into_values().collect();
    let shared = Shared { what, template: filler.table, origin: filler.origin, fields, changes };
    let template = shared.template.clone();
    let notes = Notes::default();
    let reading = Reading {
        shared: Arc::new(shared),
        sources,
        at: Some(first),
        used: Arc::default(),
        notes: notes.clone(),
    };
    Ok(Stream::new(template, reading.supply()).with_notes(notes))
}

/// Reads traces one after the other.
struct Reading<'a> {
    shared: Arc<Shared>,
    sources: IntoIter<(Arc<Known>, &'a Process)>,
    at: Option<(Arc<Known>, From)>,
    /// Event lists of finished tables, for reuse.
    used: Arc<Mutex<Vec<Vec<Event>>>>,
    notes: Notes,
}

/// The source of events.
enum From {
    Replay(Box<Replay>),
    /// Blocks that are live after the trace.
    Live(IntoIter<LiveBlock>),
}

/// The number of blocks, never freed, to process at once.
const LIVE: usize = 1 << 13;

impl<'a> Reading<'a> {
    fn supply(mut self) -> impl FnMut() -> Option<(usize, Make<'a>)> + Send {
        move || {
            let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut events = used.unwrap_or_default();
            let known = self.fill(&mut events)?;
            let (rows, shared, used) = (events.len(), self.shared.clone(), self.used.clone());
            let make = move || {
                let table = shared.table(&known, &events);
                used.lock().unwrap_or_else(PoisonError::into_inner).push(events);
                table
            };
            Some((rows, Box::new(make) as Make<'a>))
        }
    }

    /// Reads the next events that become records. Returns the data that they refer to.
    fn fill(&mut self, events: &mut Vec<Event>) -> Option<Arc<Known>> {
        loop {
            let (known, from) = match self.at.take() {
                Some(at) => at,
                None => {
                    let (known, process) = self.sources.next()?;
                    match process.replay() {
                        Ok(replay) => (known, From::Replay(Box::new(replay))),
                        Err(error) => {
                            self.notes.add(vec![error.to_string()]);
                            continue;
                        }
                    }
                }
            };
            let next = self.more(from, events);
            let found = (!events.is_empty()).then(|| known.clone());
            self.at = next.map(|from| (known, from));
            if found.is_some() {
                return found;
            }
        }
    }

    /// Reads more of a trace; returns `None` at its end.
    fn more(&self, from: From, events: &mut Vec<Event>) -> Option<From> {
        events.clear();
        match from {
            From::Replay(mut replay) => {
                if !replay.fill(events) {
                    self.notes.add(replay.notes());
                    let live = match self.shared.what {
                        What::Events => return None,
                        What::Lifetimes => replay.into_live(),
                    };
                    return Some(From::Live(live.into_iter()));
                }
                if self.shared.what == What::Lifetimes {
                    events.retain(|event| freed(event).is_some());
                }
                Some(From::Replay(replay))
            }
            From::Live(mut live) => {
                events.extend(live.by_ref().take(LIVE).map(never_freed));
                (!events.is_empty()).then_some(From::Live(live))
            }
        }
    }
}

/// Returns the allocation of a block, as far as it is known.
fn never_freed(block: LiveBlock) -> Event {
    Event {
        number: block.allocated_number,
        time_ns: block.allocated_ns,
        operation: Operation::Allocate,
        reallocated: false,
        temporary: false,
        lane: None,
        thread: 0,
        scope: ScopeId(0),
        site: block.site,
        site_before: block.site,
        block: block.block,
        uid: block.uid,
        shape: block.shape,
        element_bytes: None,
        mark: None,
        address: block.address,
        requested: block.requested,
        requested_before: block.counted,
        allocated_requested: block.requested,
        usable: block.usable,
        allocated_ns: block.allocated_ns,
        allocated_number: block.allocated_number,
        free_stack: StackId(0),
        live_bytes: 0,
        labelled_bytes: 0,
    }
}
