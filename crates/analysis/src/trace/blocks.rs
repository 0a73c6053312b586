//! Pairs records by address: finds the block of each record.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::event::{Event, LiveBlock, Operation};
use super::lanes::{Kind, Step};
use super::table::{Addressed, Table};
use crate::model::{LaneId, ScopeId, Site, StackId, Trace};

/// Maximum difference between the clocks of two cores, in nanoseconds. The end of a block can
/// appear to be this much later than the next allocation at its address.
const SKEW_NS: u64 = 2000;
/// Maximum number of overdue blocks.
const OVERDUE_MAX: usize = 1024;

/// A live block, or other memory that a site counts.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// From 1, in order of allocation over the process.
    number: u64,
    address: u64,
    requested: u64,
    /// Requested bytes as its site counts them: those that its label states.
    counted: u64,
    usable: u64,
    allocated_ns: u64,
    /// The number of the event that allocated it.
    event: u64,
    /// Id in the profile.
    site: u32,
    /// Whether it has a labelling.
    is_labelled: bool,
    /// Bytes of an element, if `calloc` allocated several.
    element_bytes: Option<NonZeroU32>,
}

/// The labelling of memory.
#[derive(Clone, Copy, Debug)]
struct Labelling {
    uid: u64,
    /// Id in the profile; 0 for none.
    shape: u32,
}

impl Block {
    /// Returns a new block.
    fn of(to: &mut Sink) -> Block {
        let &Step { time_ns, site, address, requested, usable, .. } = to.step;
        to.counts.blocks += 1;
        let (number, event) = (to.counts.blocks, to.counts.events + 1);
        let (counted, allocated_ns, is_labelled) = (requested, time_ns, false);
        let element_bytes = None;
        Block {
            number,
            address,
            requested,
            counted,
            usable,
            allocated_ns,
            event,
            site,
            is_labelled,
            element_bytes,
        }
    }
}

impl Addressed for Block {
    fn address(&self) -> u64 {
        self.address
    }
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    /// Its id in the process.
    id: Option<LaneId>,
    /// The thread id, and how often the lane was taken.
    thread: (u32, u32),
    /// Address of the block that the thread allocated last, unless that was freed since; else 0.
    last_block: u64,
    /// The block being reallocated.
    moving: Option<Block>,
    /// The label for the lane's next labelled memory.
    labelling: Option<Labelling>,
    /// Bytes of an element of the lane's next block.
    element_bytes: Option<NonZeroU32>,
}

/// A block whose address was allocated again before its end was seen.
#[derive(Debug)]
struct Overdue {
    block: Block,
    /// The lane that allocated the address again: its frees end the new block.
    lane: u32,
    until_ns: u64,
}

/// Counters over all images of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) events: u64,
    pub(super) blocks: u64,
    pub(super) live: LiveBytes,
}

/// Usable bytes that are live.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LiveBytes {
    /// Blocks of the allocator.
    pub(super) heap: u64,
    /// Memory with a name: labels and blocks of pools, inside and outside the heap.
    pub(super) labelled: u64,
}

impl LiveBytes {
    pub(super) fn add(&mut self, other: LiveBytes) {
        self.heap = self.heap.saturating_add(other.heap);
        self.labelled = self.labelled.saturating_add(other.labelled);
    }

    pub(super) fn remove(&mut self, other: LiveBytes) {
        self.heap = self.heap.saturating_sub(other.heap);
        self.labelled = self.labelled.saturating_sub(other.labelled);
    }
}

/// Properties of a site used by a replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiteFacts {
    scope: ScopeId,
    /// Whether its memory has a name. Excludes chunks of pools, whose blocks have it.
    is_labelled: bool,
}

impl SiteFacts {
    pub(super) fn of(site: &Site) -> SiteFacts {
        let is_chunk = site.kind.is_pool_chunk();
        SiteFacts { scope: site.scope, is_labelled: site.label.is_some() && !is_chunk }
    }
}

/// Tables of a process used by a replay.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Sites by index.
    pub(super) sites: Arc<[SiteFacts]>,
    /// The parent of each scope.
    pub(super) scopes: Arc<[ScopeId]>,
    /// Maximum number of labellings of an image.
    pub(super) labellings: u64,
    /// Which events are returned.
    pub(super) given: Given,
}

/// Which events of blocks a replay returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Given {
    /// Events since the reset, of sites that still exist.
    Selected,
    /// All events, and frees of live blocks when one of several images ends. A removed site is
    /// represented by the number of sites, also before and after a change of label.
    Whole,
}

impl Facts {
    /// Returns the path of a scope, outermost first.
    fn path(&self, scope: ScopeId) -> Vec<ScopeId> {
        let around = |&scope: &ScopeId| self.scopes.get(scope.0 as usize).copied();
        let outwards = std::iter::successors(Some(scope), around);
        let mut path: Vec<ScopeId> = outwards.take_while(|scope| scope.0 != 0).collect();
        path.reverse();
        path
    }
}

/// Inconsistencies of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unpaired {
    /// Ends of blocks whose allocation was not seen.
    pub frees: u64,
    /// Blocks whose address was allocated again without an end.
    pub blocks: u64,
}

impl Unpaired {
    pub(super) fn add(&mut self, other: Unpaired) {
        self.frees += other.frees;
        self.blocks += other.blocks;
    }
}

/// The blocks of an image.
#[derive(Debug)]
pub(super) struct Blocks {
    trace: Trace,
    /// Earlier events are skipped.
    since_ns: u64,
    facts: Facts,
    live: Table<Block>,
    /// Memory outside the allocator, by address and site.
    known: FxHashMap<(u64, u32), Block>,
    /// The labellings of live memory, by block number.
    labellings: FxHashMap<u64, Labelling>,
    /// States by position of the lane.
    doing: Vec<Doing>,
    overdue: VecDeque<Overdue>,
    /// Live usable bytes of blocks from before the beginning of the trace; `None` if the trace is
    /// complete.
    before_bytes: Option<u64>,
    pub(super) unpaired: Unpaired,
}

/// Properties of an event other than its block.
#[derive(Clone, Copy)]
struct Told {
    operation: Operation,
    reallocated: bool,
    temporary: bool,
    site_before: u32,
    /// Requested bytes at the allocation, if the event has different ones.
    asked: Option<u64>,
}

/// The current record, the counters, and the output.
struct Sink<'a> {
    step: &'a Step,
    counts: &'a mut Counts,
    out: &'a mut Vec<Event>,
}

impl Blocks {
    /// Returns the blocks of a trace with these lanes, given by their index in the profile, in
    /// order of their positions. `before_bytes` were live at its beginning, if its oldest part was
    /// dropped.
    pub(super) fn of(
        trace: Trace,
        facts: Facts,
        lanes: impl Iterator<Item = u32>,
        before_bytes: Option<u64>,
    ) -> Blocks {
        let since_ns = match trace.since_ns {
            0 => 0,
            since_ns => since_ns.saturating_add(trace.after_ns),
        };
        let doing = lanes.map(|lane| Doing { id: trace.lane(lane), ..Doing::default() }).collect();
        Blocks {
            trace,
            since_ns,
            facts,
            live: Table::new(),
            known: FxHashMap::default(),
            labellings: FxHashMap::default(),
            doing,
            overdue: VecDeque::new(),
            before_bytes,
            unpaired: Unpaired::default(),
        }
    }

    /// Processes the next records.
    pub(super) fn take(&mut self, steps: &[Step], counts: &mut Counts, out: &mut Vec<Event>) {
        self.live.expect(steps.iter().map(|step| step.address));
        for step in steps {
            self.take_one(&mut Sink { step, counts, out });
        }
    }

    #[inline]
    fn take_one(&mut self, to: &mut Sink) {
        let &Step { time_ns, who, kind, site, address, reallocated, .. } = to.step;
        if !self.overdue.is_empty() {
            self.give_up(to.counts, time_ns);
        }
        let doing = &mut self.doing[who.place as usize];
        let thread = (who.thread, who.taken);
        if doing.thread != thread {
            (doing.thread, doing.last_block) = (thread, 0);
        }
        match kind {
            Kind::Allocated if reallocated => self.reallocate(to),
            Kind::Allocated => {
                doing.last_block = address;
                self.allocate(to);
            }
            Kind::Freed => {
                let is_last = doing.last_block == address;
                doing.last_block = if is_last { 0 } else { doing.last_block };
                if let Some(block) = self.end(to.step) {
                    let temporary = is_last && self.trace.is_counted_by(who.lane, block.site);
                    self.free(&block, Told { temporary, ..Told::free(false) }, to);
                }
            }
            Kind::Moving => {
                self.stays(who.place);
                self.doing[who.place as usize].moving = self.end(to.step);
            }
            Kind::StillThere => self.stays(who.place),
            Kind::Released => {
                if let Some(block) = doing.moving.take() {
                    self.free(&block, Told::free(true), to);
                }
            }
            Kind::Failed => {
                let none = Block { site, ..Block::default() };
                self.tell(&none, Told::plain(Operation::Fail), to);
            }
            Kind::Relabelled | Kind::Unlabelled => self.relabel(to),
            Kind::Labelled => {
                doing.labelling = Some(Labelling { uid: address, shape: site });
            }
            Kind::Element => {
                doing.element_bytes = NonZeroU32::new(to.step.requested as u32);
            }
            Kind::Mark => {
                let mark = self.trace.mark(site);
                let scope = self.trace.scope(who.scope);
                if mark.is_some() {
                    self.tell_of_thread(scope, Operation::Mark, mark, to);
                }
            }
            Kind::Opened => {
                let mut known = Block::of(to);
                self.label(&mut known, who.place);
                to.counts.live.add(self.outside(&known));
                if let Some(old) = self.known.insert((address, site), known) {
                    self.unpaired.blocks += 1;
                    self.forget(&old);
                }
                self.tell(&known, Told { reallocated, ..Told::plain(Operation::Allocate) }, to);
            }
            Kind::Closed => match self.known.remove(&(address, site)) {
                Some(block) => {
                    to.counts.live.remove(self.outside(&block));
                    self.tell(&block, Told::free(false), to);
                    self.forget(&block);
                }
                // In an incomplete trace, it was opened before.
                None => self.unpaired.frees += u64::from(self.before_bytes.is_none()),
            },
            Kind::Scope => self.change_scope(to),
        }
    }

    /// Outputs an event for each scope that a thread has left or entered.
    fn change_scope(&self, to: &mut Sink) {
        let &Step { site: into, address: from, .. } = to.step;
        let path = |id: u32| self.facts.path(self.trace.scope(id));
        let (from, into) = (path(from as u32), path(into));
        let both = from.iter().zip(&into).take_while(|(from, into)| from == into).count();
        for &left in from[both..].iter().rev() {
            self.tell_of_thread(left, Operation::End, None, to);
        }
        for &entered in &into[both..] {
            self.tell_of_thread(entered, Operation::Begin, None, to);
        }
    }

    /// Outputs an event of a thread that concerns no block, if its lane is known.
    fn tell_of_thread(
        &self,
        scope: ScopeId,
        operation: Operation,
        mark: Option<u32>,
        to: &mut Sink,
    ) {
        let &Step { time_ns, who, .. } = to.step;
        let lane = self.doing[who.place as usize].id;
        if lane.is_none() || time_ns < self.since_ns {
            return;
        }
        let none = self.facts.sites.len() as u32;
        to.out.push(Event {
            number: 0,
            time_ns,
            operation,
            reallocated: false,
            temporary: false,
            lane,
            thread: who.thread,
            scope,
            site: none,
            site_before: none,
            block: 0,
            uid: 0,
            shape: None,
            element_bytes: None,
            mark,
            address: 0,
            requested: 0,
            requested_before: 0,
            allocated_requested: 0,
            usable: 0,
            allocated_ns: time_ns,
            allocated_number: 0,
            free_stack: StackId(0),
            live_bytes: to.counts.live.heap,
            labelled_bytes: to.counts.live.labelled,
        });
    }

    /// Returns the live bytes.
    pub(super) fn live_bytes(&self) -> LiveBytes {
        let moving = self.doing.iter().filter_map(|doing| doing.moving.as_ref());
        let mut sum = LiveBytes { heap: self.before_bytes.unwrap_or(0), labelled: 0 };
        self.live.iter().chain(moving).for_each(|block| sum.add(self.heap(block)));
        self.known.values().for_each(|block| sum.add(self.outside(block)));
        sum
    }

    /// Returns the contribution of a block of the allocator to the live bytes.
    fn heap(&self, block: &Block) -> LiveBytes {
        LiveBytes { heap: block.usable, ..self.outside(block) }
    }

    /// Returns the contribution of other memory, which counts only if it has a name.
    fn outside(&self, block: &Block) -> LiveBytes {
        let facts =
            self.trace.site(block.site).and_then(|site| self.facts.sites.get(site as usize));
        let is_labelled = facts.is_some_and(|facts| facts.is_labelled);
        LiveBytes { heap: 0, labelled: if is_labelled { block.usable } else { 0 } }
    }

    /// Returns the live blocks of sites that still exist.
    pub(super) fn live(&self) -> impl Iterator<Item = LiveBlock> {
        let moving = self.doing.iter().filter_map(|doing| doing.moving.as_ref());
        let all = self.live.iter().chain(self.known.values()).chain(moving);
        all.filter_map(|block| {
            let (uid, shape) = self.label_of(block);
            Some(LiveBlock {
                block: block.number,
                uid,
                shape,
                address: block.address,
                site: self.trace.site(block.site)?,
                requested: block.requested,
                counted: block.counted,
                usable: block.usable,
                allocated_ns: block.allocated_ns,
                allocated_number: block.event,
            })
        })
    }

    /// Returns frees of all live blocks, for the end of the image.
    pub(super) fn ends(&self, time_ns: u64) -> Vec<Event> {
        let end = |block: LiveBlock| Event {
            number: 0,
            time_ns,
            operation: Operation::Free,
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
        };
        self.live().map(end).collect()
    }

    /// Ends all overdue blocks after the last record.
    pub(super) fn finish(&mut self, counts: &mut Counts) {
        self.give_up(counts, u64::MAX);
    }

    fn allocate(&mut self, to: &mut Sink) {
        let mut new = Block::of(to);
        new.element_bytes = self.doing[to.step.who.place as usize].element_bytes.take();
        to.counts.live.add(self.heap(&new));
        if let Some(old) = self.live.insert(new) {
            let until_ns = to.step.time_ns.saturating_add(SKEW_NS);
            self.overdue.push_back(Overdue { block: old, lane: to.step.who.lane, until_ns });
        }
        let reallocated = to.step.reallocated;
        self.tell(&new, Told { reallocated, ..Told::plain(Operation::Allocate) }, to);
    }

    /// Processes a reallocation: the new block, and the end of the old one, which comes after it
    /// unless both have the same address.
    fn reallocate(&mut self, to: &mut Sink) {
        let doing = &mut self.doing[to.step.who.place as usize];
        doing.last_block = to.step.address;
        let old = doing.moving.take();
        let is_in_place = |old: &Block| to.step.remapped || old.address == to.step.address;
        let (first, last) =
            if old.as_ref().is_some_and(is_in_place) { (old, None) } else { (None, old) };
        if let Some(old) = first {
            self.free(&old, Told::free(true), to);
        }
        self.allocate(to);
        if let Some(old) = last {
            self.free(&old, Told::free(true), to);
        }
    }

    /// Returns the block that a record ends.
    #[inline]
    fn end(&mut self, step: &Step) -> Option<Block> {
        let (lane, address) = (step.who.lane, step.address);
        if !self.overdue.is_empty() {
            let is_it = |o: &Overdue| o.block.address == address && o.lane != lane;
            if let Some(at) = self.overdue.iter().position(is_it) {
                return self.overdue.remove(at).map(|overdue| overdue.block);
            }
        }
        let block = self.live.remove(address).or_else(|| self.end_from_before(step));
        self.unpaired.frees += u64::from(block.is_none());
        block
    }

    /// Returns a block that was allocated before the beginning of the trace, as described by the
    /// record of its end.
    #[cold]
    fn end_from_before(&mut self, step: &Step) -> Option<Block> {
        let before_bytes = self.before_bytes.as_mut().filter(|_| step.site != 0)?;
        *before_bytes = before_bytes.saturating_sub(step.usable);
        let &Step { site, address, usable, .. } = step;
        Some(Block { site, address, usable, ..Block::default() })
    }

    fn free(&mut self, block: &Block, told: Told, to: &mut Sink) {
        to.counts.live.remove(self.heap(block));
        self.tell(block, told, to);
        self.forget(block);
    }

    /// Gives memory the label that its lane has announced, if any.
    fn label(&mut self, block: &mut Block, place: u32) {
        let labelling = self.doing[place as usize].labelling.take();
        block.is_labelled = labelling.is_some();
        match labelling {
            Some(labelling) => self.labellings.insert(block.number, labelling),
            None => self.labellings.remove(&block.number),
        };
    }

    /// Removes the labelling of memory that is no longer live.
    fn forget(&mut self, block: &Block) {
        if block.is_labelled {
            self.labellings.remove(&block.number);
        }
    }

    /// Returns `uid` and shape for events of a block.
    #[inline]
    fn label_of(&self, block: &Block) -> (u64, Option<u32>) {
        let labelling = if block.is_labelled { self.labellings.get(&block.number) } else { None };
        match labelling {
            Some(&Labelling { uid, shape }) => (uid, self.trace.shape(shape).get()),
            None if block.number == 0 => (0, None),
            None => (self.facts.labellings.saturating_add(block.number), None),
        }
    }

    /// Restores the block after a failed reallocation.
    fn stays(&mut self, place: u32) {
        if let Some(block) = self.doing[place as usize].moving.take() {
            self.live.insert(block);
        }
    }

    fn relabel(&mut self, to: &mut Sink) {
        let &Step { kind, site, address, requested, usable, who, .. } = to.step;
        let Some(&block) = self.live.get_mut(address).as_deref() else {
            self.unpaired.frees += u64::from(self.before_bytes.is_none());
            self.doing[who.place as usize].labelling = None;
            return;
        };
        let is_relabelled = kind == Kind::Relabelled;
        let mut after = block;
        if is_relabelled {
            self.label(&mut after, who.place);
        }
        after.site = site;
        after.counted = if is_relabelled { requested } else { block.requested };
        let (now, operation) = if is_relabelled {
            (Block { requested, usable, ..after }, Operation::Relabel)
        } else {
            (after, Operation::Unlabel)
        };
        let now = Block { counted: block.counted, ..now };
        to.counts.live.remove(self.heap(&block));
        to.counts.live.add(self.heap(&Block { site, ..block }));
        let (site_before, asked) = (block.site, Some(block.requested));
        self.tell(&now, Told { site_before, asked, ..Told::plain(operation) }, to);
        if !is_relabelled {
            self.forget(&after);
            after.is_labelled = false;
        }
        if let Some(block) = self.live.get_mut(address) {
            *block = after;
        }
    }

    /// Ends overdue blocks whose end was not seen in time.
    #[cold]
    fn give_up(&mut self, counts: &mut Counts, now_ns: u64) {
        while let Some(first) = self.overdue.front()
            && (first.until_ns < now_ns || self.overdue.len() > OVERDUE_MAX)
            && let Some(overdue) = self.overdue.pop_front()
        {
            self.unpaired.blocks += 1;
            counts.live.remove(self.heap(&overdue.block));
            self.forget(&overdue.block);
        }
    }

    /// Outputs an event, if its site exists.
    #[inline]
    fn tell(&self, block: &Block, told: Told, to: &mut Sink) {
        let &Step { time_ns, who, .. } = to.step;
        to.counts.events += 1;
        let none = self.facts.sites.len() as u32;
        let is_whole = self.facts.given == Given::Whole;
        let site = match self.trace.site(block.site).filter(|_| time_ns >= self.since_ns) {
            Some(site) => site,
            None if is_whole => self.trace.site(block.site).unwrap_or(none),
            None => return,
        };
        let Told { operation, reallocated, temporary, site_before, asked } = told;
        let (uid, shape) = self.label_of(block);
        let before = Some(site_before).filter(|&before| before != 0);
        let otherwise = if is_whole { none } else { site };
        to.out.push(Event {
            number: to.counts.events,
            time_ns,
            operation,
            reallocated,
            temporary,
            lane: self.doing[who.place as usize].id,
            thread: who.thread,
            scope: match operation {
                // The lane's scope is not recorded with allocations; the site has it.
                Operation::Allocate => {
                    self.facts.sites.get(site as usize).map_or(ScopeId(0), |facts| facts.scope)
                }
                _ => self.trace.scope(who.scope),
            },
            site,
            site_before: match before {
                Some(before) => self.trace.site(before).unwrap_or(otherwise),
                None => site,
            },
            block: block.number,
            uid,
            shape,
            element_bytes: block.element_bytes,
            mark: None,
            address: block.address,
            requested: block.requested,
            requested_before: block.counted,
            allocated_requested: asked.unwrap_or(block.requested),
            usable: block.usable,
            allocated_ns: block.allocated_ns,
            allocated_number: block.event,
            free_stack: match operation {
                Operation::Free => self.trace.stack(who.node),
                _ => StackId(0),
            },
            live_bytes: to.counts.live.heap,
            labelled_bytes: to.counts.live.labelled,
        });
    }
}

impl Told {
    const fn plain(operation: Operation) -> Told {
        Told { operation, reallocated: false, temporary: false, site_before: 0, asked: None }
    }

    const fn free(reallocated: bool) -> Told {
        Told { reallocated, ..Told::plain(Operation::Free) }
    }
}
