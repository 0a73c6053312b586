//! Converts the events of a trace to the records that Caliper's services would write.

use std::collections::BTreeMap;

use heaptide_analysis::model::{LaneId, Process, ScopeId};
use heaptide_analysis::trace::{Event, Operation};
use rustc_hash::FxHashMap;

use super::snapshots::{Snapshot, Value};
use crate::services::{Service, Services};
use crate::table::AttributeId;
use crate::value::Bits;

/// The trigger of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Memory was allocated or labelled.
    Alloc,
    /// Memory was freed or its label removed.
    Free,
    /// A thread is about to enter a region.
    Begin,
    /// A thread is about to leave a region.
    End,
    /// The program pushed a snapshot.
    Snapshot,
    /// Statistics of a region, at the end.
    Stats,
}

/// A record.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) what: What,
    pub(super) time_ns: u64,
    pub(super) duration_ns: u64,
    pub(super) lane: Option<LaneId>,
    pub(super) thread: u32,
    /// The path of the thread.
    pub(super) scope: ScopeId,
    /// The region that is entered or left.
    pub(super) changed: ScopeId,
    pub(super) memory: Memory,
    /// Active bytes before the event, and the most since the previous record.
    pub(super) active: u64,
    pub(super) high: u64,
    pub(super) values: Vec<(AttributeId, Bits)>,
    pub(super) stats: Stats,
    /// The number of the path.
    pub(super) slot: u32,
}

/// Tracked memory.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Memory {
    /// The label, or the function that allocated it.
    pub(super) name: Bits,
    pub(super) site: u32,
    pub(super) uid: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) element_bytes: u64,
}

/// Statistics of a region's allocations.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stats {
    current: u64,
    /// The most live bytes that the region allocated.
    pub(super) tally: u64,
    pub(super) total: u64,
    pub(super) largest: u64,
    pub(super) count: u64,
}

/// What records need of a process.
pub(super) struct Facts {
    /// By site, the label of its memory, if it has one.
    pub(super) labels: Vec<Option<Bits>>,
    /// By site, the function that allocated its blocks.
    pub(super) calls: Vec<Bits>,
    /// By site, whether its memory is a block of the allocator.
    pub(super) is_heap: Vec<bool>,
    /// By shape, bytes of an element.
    pub(super) elements: Vec<u64>,
    /// By scope, the enclosing one.
    pub(super) parents: Vec<ScopeId>,
    /// By mark, its snapshot.
    pub(super) snapshots: Vec<Option<Snapshot>>,
}

impl Facts {
    /// Returns whether a site's memory has a label. Chunks of pools have none: their blocks have.
    pub(super) fn label(process: &Process, site: usize, labels: &[Bits]) -> Option<Bits> {
        let site = &process.tables.sites[site];
        site.label.filter(|_| !site.kind.is_pool_chunk()).map(|id| labels[id.0 as usize])
    }

    fn label_of(&self, site: u32) -> Option<Bits> {
        self.labels.get(site as usize).copied().flatten()
    }
}

/// Whether memory is tracked because of its label, or because the allocator returned it. A labelled
/// block is tracked twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum As {
    Labelled,
    Block,
}

/// The state after some events.
pub(super) struct Records {
    services: Services,
    active: u64,
    high: u64,
    /// When the previous record of each thread was written.
    last_ns: FxHashMap<u32, u64>,
    /// Live memory, if statistics are collected: the region that allocated it, and its bytes.
    regions_of: FxHashMap<(u64, As), (ScopeId, u64)>,
    regions: BTreeMap<u32, Stats>,
    /// Live memory by address, if snapshots refer to addresses.
    live: Option<[BTreeMap<u64, Memory>; 2]>,
    /// The difference of `uid` and `block` of unlabelled memory.
    uids: u64,
}

impl Records {
    /// Starts before the first event of a process.
    pub(super) fn new(services: Services, facts: &Facts) -> Records {
        let has_addresses = |of: &Snapshot| of.values.iter().any(|(_, value)| value.is_address());
        let resolves =
            services.has(Service::Resolve) && facts.snapshots.iter().flatten().any(has_addresses);
        Records {
            services,
            active: 0,
            high: 0,
            last_ns: FxHashMap::default(),
            regions_of: FxHashMap::default(),
            regions: BTreeMap::new(),
            live: resolves.then(Default::default),
            uids: 0,
        }
    }

    /// Adds the records of an event.
    pub(super) fn add(&mut self, event: &Event, facts: &Facts, out: &mut Vec<Row>) {
        match event.operation {
            Operation::Allocate => self.allocate(event, facts, out),
            Operation::Relabel => {
                if let Some(name) = facts.label_of(event.site_before) {
                    self.end(event, As::Labelled, name, event.requested_before, out);
                }
                if let Some(name) = facts.label_of(event.site) {
                    let memory = memory(event, name, event.requested, facts);
                    self.track(event, As::Labelled, memory, out);
                }
            }
            Operation::Unlabel => {
                if let Some(name) = facts.label_of(event.site_before) {
                    self.end(event, As::Labelled, name, event.requested_before, out);
                }
            }
            Operation::Free => self.free(event, facts, out),
            Operation::Begin if self.services.has(Service::Event) => {
                let around = facts.parents.get(event.scope.0 as usize).copied();
                let scope = around.unwrap_or_default();
                self.emit(Row { scope, ..row(What::Begin, event) }, out);
            }
            Operation::End if self.services.has(Service::Event) => {
                self.emit(row(What::End, event), out);
            }
            Operation::Mark => self.mark(event, facts, out),
            Operation::Begin | Operation::End | Operation::Fail => {}
        }
    }

    /// Adds the statistics of regions, after the last event.
    pub(super) fn finish(&mut self, out: &mut Vec<Row>) {
        let regions = std::mem::take(&mut self.regions);
        if !self.services.has(Service::Allocstats) {
            return;
        }
        out.extend(regions.into_iter().map(|(scope, stats)| Row {
            what: What::Stats,
            time_ns: 0,
            duration_ns: 0,
            lane: None,
            thread: 0,
            scope: ScopeId(scope),
            changed: ScopeId(0),
            memory: Memory::default(),
            active: 0,
            high: 0,
            values: Vec::new(),
            stats,
            slot: 0,
        }));
    }

    fn allocate(&mut self, event: &Event, facts: &Facts, out: &mut Vec<Row>) {
        let site = event.site as usize;
        if let Some(name) = facts.label_of(event.site) {
            let memory = memory(event, name, event.requested, facts);
            return self.track(event, As::Labelled, memory, out);
        }
        self.uids = event.uid.saturating_sub(event.block);
        if self.services.has(Service::Sysalloc) {
            let name = facts.calls.get(site).copied().unwrap_or_default();
            let memory = memory(event, name, event.requested, facts);
            self.track(event, As::Block, memory, out);
        }
    }

    fn free(&mut self, event: &Event, facts: &Facts, out: &mut Vec<Row>) {
        let site = event.site as usize;
        let label = facts.label_of(event.site);
        if let Some(name) = label {
            self.end(event, As::Labelled, name, event.requested_before, out);
        }
        let is_heap = facts.is_heap.get(site).copied().unwrap_or(false);
        if self.services.has(Service::Sysalloc) && (is_heap || label.is_none()) {
            let name = facts.calls.get(site).copied().unwrap_or_default();
            let uid = if label.is_some() { self.uids + event.block } else { event.uid };
            let of_block = Event { uid, ..*event };
            self.end(&of_block, As::Block, name, event.allocated_requested, out);
        }
    }

    /// Tracks memory.
    fn track(&mut self, event: &Event, by: As, memory: Memory, out: &mut Vec<Row>) {
        if self.services.has(Service::Alloc) {
            self.emit(Row { memory, ..row(What::Alloc, event) }, out);
        }
        if let Some(live) = &mut self.live {
            live[by as usize].insert(memory.address, memory);
        }
        if self.services.has(Service::Allocstats) {
            if event.scope.0 == 0 {
                return; // outside of regions
            }
            self.regions_of.insert((event.block, by), (event.scope, memory.bytes));
            self.regions.entry(event.scope.0).or_default().add(memory.bytes);
        }
        self.active = self.active.saturating_add(memory.bytes);
        self.high = self.high.max(self.active);
    }

    /// Ends the tracking of memory.
    fn end(&mut self, event: &Event, by: As, name: Bits, bytes: u64, out: &mut Vec<Row>) {
        let Event { uid, site, address, .. } = *event;
        let memory = Memory { name, site, uid, address, bytes, element_bytes: 0 };
        if self.services.has(Service::Alloc) {
            self.emit(Row { memory, ..row(What::Free, event) }, out);
        }
        if let Some(live) = &mut self.live {
            live[by as usize].remove(&address);
        }
        if self.services.has(Service::Allocstats) {
            let Some((scope, bytes)) = self.regions_of.remove(&(event.block, by)) else { return };
            let stats = self.regions.entry(scope.0).or_default();
            stats.current = stats.current.saturating_sub(bytes);
        }
        self.active = self.active.saturating_sub(bytes);
    }

    fn mark(&mut self, event: &Event, facts: &Facts, out: &mut Vec<Row>) {
        let mark = event.mark.and_then(|mark| facts.snapshots.get(mark as usize)?.as_ref());
        let Some(snapshot) = mark else { return };
        let mut values = Vec::new();
        for &(id, value) in &snapshot.values {
            values.push((id, value.bits()));
            if let (Value::Address { at, results }, Some(live)) = (value, &self.live)
                && let Some(found) = resolve(live, at)
            {
                let element = found.element_bytes.max(1);
                let index = (at - found.address) / element;
                let [label, uid, of_index] = results;
                values.extend([(label, found.name), (uid, Bits(found.uid))]);
                values.push((of_index, Bits(index)));
            }
        }
        self.emit(Row { values, ..row(What::Snapshot, event) }, out);
    }

    /// Adds a record with the state before its event.
    fn emit(&mut self, record: Row, out: &mut Vec<Row>) {
        let is_first = self.last_ns.is_empty();
        let last_ns = self.last_ns.insert(record.thread, record.time_ns);
        // The time before the first record of a later thread is that of no region.
        let since_ns = last_ns.unwrap_or(if is_first { 0 } else { record.time_ns });
        let duration_ns = record.time_ns.saturating_sub(since_ns);
        out.push(Row { duration_ns, active: self.active, high: self.high, ..record });
        self.high = self.active;
    }
}

impl Stats {
    fn add(&mut self, bytes: u64) {
        self.current = self.current.saturating_add(bytes);
        self.tally = self.tally.max(self.current);
        self.total = self.total.saturating_add(bytes);
        self.largest = self.largest.max(bytes);
        self.count += 1;
    }
}

/// Returns the memory that contains an address: the labelled one, or else the block.
fn resolve(live: &[BTreeMap<u64, Memory>; 2], at: u64) -> Option<Memory> {
    live.iter().find_map(|of| {
        let (start, memory) = of.range(..=at).next_back()?;
        (at - start < memory.bytes).then_some(*memory)
    })
}

fn memory(event: &Event, name: Bits, bytes: u64, facts: &Facts) -> Memory {
    let shape = event.shape.and_then(|shape| facts.elements.get(shape as usize)).copied();
    let of_calloc = event.element_bytes.filter(|_| facts.label_of(event.site).is_none());
    let element_bytes = shape.or(of_calloc.map(|bytes| bytes.get().into())).unwrap_or(1);
    let Event { uid, site, address, .. } = *event;
    Memory { name, site, uid, address, bytes, element_bytes }
}

fn row(what: What, event: &Event) -> Row {
    Row {
        what,
        time_ns: event.time_ns,
        duration_ns: 0,
        lane: event.lane,
        thread: event.thread,
        scope: event.scope,
        changed: event.scope,
        memory: Memory::default(),
        active: 0,
        high: 0,
        values: Vec::new(),
        stats: Stats::default(),
        slot: 0,
    }
}
