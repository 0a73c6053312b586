//! Mappings: memory that programs and their allocators map and unmap through the C library. They
//! are counted separately and are no part of the heap's counters.
//!
//! All is exact: which pages are mapped, how many bytes, their peak.
//!
//! Unknown ranges (mapped before the recorder began, or by direct system calls) count nothing when
//! they are unmapped.

use crate::event::accounts;
use crate::event::inside::Entry;
use crate::event::live_mappings::{self, Mappings, known};
use crate::event::outside_heap::{Caller, is_any_live, unwinder};
use crate::event::process::{State, process};
use crate::event::stacks::OTHER_STACKS;
use crate::store::ids::{NameId, SiteId, StringId};
use crate::store::mapping_table::{Part, Table, Taken};
use crate::store::names;
use crate::store::outside_records::{Space, kind_of};
use crate::store::shared::store;
use crate::sys::front::Front;
use crate::sys::kernel::{self, Fd};
use crate::sys::maps::kept_path;
use crate::sys::range::Range;
use crate::sys::text::Text;
use crate::sys::{confined, locked};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, Release};
use heaptide_format::{Loss, MAP_ANONYMOUS, MAP_HUGETLB, MAP_SHARED, MappingCall, MappingKey};

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
    Mmap {
        protection: i32,
        flags: i32,
        fd: i32,
    },
    Shmat {
        protection: u32,
        key: u32,
    },
    Break,
    /// A driver's function.
    Driver(MappingCall),
}

/// Set once memory was mapped without access: `mprotect` may then turn it into memory for data.
static HAS_RESERVED: AtomicBool = AtomicBool::new(false);

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
    account_for(&caller);
}

/// Attaches a label to host memory that a driver allocated at `start`. `declared`: its bytes
/// according to the program. Returns whether there is such memory.
pub fn label_of_driver<F: Front>(entry: Entry, start: u64, name: &[u8], declared: u64) -> bool {
    if process().state() != State::Active || !is_any_live(Space::Mapped) {
        return false;
    }
    let Some(_caller) = Caller::enter::<F>(entry) else { return false };
    let label = names::label(name);
    let Some(mut mappings) = acquire() else { return false };
    let mappings = &mut *mappings;
    let Some((site, range)) = mappings.table.whole_at(start) else { return false };
    if label.is_none() || !is_of_driver(site) {
        return false;
    }
    let to = mappings.counted.label(site, label, (declared, range.high - range.low));
    if !to.is_none() {
        mappings.table.set_site(start, to);
    }
    true
}

/// Returns whether a site is one of host memory that a driver allocated.
fn is_of_driver(site: SiteId) -> bool {
    let calls = [MappingCall::Pinned, MappingCall::Managed].map(|call| call as u32);
    kind_of(site).is_some_and(|kind| calls.contains(&kind.call))
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

    /// Begins to release the memory that a driver allocated at `start`.
    pub fn begin_release<F: Front>(entry: Entry, start: u64) -> Option<Unmapping> {
        Unmapping::of::<F>(entry, 0, |table| {
            table.range_from(start).filter(|_| is_of_driver(table.known(start).site))
        })
    }

    /// Begins to unmap a range. `bytes`: its length, 0 if it is not known yet.
    fn of<F: Front>(
        entry: Entry,
        bytes: u64,
        range: impl FnOnce(&Table) -> Option<Range>,
    ) -> Option<Unmapping> {
        let p = process();
        if p.state() != State::Active || !is_any_live(Space::Mapped) {
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
                unmapping.kind = kind_of(part.gone.site);
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
        account_for(&caller);
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
    account_for(&caller);
}

/// Takes an account of resident memory if one is due and the thread is in no other event.
fn account_for(caller: &Caller) {
    if caller.inside.is_some() {
        accounts::take_if_due(store().now());
    }
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
            What::Driver(call) => (call, 3, MAP_ANONYMOUS, 1, StringId::NONE),
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
        let Some(apart) = unwinder(&mut self.counted.apart) else {
            return StringId::NONE;
        };
        match link.path().filter(|_| confined::may_call()) {
            Some(path) => match kernel::readlink(path, apart.buffer()) {
                Ok(name) => self.counted.records.file(kept_path(name)),
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
        self.counted.records.file(&name)
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
        let site = self.counted.place(caller, kind.pack(), NameId::NONE);
        if site.is_none() || !self.table.add(range, site) {
            return store().lost(Loss::NoMapping);
        }
        self.counted.charge(caller, site, (requested, range.high - range.low), re);
    }

    /// Takes out a range; `keep` returns whether a part may be put back. Not inlined, so that its
    /// data are not on the stack of the unwinder.
    #[inline(never)]
    fn unmap(&mut self, caller: &Caller, range: Range, mut keep: impl FnMut(Part) -> bool) {
        let p = store();
        let Mappings { table, counted } = self;
        let is_whole = table.cut(range, |part| {
            counted.discharge(caller, part.gone);
            keep(part)
        });
        if !is_whole {
            p.lost(Loss::NoMapping);
        }
        counted.sample(p, caller);
    }

    /// Puts back a part whose unmapping failed.
    #[inline(never)]
    fn put_back(&mut self, caller: &Caller, taken: Taken) {
        match self.table.put_back(taken) {
            Some(part) => self.counted.restore(caller, part.gone),
            None => store().lost(Loss::NoMapping),
        }
    }
}
