//! Counts memory outside the heap: mappings, and memory of devices. Each has sites, totals, a peak
//! and a timeline of its own, and is no part of the heap's counters.
//!
//! These events are rare, so those of a kind share one lock, and all is exact. Memory is mapped in
//! the middle of an allocation, when the lane of the thread is in use. So an event takes from the
//! lane only the thread's scope and stack, and has an unwinder of its own. The one case that cannot
//! be recorded is a signal handler that interrupted a thread while it held a lock of the recorder.

use crate::event::inside::{Entry, Inside};
use crate::event::lane::{self, LaneState};
use crate::event::process::{State, process};
use crate::event::stacks_apart::Apart;
use crate::store::budgets::LANES_MAX;
use crate::store::ids::{NameId, NodeId, ScopeId, SiteId};
use crate::store::outside_records::{Dimensions, Gone, Records, Space};
use crate::store::shared::{Store, store};
use crate::store::{limit, sites};
use crate::sys::front::Front;
use crate::sys::range::Range;
use crate::sys::tls::thread_pointer;
use crate::sys::{locked, own_stack};
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::{FileHeader, Lane, Word};
use heaptide_format::{Loss, Mode, Sample, size_class};

/// The thread of an event: its lane, scope and stack.
pub struct Caller {
    /// Closes the lane's gate, unless the event is in the middle of another one.
    pub inside: Option<Inside>,
    lane: &'static Lane,
    scope: ScopeId,
    /// The known range of its stack.
    stack: Range,
    pub is_off: bool,
    entry: Entry,
}

impl Caller {
    /// Returns the calling thread; none if nothing is recorded.
    pub fn enter<F: Front>(entry: Entry) -> Option<Caller> {
        let p = process();
        if locked::holds_any() {
            if store().has_profile() {
                store().lost(Loss::NoMapping);
            }
            return None;
        }
        let mut inside = Inside::enter::<F>(entry);
        if p.state() != State::Active {
            return None;
        }
        let caller = match &mut inside {
            Some(inside) => Caller::of(inside.lane(), entry),
            None => Caller::nested(entry)?,
        };
        Some(Caller { inside, ..caller })
    }

    fn of(lane: &LaneState, entry: Entry) -> Caller {
        let scope = ScopeId::of(lane.place.scope);
        let is_root = lane.place.root_scope.is_none() || scope == lane.place.root_scope;
        Caller {
            inside: None,
            lane: lane.record,
            scope: if is_root { ScopeId::NONE } else { scope },
            stack: lane.stack,
            is_off: lane.is_off(),
            entry,
        }
    }

    /// Returns the calling thread in the middle of another event. A thread that has no lane yet
    /// counts as that of the first lane.
    fn nested(entry: Entry) -> Option<Caller> {
        if let Some(lane) = lane::of_thread().filter(|lane| !lane.gate.is_stale()) {
            return Some(Caller::of(lane, entry));
        }
        let Some(lane) = lane::records().next() else {
            store().lost(Loss::NoMapping);
            return None;
        };
        let stack = Range::of_thread(entry.sp, thread_pointer());
        let scope = ScopeId::NONE;
        Some(Caller { inside: None, lane, scope, stack, is_off: false, entry })
    }
}

/// The sites, totals and timeline of a kind of memory. All zeros: none.
pub struct OutsideHeap {
    pub records: Records,
    pub apart: Option<&'static mut Apart>,
    /// Set if the last event made a new peak and none has reduced the bytes since.
    rising: bool,
    /// Bytes that libraries hand out of this memory, and the most at its peak: of several moments
    /// with the same bytes, the peak is the one at which most of them are handed out.
    handed_out_bytes: u64,
    handed_out_at_peak_bytes: u64,
}

impl OutsideHeap {
    /// Returns the site of an event, with its stack; none if there is no room.
    pub fn place(&mut self, caller: &Caller, key: u64, label: NameId) -> SiteId {
        let p = store();
        let stack = self.stack(p, caller);
        let has_sites = mode(p.header()) != Mode::Counters as u32;
        let scope = if has_sites { caller.scope } else { ScopeId::NONE };
        let label = if has_sites { label } else { NameId::NONE };
        self.site(p, Dimensions { stack, scope, lane: caller.lane.index.get(), label, key })
    }

    /// Moves memory to the site with this label, and returns that; none if there is no room. If the
    /// memory made the peak and nothing has changed since, it has the label at peak, too.
    /// `declared`: its bytes according to the program.
    pub fn label(&mut self, from: SiteId, label: NameId, (declared, bytes): (u64, u64)) -> SiteId {
        let p = store();
        let of = Dimensions::of_site(from).filter(|of| of.label != label);
        let (Some(of), false) = (of, mode(p.header()) == Mode::Counters as u32) else {
            return from;
        };
        let to = self.site(p, Dimensions { label, ..of });
        if !to.is_none() && to != from {
            self.move_between(p, (from, to), (declared, bytes));
        }
        to
    }

    /// Moves memory to the site of a chunk of a pool.
    pub fn add_to_pool(&mut self, from: SiteId, key: u64, pool: NameId, bytes: u64) -> SiteId {
        let p = store();
        let Some(of) = Dimensions::of_site(from).filter(|of| of.key != key) else { return from };
        let to = self.site(p, Dimensions { key, label: pool, ..of });
        if !to.is_none() {
            self.move_between(p, (from, to), (bytes, bytes));
        }
        to
    }

    #[inline(never)]
    fn move_between(
        &mut self,
        p: &Store,
        (from, to): (SiteId, SiteId),
        (declared, bytes): (u64, u64),
    ) {
        let words = self.records.space.words(p.header());
        let is_at_peak = self.rising && words.bytes.get() == words.peak_bytes.get();
        let epoch = words.epoch.get();
        sites::unmapped(from.record(), 1, bytes, epoch, is_at_peak);
        self.records.change(p, from, bytes.wrapping_neg(), 1u64.wrapping_neg());
        sites::add_alloc(to.record(), declared, bytes, epoch, is_at_peak);
        if let Some(key) = to.key() {
            key.moved_blocks.add(1);
            key.moved_bytes.add(bytes);
            key.moved_requested_bytes.add(declared);
        }
        self.records.change(p, to, bytes, 1);
    }

    /// Returns the site for these dimensions, or at the limit of the profile, that of the thread
    /// and the kind alone. Not inlined, so that its data are not on the stack of the unwinder.
    #[inline(never)]
    fn site(&mut self, p: &Store, of: Dimensions) -> SiteId {
        let site = self.records.site(of);
        if !site.is_none() || p.header().profile_limit.get() == 0 {
            return site;
        }
        p.lost(Loss::NoSite);
        let stack = NodeId::new(p.unstored.load(Relaxed));
        let plain = Dimensions { stack, scope: ScopeId::NONE, ..of };
        limit::beyond(p, || self.records.site(plain))
    }

    /// Returns the node of the caller's stack, if the mode has stacks.
    fn stack(&mut self, p: &'static Store, caller: &Caller) -> NodeId {
        if !Mode::from_number(mode(p.header())).is_some_and(Mode::has_stacks) {
            return NodeId::NONE;
        }
        match unwinder(&mut self.apart) {
            Some(apart) => apart.capture(process(), caller.entry.registers(), caller.stack),
            None => {
                p.lost(Loss::NoNode);
                NodeId::NONE
            }
        }
    }

    /// Counts a block that a library hands out of memory. The bytes are then subtracted from that.
    pub fn hand_out(&mut self, block: SiteId, (requested, bytes): (u64, u64)) {
        let p = store();
        let words = self.records.space.words(p.header());
        let is_peak = words.bytes.get() == words.peak_bytes.get();
        self.handed_out_bytes += bytes;
        if is_peak && self.handed_out_bytes > self.handed_out_at_peak_bytes {
            self.begin_peak(p);
        }
        let epoch = words.epoch.get();
        sites::add_alloc(block.record(), requested, bytes, epoch, self.rising);
    }

    /// Counts a block that comes back. The bytes are then added to the memory that contains it.
    pub fn take_back(&mut self, block: SiteId, bytes: u64) {
        let epoch = self.records.space.words(store().header()).epoch.get();
        self.rising = false;
        self.handed_out_bytes = self.handed_out_bytes.saturating_sub(bytes);
        sites::unmapped(block.record(), 1, bytes, epoch, false);
    }

    /// Subtracts bytes that are handed out from those of the memory that contains them; adds them
    /// if they are negative.
    pub fn lend(&mut self, from: SiteId, bytes: i64) {
        let epoch = self.records.space.words(store().header()).epoch.get();
        if let Some(key) = from.key() {
            key.lent_bytes.fetch_add(bytes as u64, Relaxed);
        }
        sites::unmapped(from.record(), 0, bytes as u64, epoch, self.rising);
    }

    /// Counts new memory, first at its site, then in the lane. `again`: it continues earlier
    /// memory.
    pub fn charge(
        &mut self,
        caller: &Caller,
        site: SiteId,
        (requested, bytes): (u64, u64),
        again: bool,
    ) {
        let p = store();
        let rose = self.rise(p, bytes);
        let record = site.record();
        let epoch = self.records.space.words(p.header()).epoch.get();
        sites::add_alloc(record, requested, bytes, epoch, rose);
        record.reallocations.add(again as u64);
        self.records.change(p, site, bytes, 1);
        match self.records.lane(caller.lane, LANES_MAX) {
            Some(lane) => {
                lane.requested_classes[size_class(requested)].add(1);
                lane.usable_classes[size_class(bytes)].add(1);
                lane.requested_bytes.add(requested);
                lane.usable_bytes.add(bytes);
                lane.reallocations.add(again as u64);
            }
            None => p.lost(Loss::NoLane),
        }
        self.sample(p, caller);
    }

    /// Counts memory that ends, at the site that allocated it and in the lane that frees it.
    pub fn discharge(&mut self, caller: &Caller, gone: Gone) {
        let p = store();
        self.rising = false;
        let words = self.records.space.words(p.header());
        let (count, bytes) = (gone.is_last as u64, gone.bytes);
        words.bytes.set(words.bytes.get().saturating_sub(bytes));
        sites::unmapped(gone.site.record(), count, bytes, words.epoch.get(), false);
        self.records.change(p, gone.site, bytes.wrapping_neg(), count.wrapping_neg());
        if let Some(lane) = self.records.lane(caller.lane, LANES_MAX) {
            lane.freed_classes[size_class(gone.whole_bytes)].add(count);
            lane.freed_here_bytes.add(bytes);
        }
    }

    /// Reverts the end of memory whose release failed.
    #[inline(never)]
    pub fn restore(&mut self, caller: &Caller, gone: Gone) {
        let p = store();
        let rose = self.rise(p, gone.bytes);
        let (count, bytes) = ((gone.is_last as u64).wrapping_neg(), gone.bytes.wrapping_neg());
        let epoch = self.records.space.words(p.header()).epoch.get();
        sites::unmapped(gone.site.record(), count, bytes, epoch, rose);
        self.records.change(p, gone.site, gone.bytes, gone.is_last as u64);
        if let Some(lane) = self.records.lane(caller.lane, LANES_MAX) {
            lane.freed_classes[size_class(gone.whole_bytes)].add(count);
            lane.freed_here_bytes.add(bytes);
        }
        self.sample(p, caller);
    }

    /// Adds bytes. Returns whether that is a new peak.
    fn rise(&mut self, p: &Store, bytes: u64) -> bool {
        let words = self.records.space.words(p.header());
        words.bytes.add(bytes);
        let live = words.bytes.get();
        if live <= words.peak_bytes.get() {
            return false;
        }
        words.peak_bytes.set(live);
        self.begin_peak(p);
        true
    }

    /// Makes this moment the peak.
    fn begin_peak(&mut self, p: &Store) {
        let words = self.records.space.words(p.header());
        if !self.rising {
            words.epoch.add(1);
            self.rising = true;
        }
        self.handed_out_at_peak_bytes = self.handed_out_bytes;
        let now = p.now();
        words.peak_time_ns.set(now);
        p.note_time(now);
    }

    /// Takes a sample if the bytes have changed much since the last one. Not inlined, so that its
    /// record is not on the stack of the unwinder.
    #[inline(never)]
    pub fn sample(&mut self, p: &Store, caller: &Caller) {
        let words = self.records.space.words(p.header());
        let (live_bytes, peak_bytes) = (words.bytes.get(), words.peak_bytes.get());
        let kind = self.records.space.timeline();
        let samples = &mut self.records.samples;
        if !samples.is_outdated(live_bytes, peak_bytes) {
            return;
        }
        let time_ns = p.now();
        if samples.overwrite(time_ns, live_bytes, peak_bytes) {
            return;
        }
        let (resident_bytes, virtual_bytes) = p.memory_of_process();
        let sample = Sample {
            time_ns,
            live_bytes,
            peak_bytes,
            allocations: 0,
            frees: 0,
            usable_bytes: 0,
            resident_bytes,
            virtual_bytes,
        };
        let lane = caller.lane.index.get();
        if samples.append(kind, lane, sample).is_none() {
            p.lost(Loss::NoSample);
        }
    }
}

/// Returns whether memory of a kind is live.
pub fn is_any_live(space: Space) -> bool {
    space.words(store().header()).bytes.get() != 0
}

/// Returns the mode of the recording.
pub fn mode(header: &FileHeader) -> u32 {
    header.mode.get()
}

/// Returns the unwinder, created when it is first needed.
pub fn unwinder<'a>(
    apart: &'a mut Option<&'static mut Apart>,
) -> Option<&'a mut &'static mut Apart> {
    if apart.is_none() {
        *apart = own_stack::call(Apart::create).flatten();
    }
    apart.as_mut()
}
