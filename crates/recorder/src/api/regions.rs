//! Memory with a name: labelled blocks, pools with their chunks and blocks, mappings and arrays
//! that are no block of the allocator's.
//!
//! Each is a region, found by its first byte in a table like the one of blocks, and by any byte in
//! it by looking back from there. Regions nest: a chunk in nothing, a pool's block in its chunk.
//! Everything here happens under one lock; programs without labels and pools never come by.
//!
//! A block that gets a label moves to the site with that label. A pool's block is a site of its
//! own, and its bytes are lent by the chunk's: live bytes are counted once, and what the chunk's
//! site has left is the pool's idle space.

use crate::api::relabel::{arrive, come_back, leave, lend};
use crate::event::lane::LaneState;
use crate::event::process::{Process, process};
use crate::event::{stats, trace};
use crate::store::ids::{NameId, NodeId, ScopeId, SiteId};
use crate::store::names;
use crate::store::shadow::Table;
use crate::store::sites::{self, Dimensions};
use crate::sys::front;
use crate::sys::locked::{Held, Locked};
use crate::sys::memory::{self, InChild};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::{Key, Word};
use heaptide_format::{KEY_OUTSIDE, KEY_POOL_BLOCK, KEY_POOL_CHUNK, Loss};
use heaptide_trace::Record;

/// Regions of one piece of memory, and pieces.
const PER_PIECE: usize = 4096;
const PIECES: usize = 4096;
/// Dimensions kept; further ones are folded into the last.
const DIMENSIONS: usize = 4;
/// Regions looked at in search of one that holds an address.
const LOOKS: usize = 1024;
/// Nobody's lane: whoever calls may write no lane's half of a site.
pub const NOBODY: u32 = u32::MAX;

/// What a region is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    Block = 1,
    PoolBlock = 2,
    Chunk = 3,
    Other = 4,
}

/// One region.
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    bytes: u64,
    uid: u64,
    element_bytes: u64,
    dimensions: [u64; DIMENSIONS],
    dimension_count: u32,
    what: What,
    /// Where its bytes are counted, and where they were before it got a label.
    site: SiteId,
    origin: SiteId,
    /// Name of its label, or of its pool.
    label: NameId,
    pool: NameId,
    /// The region around it, and the one that begins at the same byte and is further out; 0: none.
    parent: u32,
    under: u32,
}

/// All regions of the process. Zero is: none yet.
pub struct Regions {
    list: Locked<List>,
    /// Some region is not the allocator's: munmap is of interest.
    pub foreign: AtomicBool,
}

/// Regions by number, from 1. Zero is: none yet.
struct List {
    /// First byte → the innermost region that begins there.
    table: Table,
    pieces: *mut *mut Region,
    used: u32,
    free: u32,
    uids: u64,
    /// The longest region so far: how far back from an address to look.
    longest: u64,
}

/// What a person calls a region, and how it is laid out.
#[derive(Clone, Copy)]
pub struct Label<'a> {
    pub name: &'a [u8],
    pub element_bytes: usize,
    pub dimensions: &'a [usize],
}

/// What `resolve` tells, as the C interface has it.
#[repr(C)]
pub struct Block {
    start: u64,
    bytes: u64,
    uid: u64,
    label: *const u8,
    label_length: usize,
    element_bytes: u64,
    index: u64,
    dimension_count: usize,
    dimensions: [u64; DIMENSIONS],
    kind: u32,
    reserved: u32,
}

impl Regions {
    /// The list, with its tables made.
    fn acquire(&self, p: &Process) -> Option<Held<'_, List>> {
        let mut list = self.list.acquire()?;
        if !list.table.is_made() {
            let pieces = memory::take(PIECES * size_of::<*mut Region>(), InChild::Nothing);
            if pieces.is_null() {
                return None;
            }
            list.pieces = pieces as *mut *mut Region;
            list.table.create(p.scarce.load(Relaxed))?;
        }
        Some(list)
    }
}

impl List {
    fn place(&self, number: u32) -> *mut Region {
        let (piece, place) = (number as usize / PER_PIECE, number as usize % PER_PIECE);
        // SAFETY: a number that `add` gave: its piece is mapped.
        unsafe { (*self.pieces.add(piece)).add(place) }
    }

    /// A region by number.
    fn at(&self, number: u32) -> &Region {
        // SAFETY: a region that `add` wrote; it is borrowed with the list.
        unsafe { &*self.place(number) }
    }

    /// The same, to be changed.
    fn at_mut(&mut self, number: u32) -> &mut Region {
        // SAFETY: as above, and the list is borrowed alone.
        unsafe { &mut *self.place(number) }
    }

    /// Stores a region and finds its place among others; 0 if there is no room.
    fn add(&mut self, region: Region) -> u32 {
        let number = if self.free != 0 {
            let number = self.free;
            self.free = self.at(number).under;
            number
        } else {
            let number = self.used + 1;
            if !self.has_piece(number as usize / PER_PIECE) {
                return 0;
            }
            self.used = number;
            number
        };
        let (start, bytes) = (region.start, region.bytes);
        let under = self.table.get(start);
        // SAFETY: a free place in a mapped piece.
        unsafe { self.place(number).write(Region { under, ..region }) };
        if !self.table.put(start as *const u8, number) {
            self.discard(number);
            return 0;
        }
        self.longest = self.longest.max(bytes);
        number
    }

    fn has_piece(&mut self, piece: usize) -> bool {
        if piece >= PIECES {
            return false;
        }
        // SAFETY: within the table of pieces, which is borrowed with the list.
        let slot = unsafe { &mut *self.pieces.add(piece) };
        if slot.is_null() {
            let piece = memory::take(PER_PIECE * size_of::<Region>(), InChild::Nothing);
            *slot = piece as *mut Region;
        }
        !slot.is_null()
    }

    fn discard(&mut self, number: u32) {
        self.at_mut(number).under = self.free;
        self.free = number;
    }

    /// Takes a region out.
    fn remove(&mut self, number: u32) {
        let (start, under) = (self.at(number).start, self.at(number).under);
        let first = self.table.get(start);
        if first == number {
            self.table.put(start as *const u8, under);
        } else {
            let mut above = first;
            while above != 0 && self.at(above).under != number {
                above = self.at(above).under;
            }
            if above != 0 {
                self.at_mut(above).under = under;
            }
        }
        self.discard(number);
    }

    /// The innermost region that holds an address; 0 if none does.
    fn holding(&self, address: u64) -> u32 {
        let least = address.saturating_sub(self.longest);
        let mut from = address;
        for _ in 0..LOOKS {
            let Some((start, first)) = self.table.last_before(from, least) else {
                return 0;
            };
            let mut at = first;
            while at != 0 {
                let region = self.at(at);
                if address.wrapping_sub(region.start) < region.bytes {
                    return at;
                }
                at = if region.under != 0 { region.under } else { region.parent };
            }
            let Some(before) = start.checked_sub(1) else {
                return 0;
            };
            from = before;
        }
        0
    }
}

fn scope_here(lane: &LaneState) -> ScopeId {
    let scope = ScopeId::of(lane.place.scope);
    if scope == lane.place.root_scope { ScopeId::NONE } else { scope }
}

/// What the dimensions say; 0 without any.
fn declared_bytes(label: &Label<'_>) -> u64 {
    if label.dimensions.is_empty() {
        return 0;
    }
    let elements = label.dimensions.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
    elements.saturating_mul(label.element_bytes as u64)
}

/// A region as the trace has it.
fn told_block(address: u64, site: SiteId, requested: u64, usable: u64) -> heaptide_trace::Block {
    let site = site.number();
    heaptide_trace::Block { address, site, requested, usable, reallocated: false }
}

fn describe(list: &mut List, number: u32, name: NameId, label: &Label<'_>) {
    list.uids += 1;
    let uid = list.uids;
    let region = list.at_mut(number);
    region.label = name;
    region.uid = uid;
    region.element_bytes = label.element_bytes as u64;
    region.dimensions = [0; DIMENSIONS];
    region.dimension_count = label.dimensions.len().min(DIMENSIONS) as u32;
    for (i, &dimension) in label.dimensions.iter().enumerate() {
        let kept = &mut region.dimensions[i.min(DIMENSIONS - 1)];
        *kept =
            if i < DIMENSIONS { dimension as u64 } else { kept.saturating_mul(dimension as u64) };
    }
}

fn region(what: What, start: u64, bytes: u64, site: SiteId) -> Region {
    Region {
        start,
        bytes,
        uid: 0,
        element_bytes: 0,
        dimensions: [0; DIMENSIONS],
        dimension_count: 0,
        what,
        site,
        origin: SiteId::NONE,
        label: NameId::NONE,
        pool: NameId::NONE,
        parent: 0,
        under: 0,
    }
}

/// Gives memory a label. With `bytes` it may be other memory than a block. False if nothing known
/// begins there, or there is no room.
pub fn label(lane: &mut LaneState, address: u64, label: &Label<'_>, bytes: u64) -> bool {
    let p = process();
    let name = names::id(names::intern(names::LABEL, names::Value::Text(label.name)));
    let held = if name.is_none() { None } else { p.regions.acquire(p) };
    let Some(mut held) = held else {
        p.lost(Loss::NoRegion);
        return false;
    };
    let list = &mut *held;
    drop_stale(p, list, address, lane.index());
    let known = list.table.get(address);
    let block = SiteId::new(p.shadow.get(address));
    let number = if known != 0 {
        relabel(lane, list, known, name, label)
    } else if !block.is_none() {
        let usable = front::usable(address as *mut u8);
        let named = Dimensions { label: name, ..Dimensions::of_site(block) };
        let said = declared_or(label, if named.size != 0 { named.size } else { usable });
        move_block(lane, list, address, block, named, said, usable, What::Block)
    } else if bytes > 0 {
        let named =
            Dimensions { label: name, flags: KEY_OUTSIDE, scope: scope_here(lane), ..here(lane) };
        outside(lane, list, address, bytes, declared_or(label, bytes), named, What::Other)
    } else {
        return false;
    };
    if number == 0 {
        p.lost(Loss::NoRegion);
        return false;
    }
    describe(list, number, name, label);
    true
}

fn here(lane: &LaneState) -> Dimensions {
    Dimensions::of(&lane.place)
}

fn declared_or(label: &Label<'_>, bytes: u64) -> u64 {
    match declared_bytes(label) {
        0 => bytes,
        declared => declared,
    }
}

/// A block of the allocator's becomes a region, and moves to the site of these dimensions.
#[expect(clippy::too_many_arguments, reason = "each is one thing of the move")]
fn move_block(
    lane: &mut LaneState,
    list: &mut List,
    address: u64,
    from: SiteId,
    to: Dimensions,
    declared: u64,
    usable: u64,
    what: What,
) -> u32 {
    let p = process();
    let site = sites::of_key(&mut lane.place, to);
    if site.is_none() {
        return 0;
    }
    let number = list.add(Region { origin: from, ..region(what, address, usable, site) });
    if number != 0 {
        leave(from, usable, lane.index());
        arrive(lane, site, declared, usable);
        p.shadow.put(address as *const u8, site.number());
        trace::tell(lane, &Record::Relabelled(told_block(address, site, declared, usable)));
    }
    number
}

/// Memory that is not the allocator's becomes a region.
fn outside(
    lane: &mut LaneState,
    list: &mut List,
    address: u64,
    bytes: u64,
    declared: u64,
    of: Dimensions,
    what: What,
) -> u32 {
    let site = sites::of_key(&mut lane.place, of);
    if site.is_none() {
        return 0;
    }
    let parent = list.holding(address);
    let number = list.add(Region { parent, ..region(what, address, bytes, site) });
    if number != 0 {
        sites::allocated(site.record(), declared, bytes, lane.header.epoch.get(), false);
        process().regions.foreign.store(true, Relaxed);
        trace::tell(lane, &Record::Opened(told_block(address, site, declared, bytes)));
    }
    number
}

/// A region gets another label. A chunk goes by its pool's name whatever it is called.
fn relabel(
    lane: &mut LaneState,
    list: &mut List,
    number: u32,
    name: NameId,
    label: &Label<'_>,
) -> u32 {
    let Region { what, site, start, bytes, .. } = *list.at(number);
    if what == What::Chunk {
        return number;
    }
    let named = Dimensions { label: name, ..Dimensions::of_site(site) };
    let to = sites::of_key(&mut lane.place, named);
    if to.is_none() {
        return 0;
    }
    leave(site, bytes, lane.index());
    let declared = declared_or(label, bytes);
    arrive(lane, to, declared, bytes);
    list.at_mut(number).site = to;
    let now = told_block(start, to, declared, bytes);
    if what == What::Block {
        process().shadow.put(start as *const u8, to.number());
        trace::tell(lane, &Record::Relabelled(now));
    } else {
        trace::tell(lane, &Record::Closed { address: start, site: site.number() });
        trace::tell(lane, &Record::Opened(now));
    }
    number
}

/// Takes a label away. False if there is none.
pub fn unlabel(lane: &mut LaneState, address: u64) -> bool {
    let p = process();
    let Some(mut held) = p.regions.acquire(p) else {
        return false;
    };
    let list = &mut *held;
    drop_stale(p, list, address, lane.index());
    let number = list.table.get(address);
    if number == 0 || list.at(number).label.is_none() {
        return false;
    }
    match list.at(number).what {
        What::Block => {
            restore(p, list.at(number), lane.index());
            list.remove(number);
        }
        What::Other => end(list, number, lane.index()),
        What::PoolBlock => {
            let pool = list.at(number).pool;
            let none = Label { name: b"", element_bytes: 0, dimensions: &[] };
            relabel(lane, list, number, pool, &none);
            forget_label(list.at_mut(number));
        }
        What::Chunk => forget_label(list.at_mut(number)),
    }
    true
}

fn forget_label(r: &mut Region) {
    (r.label, r.uid, r.element_bytes, r.dimension_count) = (NameId::NONE, 0, 0, 0);
}

/// A block goes back to the site that it was allocated at.
fn restore(p: &Process, r: &Region, me: u32) {
    leave(r.site, r.bytes, me);
    come_back(r.origin, r.bytes);
    p.shadow.put(r.start as *const u8, r.origin.number());
    trace::tell_of(me, &Record::Unlabelled { address: r.start, site: r.origin.number() });
}

impl Region {
    /// Whether it is a block of the allocator's.
    fn is_heap(&self) -> bool {
        self.what == What::Block || (self.what == What::Chunk && !self.origin.is_none())
    }
}

/// What was known of a block whose memory has a new block by now, by an allocation that came before
/// the old one's end was noted.
fn drop_stale(p: &Process, list: &mut List, address: u64, me: u32) {
    let number = list.table.get(address);
    if number == 0 {
        return;
    }
    let r = list.at(number);
    if r.is_heap() && p.shadow.get(address) != r.site.number() {
        end_inside(list, number, me);
        list.remove(number);
    }
}

/// A region ends: what is in it first.
fn end(list: &mut List, number: u32, me: u32) {
    end_inside(list, number, me);
    end_alone(list, number, me);
}

/// A region in which there is no other one ends: its bytes leave their site.
fn end_alone(list: &mut List, number: u32, me: u32) {
    let Region { what, site, start, bytes, parent, .. } = *list.at(number);
    trace::tell_of(me, &Record::Closed { address: start, site: site.number() });
    leave(site, bytes, me);
    if what == What::PoolBlock && parent != 0 {
        lend(list.at(parent).site, -(bytes as i64));
    }
    list.remove(number);
}

/// Ends the regions inside one: from the last byte to the first, and of those that begin at the
/// same byte the innermost first, so that each is empty by then.
fn end_inside(list: &mut List, number: u32, me: u32) {
    let Region { start, bytes, .. } = *list.at(number);
    let mut from = start + bytes.max(1) - 1;
    while let Some((at, inner)) = list.table.last_before(from, start) {
        if inner == number {
            return;
        }
        let mut inner = inner;
        while inner != 0 && inner != number {
            let under = list.at(inner).under;
            if goes_with(list, inner, number) {
                end_alone(list, inner, me);
            }
            inner = under;
        }
        let Some(before) = at.checked_sub(1) else {
            return;
        };
        from = before;
        if from < start {
            return;
        }
    }
}

/// Whether a region ends when another one around it does: it is that one's, or in something of a
/// pool's.
fn goes_with(list: &List, number: u32, around: u32) -> bool {
    let mut at = number;
    while at != 0 && at != around {
        let region = list.at(at);
        if region.what == What::PoolBlock {
            return true;
        }
        at = region.parent;
    }
    at == around
}

/// A block of the allocator's with a name is about to be freed, or was moved: its region ends.
#[cold]
#[inline(never)]
pub fn block_ended(block: *const u8, site: SiteId, me: u32) {
    let p = process();
    let regions = &p.regions.list;
    let held = if me == NOBODY { regions.try_acquire() } else { regions.acquire() };
    let Some(mut held) = held.filter(|list| list.table.is_made()) else {
        return p.lost(Loss::NoRegion);
    };
    let list = &mut *held;
    let mut number = list.table.get(block as u64);
    while number != 0 && list.at(number).site != site {
        number = list.at(number).under;
    }
    if number != 0 {
        end_inside(list, number, me);
        list.remove(number);
    }
}

/// Memory is about to be unmapped: regions in it that are not the allocator's end.
#[cold]
#[inline(never)]
pub fn unmapped(lane: &LaneState, start: u64, bytes: u64) {
    let p = process();
    let Some(mut held) = p.regions.acquire(p) else {
        return;
    };
    let list = &mut *held;
    let mut from = start.saturating_add(bytes).saturating_sub(1);
    while let Some((at, number)) = list.table.last_before(from, start) {
        let foreign = list.at(number).origin.is_none();
        if foreign {
            end(list, number, lane.index());
        }
        if list.table.get(at) != 0 && foreign {
            continue;
        }
        if at <= start {
            return;
        }
        from = at - 1;
    }
}

/// Adds memory to a pool.
pub fn pool_add(lane: &mut LaneState, pool: NameId, chunk: u64, bytes: u64) -> bool {
    let p = process();
    let held = if pool.is_none() || bytes == 0 { None } else { p.regions.acquire(p) };
    let Some(mut held) = held else {
        return false;
    };
    let list = &mut *held;
    drop_stale(p, list, chunk, lane.index());
    let known = list.table.get(chunk);
    if known != 0 && list.at(known).what == What::Block {
        // The label goes: a chunk is called like its pool.
        restore(p, list.at(known), lane.index());
        list.remove(known);
    } else if known != 0 && list.at(known).what == What::Chunk {
        p.lost(Loss::NoRegion);
        return false;
    }
    let block = SiteId::new(p.shadow.get(chunk));
    let number = if !block.is_none() {
        let usable = front::usable(chunk as *mut u8);
        let of = Dimensions::of_site(block);
        let to = Dimensions { label: pool, flags: of.flags | KEY_POOL_CHUNK, ..of };
        move_block(lane, list, chunk, block, to, usable, usable, What::Chunk)
    } else {
        let flags = KEY_POOL_CHUNK | KEY_OUTSIDE;
        let of = Dimensions { label: pool, flags, scope: scope_here(lane), ..here(lane) };
        outside(lane, list, chunk, bytes, bytes, of, What::Chunk)
    };
    if number == 0 {
        p.lost(Loss::NoRegion);
        return false;
    }
    list.at_mut(number).pool = pool;
    true
}

/// Takes a chunk from its pool; blocks in it end.
pub fn pool_remove(lane: &LaneState, chunk: u64) -> bool {
    let p = process();
    let Some(mut held) = p.regions.acquire(p) else {
        return false;
    };
    let list = &mut *held;
    let mut number = list.table.get(chunk);
    while number != 0 && list.at(number).what != What::Chunk {
        number = list.at(number).under;
    }
    if number == 0 {
        return false;
    }
    if list.at(number).origin.is_none() {
        end(list, number, lane.index());
    } else {
        end_inside(list, number, lane.index());
        restore(p, list.at(number), lane.index());
        list.remove(number);
    }
    true
}

/// A pool gave a block out. `stack` is the node of the caller's stack.
pub fn pool_allocated(
    lane: &mut LaneState,
    pool: NameId,
    block: u64,
    requested: u64,
    usable: u64,
    stack: NodeId,
) -> bool {
    let p = process();
    let held = if pool.is_none() || block == 0 { None } else { p.regions.acquire(p) };
    let Some(mut list) = held else {
        return false;
    };
    let usable = usable.max(requested).max(1);
    let site = give_out(lane, &mut list, pool, block, requested, usable, stack);
    if site.is_none() {
        p.lost(Loss::NoRegion);
        return false;
    }
    trace::tell(lane, &Record::Opened(told_block(block, site, requested, usable)));
    true
}

/// The site of the new block.
fn give_out(
    lane: &mut LaneState,
    list: &mut List,
    pool: NameId,
    block: u64,
    requested: u64,
    usable: u64,
    stack: NodeId,
) -> SiteId {
    let first = list.table.get(block);
    if first != 0 && list.at(first).what == What::PoolBlock {
        // Its end was not told.
        end(list, first, lane.index());
    }
    let parent = list.holding(block);
    let in_outside = |key: &Key| key.flags.get() & KEY_OUTSIDE != 0;
    let outside = parent == 0 || list.at(parent).site.key().is_some_and(in_outside);
    let flags = KEY_POOL_BLOCK | if outside { KEY_OUTSIDE } else { 0 };
    let of = Dimensions { stack, scope: scope_here(lane), label: pool, flags, ..here(lane) };
    let of = if lane.is_by_size() { of.sized(requested) } else { of };
    let site = sites::of_key(&mut lane.place, of);
    if site.is_none() {
        return site;
    }
    let of_pool = Region { parent, pool, ..region(What::PoolBlock, block, usable, site) };
    if list.add(of_pool) == 0 {
        return SiteId::NONE;
    }
    sites::allocated(site.record(), requested, usable, lane.header.epoch.get(), false);
    if parent != 0 {
        lend(list.at(parent).site, usable as i64);
    }
    site
}

/// The pool took a block back.
pub fn pool_freed(lane: &LaneState, block: u64) -> bool {
    let p = process();
    let Some(mut held) = p.regions.acquire(p) else {
        return false;
    };
    let list = &mut *held;
    let number = pool_block(list, block);
    if number != 0 {
        end(list, number, lane.index());
    }
    number != 0
}

fn pool_block(list: &List, block: u64) -> u32 {
    let number = list.table.get(block);
    let is = number != 0 && list.at(number).what == What::PoolBlock;
    if is { number } else { 0 }
}

/// A pool resized or moved a block.
pub fn pool_reallocated(
    lane: &mut LaneState,
    old: u64,
    block: u64,
    requested: u64,
    usable: u64,
    stack: NodeId,
) -> bool {
    let p = process();
    let Some(mut held) = p.regions.acquire(p) else {
        return false;
    };
    let list = &mut *held;
    let number = pool_block(list, old);
    if number == 0 {
        return false;
    }
    let pool = list.at(number).pool;
    end(list, number, lane.index());
    let usable = usable.max(requested).max(1);
    let site = give_out(lane, list, pool, block, requested, usable, stack);
    if !site.is_none() {
        site.record().reallocations.add(1);
        let block = told_block(block, site, requested, usable);
        trace::tell(lane, &Record::Opened(heaptide_trace::Block { reallocated: true, ..block }));
    }
    !site.is_none()
}

/// What lies at an address; none if nothing known does.
pub fn resolve(address: u64) -> Option<Block> {
    let p = process();
    let list = p.regions.acquire(p)?;
    let number = list.holding(address);
    if number != 0 {
        let r = list.at(number);
        if !r.is_heap() || p.shadow.get(r.start) == r.site.number() {
            return Some(told(r, address));
        }
    }
    let least = address.saturating_sub(stats::longest_block(p));
    let (start, site) = p.shadow.last_before(address, least)?;
    let bytes = front::usable(start as *mut u8);
    (address - start < bytes.max(1))
        .then(|| told(&region(What::Block, start, bytes, SiteId::new(site)), address))
}

fn told(r: &Region, address: u64) -> Block {
    let mut block = Block {
        start: r.start,
        bytes: r.bytes,
        uid: r.uid,
        label: core::ptr::null(),
        label_length: 0,
        element_bytes: r.element_bytes,
        index: 0,
        dimension_count: r.dimension_count as usize,
        dimensions: r.dimensions,
        kind: r.what as u32,
        reserved: 0,
    };
    let name = if r.label.is_none() { r.pool } else { r.label };
    if !name.is_none() {
        let text = names::text_of(name.record());
        (block.label, block.label_length) = (text.as_ptr(), text.len());
    }
    if let Some(index) = (address - r.start).checked_div(r.element_bytes) {
        block.index = index;
    }
    block
}
