//! Mappings: memory that programs and their allocators map and unmap through the C library. They
//! are counted separately and are no part of the heap's counters.
//!
//! These events are rare and each is a system call, so they share one lock, and all is exact: which
//! pages are mapped, how many bytes, their peak. An allocator maps memory in the middle of an
//! allocation, when the lane of the thread is in use. So an event takes from the lane only the
//! thread's scope and stack, and has an unwinder of its own. The one case that cannot be recorded
//! is a signal handler that interrupted a thread while it held a lock of the recorder.
//!
//! Unknown ranges (mapped before the recorder began, or by direct system calls) count nothing when
//! they are unmapped.

use crate::event::accounts;
use crate::event::inside::{Entry, Inside};
use crate::event::lane::{self, LaneState};
use crate::event::live_mappings::{self, Mappings, known};
use crate::event::process::{State, process};
use crate::event::stacks::OTHER_STACKS;
use crate::event::stacks_apart::Apart;
use crate::event::timeline;
use crate::store::budgets::LANES_MAX;
use crate::store::ids::{NodeId, ScopeId, SiteId, StringId};
use crate::store::mapping_records::{Dimensions, kind_of};
use crate::store::mapping_table::{Part, Table, Taken};
use crate::store::shared::{Store, store};
use crate::store::{limit, sites};
use crate::sys::front::Front;
use crate::sys::kernel::{self, Fd};
use crate::sys::maps::kept_path;
use crate::sys::range::Range;
use crate::sys::text::Text;
use crate::sys::tls::thread_pointer;
use crate::sys::{confined, locked, own_stack};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, Release};
use heaptide_format::shared::{FileHeader, Lane, Word};
use heaptide_format::{
    Kind, Loss, MAP_ANONYMOUS, MAP_HUGETLB, MAP_SHARED, MappingCall, MappingKey, Mode, Sample,
    size_class,
};

/// Number of parts of an unmapping that can be put back if it fails; of more, the rest counts as
/// lost.
const PARTS: usize = 2;

/// A new mapping.
#[derive(Clone, Copy)]
pub struct Made {
    pub start: u64,
    /// Bytes that were requested.
    pub requested: u64,
    pub what: What,
}

/// The call that created it.
#[derive(Clone, Copy)]
pub enum What {
    Mmap { protection: i32, flags: i32, fd: i32 },
    Shmat { protection: u32, key: u32 },
    Break,
}

/// Set once memory was mapped without access: `mprotect` may then turn it into memory for data.
static HAS_RESERVED: AtomicBool = AtomicBool::new(false);

/// The thread of an event: its lane, scope and stack.
struct Caller {
    /// Closes the lane's gate, unless the event is in the middle of another one.
    inside: Option<Inside>,
    lane: &'static Lane,
    scope: ScopeId,
    /// The known range of its stack.
    stack: Range,
    is_off: bool,
    entry: Entry,
}

impl Caller {
    /// Returns the calling thread; none if nothing is recorded.
    fn enter<F: Front>(entry: Entry) -> Option<Caller> {
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

    /// Takes an account of resident memory if one is due and the thread is in no other event.
    fn account_for(&self) {
        if self.inside.is_some() {
            let p = store();
            accounts::take_if_due(p.now());
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

/// Records a mapping, which ends all that was mapped in its range before.
pub fn mapped<F: Front>(entry: Entry, made: Made) {
    let Some(caller) = Caller::enter::<F>(entry) else {
        return;
    };
    changed_memory();
    let Some(mut mappings) = acquire() else {
        return;
    };
    let (range, kind) = mappings.describe(&made);
    mappings.map(&caller, range, made.requested, kind, false);
    drop(mappings);
    caller.account_for();
}

/// Counts a mapping of unknown size as lost.
pub fn lost() {
    if process().state() == State::Active {
        store().lost(Loss::NoMapping);
    }
}

/// An unmapping that is about to happen. Its ranges are removed before the call, since another
/// thread may get their addresses at once.
pub struct Unmapping {
    entry: Entry,
    parts: [Taken; PARTS],
    count: usize,
    /// The kind of the mapping with the first part of the range.
    kind: Option<MappingKey>,
}

impl Unmapping {
    /// Begins to unmap `start..start + bytes`, rounded up to whole pages. None if nothing of it is
    /// known.
    pub fn begin<F: Front>(entry: Entry, start: u64, bytes: u64) -> Option<Unmapping> {
        let page = kernel::page_bytes();
        if !start.is_multiple_of(page) || bytes == 0 {
            return None; // the call fails
        }
        let high = start.checked_add(bytes)?.checked_next_multiple_of(page)?;
        let range = Range { low: start, high };
        Unmapping::of::<F>(entry, high - start, |_| Some(range))
    }

    /// Begins to detach the shared memory that was attached at `start`.
    pub fn begin_detach<F: Front>(entry: Entry, start: u64) -> Option<Unmapping> {
        Unmapping::of::<F>(entry, 0, |table| table.range_from(start))
    }

    /// Begins to unmap a range. `bytes`: its length, 0 if it is not known yet.
    fn of<F: Front>(
        entry: Entry,
        bytes: u64,
        range: impl FnOnce(&Table) -> Option<Range>,
    ) -> Option<Unmapping> {
        let p = process();
        if p.state() != State::Active || store().header().mapped_bytes.get() == 0 {
            return None;
        }
        let caller = Caller::enter::<F>(entry)?;
        if caller.inside.is_some() {
            accounts::take_before_fall(bytes);
        }
        let mut mappings = acquire()?;
        let range = range(&mappings.table)?;
        let mut unmapping = Unmapping { entry, parts: [Taken::NONE; PARTS], count: 0, kind: None };
        mappings.unmap(&caller, range, |part| {
            if unmapping.count == 0 {
                unmapping.kind = kind_of(part.site);
            }
            let has_room = unmapping.count < PARTS;
            if has_room {
                unmapping.parts[unmapping.count] = part.taken;
            }
            unmapping.count += 1;
            has_room
        });
        (unmapping.count > 0).then_some(unmapping)
    }

    /// Ends the unmapping. If the call failed, its parts are put back.
    pub fn end<F: Front>(&self, done: bool) {
        let Some(caller) = Caller::enter::<F>(self.entry) else {
            return;
        };
        let Some(mut mappings) = acquire() else {
            return;
        };
        for part in &self.parts[..self.count.min(PARTS)] {
            if done {
                mappings.table.forget(*part);
            } else {
                mappings.put_back(&caller, *part);
            }
        }
        if !done && self.count > PARTS {
            store().lost(Loss::NoMapping);
        }
    }
}

/// An mremap that is about to happen.
pub struct Remapping {
    entry: Entry,
    before: Option<Unmapping>,
    kind: MappingKey,
}

impl Remapping {
    /// Begins to map the first `bytes` from `old` on elsewhere, or with another length. With 0
    /// bytes, the old mapping stays.
    pub fn begin<F: Front>(entry: Entry, (old, bytes): (u64, u64)) -> Remapping {
        let before = Unmapping::begin::<F>(entry, old, bytes);
        let kind = match &before {
            Some(before) => before.kind,
            None => known(old).filter(|known| !known.site.is_none()).and_then(|k| kind_of(k.site)),
        };
        let call = MappingCall::Mremap as u32;
        let unknown = MappingKey { call, protection: 0, flags: 0, file: 0 };
        Remapping { entry, before, kind: MappingKey { call, ..kind.unwrap_or(unknown) } }
    }

    /// Ends the call. `made` holds the start and the bytes of the new mapping; none if the call
    /// failed.
    pub fn end<F: Front>(&self, made: Option<(u64, u64)>) {
        if let Some(before) = &self.before {
            before.end::<F>(made.is_some());
        }
        let Some((start, bytes)) = made else {
            return;
        };
        let Some(caller) = Caller::enter::<F>(self.entry) else {
            return;
        };
        changed_memory();
        if let Some(mut mappings) = acquire() {
            let range = pages(start, bytes, page_bytes(self.kind.flags));
            mappings.map(&caller, range, bytes, self.kind, true);
        }
        caller.account_for();
    }
}

/// Records that the break moved: whole pages between both addresses were mapped or unmapped.
pub fn break_moved<F: Front>(entry: Entry, before: u64, after: u64) {
    let [low, high] = [before, after].map(|at| at.next_multiple_of(kernel::page_bytes()));
    if low < high {
        let requested = (after - before).min(high - low);
        mapped::<F>(entry, Made { start: low, requested, what: What::Break });
    } else if let Some(unmapping) = Unmapping::begin::<F>(entry, high, low - high) {
        unmapping.end::<F>(true);
    }
}

/// Records a change of the protection of `start..start + bytes`, rounded up to whole pages. Each
/// part that was reserved (`PROT_NONE`) and is accessible now becomes a mapping of the caller, and
/// so does each of these parts that is reserved again.
pub fn protected<F: Front>(entry: Entry, start: u64, bytes: u64, protection: u32) {
    if !HAS_RESERVED.load(Relaxed) {
        return;
    }
    let Some(caller) = Caller::enter::<F>(entry).filter(|caller| !caller.is_off) else {
        return;
    };
    let Some(mut mappings) = acquire() else {
        return;
    };
    mappings.protect(&caller, pages(start, bytes, kernel::page_bytes()), protection);
    drop(mappings);
    caller.account_for();
}

/// Notes that memory in which kept stacks lie may have gone.
pub fn changed_memory() {
    if OTHER_STACKS.load(Relaxed) {
        store().generation.fetch_add(1, Release);
    }
}

#[inline(never)]
fn acquire() -> Option<locked::Held<'static, Mappings>> {
    let mappings = live_mappings::acquire();
    if mappings.is_none() {
        store().lost(Loss::NoMapping);
    }
    mappings
}

/// Returns the pages of a mapping.
fn pages(start: u64, bytes: u64, page: u64) -> Range {
    let end = start.saturating_add(bytes);
    Range { low: start, high: end.checked_next_multiple_of(page).unwrap_or(end) }
}

/// Returns the page size of a mapping with these flags. Keys do not hold the size of huge pages, so
/// the default is used for a mapping that is moved.
fn page_bytes(flags: u32) -> u64 {
    const SHIFT_AT: u32 = 26;
    const USUAL_SHIFT: u32 = 21;
    match (flags & MAP_HUGETLB != 0, flags >> SHIFT_AT) {
        (false, _) => kernel::page_bytes(),
        (true, 0) => 1 << USUAL_SHIFT,
        (true, shift) => 1 << shift,
    }
}

impl Mappings {
    /// Returns the pages of a mapping and its kind.
    fn describe(&mut self, made: &Made) -> (Range, MappingKey) {
        let (call, protection, flags, page, file) = match made.what {
            What::Mmap { protection, flags, fd } => {
                let flags = flags as u32;
                let is_file = flags & MAP_ANONYMOUS == 0;
                let file = if is_file { self.name_of(Fd(fd)) } else { StringId::NONE };
                (MappingCall::Mmap, protection as u32, flags, page_bytes(flags), file)
            }
            What::Shmat { protection, key } => (
                MappingCall::Shmat,
                protection,
                MAP_SHARED,
                page_bytes(0),
                self.name_of_segment(key),
            ),
            What::Break => (MappingCall::Break, 3, MAP_ANONYMOUS, page_bytes(0), StringId::NONE),
        };
        let kind = MappingKey { call: call as u32, protection, flags, file: file.number() };
        // Unpacked again, so that bits that are not stored do not create another site.
        let kind = MappingKey::unpack(kind.pack());
        (pages(made.start, made.requested, page), kind)
    }

    /// Returns the path of a mapped file; none if it cannot be read now.
    #[inline(never)]
    fn name_of(&mut self, fd: Fd) -> StringId {
        const LENGTH: usize = 32;
        let mut link = Text::<LENGTH>::new();
        link.push(b"/proc/self/fd/");
        link.push_number(fd.0.max(0) as u64);
        let Some(apart) = unwinder(&mut self.apart) else {
            return StringId::NONE;
        };
        match link.path().filter(|_| confined::may_call()) {
            Some(path) => match kernel::readlink(path, apart.buffer()) {
                Ok(name) => self.records.file(kept_path(name)),
                Err(_) => StringId::NONE,
            },
            None => StringId::NONE,
        }
    }

    /// Returns the name in `/proc/self/maps` of shared memory with this key.
    fn name_of_segment(&mut self, key: u32) -> StringId {
        const PREFIX: &[u8; 5] = b"/SYSV";
        let mut name = [0; PREFIX.len() + 8];
        name[..PREFIX.len()].copy_from_slice(PREFIX);
        for (i, digit) in name[PREFIX.len()..].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(key >> (28 - 4 * i)) as usize & 15];
        }
        self.records.file(&name)
    }

    /// Maps the parts of a range again whose access begins, or ends after it began here.
    fn protect(&mut self, caller: &Caller, range: Range, protection: u32) {
        const CALL: u32 = MappingCall::Mprotect as u32;
        let mut low = range.low;
        while low < range.high {
            let known = self.table.known(low);
            let part = Range { low, high: known.end.min(range.high) };
            let before = if known.site.is_none() { None } else { kind_of(known.site) };
            let changed = before.filter(|before| match protection {
                0 => before.protection != 0 && before.call == CALL,
                _ => before.protection == 0,
            });
            if let Some(before) = changed {
                let kind = MappingKey { call: CALL, protection, ..before };
                let kind = MappingKey::unpack(kind.pack());
                self.map(caller, part, part.high - part.low, kind, false);
            }
            low = part.high;
        }
    }

    /// Maps a range in place of its former mappings.
    fn map(&mut self, caller: &Caller, range: Range, requested: u64, kind: MappingKey, re: bool) {
        self.unmap(caller, range, |_| false);
        if caller.is_off || range.low >= range.high {
            return;
        }
        if kind.protection == 0 {
            HAS_RESERVED.store(true, Relaxed);
        }
        let p = store();
        let stack = self.stack(p, caller);
        let scope =
            if mode(p.header()) == Mode::Counters as u32 { ScopeId::NONE } else { caller.scope };
        let of = Dimensions { stack, scope, lane: caller.lane.index.get(), kind };
        let site = self.site(p, of);
        if site.is_none() || !self.table.add(range, site) {
            return p.lost(Loss::NoMapping);
        }
        self.charge(caller, site, (requested, range.high - range.low), re);
    }

    /// Returns the site for these dimensions, or at the limit of the profile, that of the thread
    /// and the kind alone.
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

    /// Counts a new mapping, first at its site, then in the lane.
    fn charge(&mut self, caller: &Caller, site: SiteId, (requested, bytes): (u64, u64), re: bool) {
        let p = store();
        let header = p.header();
        let rose = self.rise(p, header, bytes);
        let record = site.record();
        sites::add_alloc(record, requested, bytes, header.mapped_epoch.get(), rose);
        record.reallocations.add(re as u64);
        self.records.change(p, site, bytes, 1);
        match self.records.lane(caller.lane, LANES_MAX) {
            Some(lane) => {
                lane.requested_classes[size_class(requested)].add(1);
                lane.usable_classes[size_class(bytes)].add(1);
                lane.requested_bytes.add(requested);
                lane.usable_bytes.add(bytes);
                lane.reallocations.add(re as u64);
            }
            None => p.lost(Loss::NoLane),
        }
        self.sample(p, caller);
    }

    /// Takes out a range; `keep` returns whether a part may be put back.
    fn unmap(&mut self, caller: &Caller, range: Range, mut keep: impl FnMut(Part) -> bool) {
        let p = store();
        let Mappings { table, records, rising, .. } = self;
        let lane = records.lane(caller.lane, LANES_MAX);
        let is_whole = table.cut(range, |part| {
            *rising = false;
            discharge(p.header(), lane, &part);
            records.change(
                p,
                part.site,
                part.bytes.wrapping_neg(),
                (part.is_last as u64).wrapping_neg(),
            );
            keep(part)
        });
        if !is_whole {
            p.lost(Loss::NoMapping);
        }
        self.sample(p, caller);
    }

    /// Puts back a part whose unmapping failed.
    #[inline(never)]
    fn put_back(&mut self, caller: &Caller, taken: Taken) {
        let p = store();
        let Some(part) = self.table.put_back(taken) else {
            return p.lost(Loss::NoMapping);
        };
        let header = p.header();
        let rose = self.rise(p, header, part.bytes);
        let (gone, bytes) = ((part.is_last as u64).wrapping_neg(), part.bytes.wrapping_neg());
        let epoch = header.mapped_epoch.get();
        sites::unmapped(part.site.record(), gone, bytes, epoch, rose);
        self.records.change(p, part.site, part.bytes, part.is_last as u64);
        if let Some(lane) = self.records.lane(caller.lane, LANES_MAX) {
            lane.freed_classes[size_class(part.whole_bytes)].add(gone);
            lane.freed_here_bytes.add(bytes);
        }
        self.sample(p, caller);
    }

    /// Adds mapped bytes. Returns whether that is a new peak.
    fn rise(&mut self, p: &Store, header: &FileHeader, bytes: u64) -> bool {
        header.mapped_bytes.add(bytes);
        let mapped = header.mapped_bytes.get();
        if mapped <= header.mapped_peak_bytes.get() {
            return false;
        }
        if !self.rising {
            header.mapped_epoch.add(1);
            self.rising = true;
        }
        header.mapped_peak_bytes.set(mapped);
        let now = p.now();
        header.mapped_peak_time_ns.set(now);
        p.note_time(now);
        true
    }

    /// Takes a sample if mapped bytes have changed much since the last one. Not inlined, so that
    /// its record is not on the stack of the unwinder.
    #[inline(never)]
    fn sample(&mut self, p: &Store, caller: &Caller) {
        let header = p.header();
        let (live_bytes, peak_bytes) = (header.mapped_bytes.get(), header.mapped_peak_bytes.get());
        let samples = &mut self.records.samples;
        if !samples.is_outdated(live_bytes, peak_bytes) {
            return;
        }
        let time_ns = p.now();
        if samples.overwrite(time_ns, live_bytes, peak_bytes) {
            return;
        }
        let (resident_bytes, virtual_bytes) = timeline::memory_of_process(p);
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
        if samples.append(Kind::MappedTimeline, lane, sample).is_none() {
            p.lost(Loss::NoSample);
        }
    }
}

/// Counts a part that was unmapped, at the site that mapped it and in the lane that unmaps it.
fn discharge(header: &FileHeader, lane: Option<&Lane>, part: &Part) {
    let (gone, bytes) = (part.is_last as u64, part.bytes);
    header.mapped_bytes.set(header.mapped_bytes.get().saturating_sub(bytes));
    sites::unmapped(part.site.record(), gone, bytes, header.mapped_epoch.get(), false);
    if let Some(lane) = lane {
        lane.freed_classes[size_class(part.whole_bytes)].add(gone);
        lane.freed_here_bytes.add(bytes);
    }
}

fn mode(header: &FileHeader) -> u32 {
    header.mode.get()
}

/// Returns the unwinder, created when it is first needed.
fn unwinder<'a>(apart: &'a mut Option<&'static mut Apart>) -> Option<&'a mut &'static mut Apart> {
    if apart.is_none() {
        *apart = own_stack::call(Apart::create).flatten();
    }
    apart.as_mut()
}
