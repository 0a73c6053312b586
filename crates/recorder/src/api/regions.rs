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
use crate::store::shadow::Table;
use crate::store::sites::{self, Dimensions};
use crate::store::{names, scopes};
use crate::sys::front;
use crate::sys::locked::{Guarded, Held, Lock};
use crate::sys::memory::{self, InChild};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
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
struct Region {
    start: u64,
    bytes: u64,
    uid: u64,
    element_bytes: u64,
    dimensions: [u64; DIMENSIONS],
    dimension_count: u32,
    what: What,
    /// Where its bytes are counted, and where they were before it got a label.
    site: u32,
    origin: u32,
    /// Name of its label, or of its pool.
    label: u32,
    pool: u32,
    /// The region around it, and the one that begins at the same byte and is further out.
    parent: u32,
    under: u32,
}

/// Zero is: none yet.
pub struct Regions {
    lock: Lock,
    table: Table,
    pieces: AtomicPtr<*mut Region>,
    state: Guarded<State>,
    uids: AtomicU64,
    /// The longest region so far: how far back from an address to look.
    longest: AtomicU64,
    /// Some region is not the allocator's: munmap is of interest.
    pub foreign: AtomicBool,
}

struct State {
    used: u32,
    free: u32,
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
    /// The lock, with the table made.
    fn acquire(&self, p: &Process) -> Option<Held<'_, ()>> {
        let held = self.lock.acquire()?;
        if !self.table.is_made() {
            let pieces = memory::take(PIECES * size_of::<*mut Region>(), InChild::Nothing);
            if pieces.is_null() {
                return None;
            }
            self.pieces.store(pieces as *mut *mut Region, Release);
            self.table.create(p.scarce.load(Relaxed))?;
        }
        Some(held)
    }

    /// A region by number, under the lock.
    #[allow(clippy::mut_from_ref, reason = "the lock is what makes it one at a time")]
    fn at(&self, number: u32) -> &mut Region {
        let (piece, place) = (number as usize / PER_PIECE, number as usize % PER_PIECE);
        // SAFETY: a number that `add` gave: its piece is mapped. Under the lock; users take one
        // reference at a time.
        unsafe { &mut *(*self.pieces.load(Relaxed).add(piece)).add(place) }
    }

    /// Stores a region and finds its place among others; 0 if there is no room.
    fn add(&self, region: Region) -> u32 {
        // SAFETY: under the lock.
        let state = unsafe { &mut *self.state.0.get() };
        let number = if state.free != 0 {
            let number = state.free;
            state.free = self.at(number).under;
            number
        } else {
            let number = state.used + 1;
            if !self.has_piece(number as usize / PER_PIECE) {
                return 0;
            }
            state.used = number;
            number
        };
        let (start, bytes) = (region.start, region.bytes);
        let under = self.table.get(start);
        // SAFETY: a free place in a mapped piece.
        unsafe { core::ptr::write(self.at(number), Region { under, ..region }) };
        if !self.table.put(start as *const u8, number) {
            self.discard(number);
            return 0;
        }
        self.longest.fetch_max(bytes, Relaxed);
        number
    }

    fn has_piece(&self, piece: usize) -> bool {
        if piece >= PIECES {
            return false;
        }
        // SAFETY: within the table of pieces.
        let slot = unsafe { &mut *self.pieces.load(Relaxed).add(piece) };
        if slot.is_null() {
            let piece = memory::take(PER_PIECE * size_of::<Region>(), InChild::Nothing);
            *slot = piece as *mut Region;
        }
        !slot.is_null()
    }

    fn discard(&self, number: u32) {
        // SAFETY: under the lock.
        let state = unsafe { &mut *self.state.0.get() };
        self.at(number).under = state.free;
        state.free = number;
    }

    /// Takes a region out.
    fn remove(&self, number: u32) {
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
                self.at(above).under = under;
            }
        }
        self.discard(number);
    }

    /// The innermost region that holds an address; 0 if none does.
    fn holding(&self, address: u64) -> u32 {
        let least = address.saturating_sub(self.longest.load(Relaxed));
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

fn scope_here(lane: &LaneState) -> u32 {
    let scope = scopes::id(lane.scope);
    if scope == lane.root_scope { 0 } else { scope }
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
fn told_block(address: u64, site: u32, requested: u64, usable: u64) -> heaptide_trace::Block {
    heaptide_trace::Block { address, site, requested, usable, reallocated: false }
}

fn describe(region: &mut Region, name: u32, label: &Label<'_>) {
    region.label = name;
    region.uid = process().regions.uids.fetch_add(1, Relaxed) + 1;
    region.element_bytes = label.element_bytes as u64;
    region.dimensions = [0; DIMENSIONS];
    region.dimension_count = label.dimensions.len().min(DIMENSIONS) as u32;
    for (i, &dimension) in label.dimensions.iter().enumerate() {
        let kept = &mut region.dimensions[i.min(DIMENSIONS - 1)];
        *kept =
            if i < DIMENSIONS { dimension as u64 } else { kept.saturating_mul(dimension as u64) };
    }
}

fn region(what: What, start: u64, bytes: u64, site: u32) -> Region {
    Region {
        start,
        bytes,
        uid: 0,
        element_bytes: 0,
        dimensions: [0; DIMENSIONS],
        dimension_count: 0,
        what,
        site,
        origin: 0,
        label: 0,
        pool: 0,
        parent: 0,
        under: 0,
    }
}

/// Gives memory a label. With `bytes` it may be other memory than a block. False if nothing known
/// begins there, or there is no room.
pub fn label(lane: &mut LaneState, address: u64, label: &Label<'_>, bytes: u64) -> bool {
    let p = process();
    let name = names::id(names::intern(names::LABEL, names::Value::Text(label.name)));
    let held = if name == 0 { None } else { p.regions.acquire(p) };
    if held.is_none() {
        p.lost(Loss::NoRegion);
        return false;
    }
    drop_stale(p, address, lane.index);
    let regions = &p.regions;
    let known = regions.table.get(address);
    let block = p.shadow.get(address);
    let number = if known != 0 {
        relabel(lane, known, name, label)
    } else if block != 0 {
        let usable = front::usable(address as *mut u8);
        let named = Dimensions { label: name, ..Dimensions::of_site(block) };
        let said = declared_or(label, if named.size != 0 { named.size } else { usable });
        move_block(lane, address, block, named, said, usable, What::Block)
    } else if bytes > 0 {
        let named =
            Dimensions { label: name, flags: KEY_OUTSIDE, scope: scope_here(lane), ..here(lane) };
        outside(lane, address, bytes, declared_or(label, bytes), named, What::Other)
    } else {
        return false;
    };
    if number == 0 {
        p.lost(Loss::NoRegion);
        return false;
    }
    describe(regions.at(number), name, label);
    true
}

fn here(lane: &LaneState) -> Dimensions {
    Dimensions::of(lane)
}

fn declared_or(label: &Label<'_>, bytes: u64) -> u64 {
    match declared_bytes(label) {
        0 => bytes,
        declared => declared,
    }
}

/// A block of the allocator's becomes a region, and moves to the site of these dimensions.
fn move_block(
    lane: &mut LaneState,
    address: u64,
    from: u32,
    to: Dimensions,
    declared: u64,
    usable: u64,
    what: What,
) -> u32 {
    let p = process();
    let site = sites::of_key(lane, to);
    if site == 0 {
        return 0;
    }
    let number = p.regions.add(Region { origin: from, ..region(what, address, usable, site) });
    if number != 0 {
        leave(from, true, usable, lane.index);
        arrive(lane, site, declared, usable);
        p.shadow.put(address as *const u8, site);
        trace::tell(lane, &Record::Relabelled(told_block(address, site, declared, usable)));
    }
    number
}

/// Memory that is not the allocator's becomes a region.
fn outside(
    lane: &mut LaneState,
    address: u64,
    bytes: u64,
    declared: u64,
    of: Dimensions,
    what: What,
) -> u32 {
    let regions = &process().regions;
    let site = sites::of_key(lane, of);
    if site == 0 {
        return 0;
    }
    let parent = regions.holding(address);
    let number = regions.add(Region { parent, ..region(what, address, bytes, site) });
    if number != 0 {
        // SAFETY: the lane's own site; the header is mapped.
        unsafe { sites::allocated(site, declared, bytes, (*lane.header).epoch, false) };
        regions.foreign.store(true, Relaxed);
        trace::tell(lane, &Record::Opened(told_block(address, site, declared, bytes)));
    }
    number
}

/// A region gets another label. A chunk goes by its pool's name whatever it is called.
fn relabel(lane: &mut LaneState, number: u32, name: u32, label: &Label<'_>) -> u32 {
    let p = process();
    let (what, site, start, bytes) = {
        let r = p.regions.at(number);
        (r.what, r.site, r.start, r.bytes)
    };
    if what == What::Chunk {
        return number;
    }
    let to = sites::of_key(lane, Dimensions { label: name, ..Dimensions::of_site(site) });
    if to == 0 {
        return 0;
    }
    leave(site, true, bytes, lane.index);
    let declared = declared_or(label, bytes);
    arrive(lane, to, declared, bytes);
    p.regions.at(number).site = to;
    let now = told_block(start, to, declared, bytes);
    if what == What::Block {
        p.shadow.put(start as *const u8, to);
        trace::tell(lane, &Record::Relabelled(now));
    } else {
        trace::tell(lane, &Record::Closed { address: start, site });
        trace::tell(lane, &Record::Opened(now));
    }
    number
}

/// Takes a label away. False if there is none.
pub fn unlabel(lane: &mut LaneState, address: u64) -> bool {
    let p = process();
    let Some(_held) = p.regions.acquire(p) else {
        return false;
    };
    drop_stale(p, address, lane.index);
    let number = p.regions.table.get(address);
    if number == 0 || p.regions.at(number).label == 0 {
        return false;
    }
    match p.regions.at(number).what {
        What::Block => {
            restore(p, number, lane.index);
            p.regions.remove(number);
        }
        What::Other => end(p, number, lane.index),
        What::PoolBlock => {
            let pool = p.regions.at(number).pool;
            let none = Label { name: b"", element_bytes: 0, dimensions: &[] };
            relabel(lane, number, pool, &none);
            let r = p.regions.at(number);
            (r.label, r.uid, r.element_bytes, r.dimension_count) = (0, 0, 0, 0);
        }
        What::Chunk => {
            let r = p.regions.at(number);
            (r.label, r.uid, r.element_bytes, r.dimension_count) = (0, 0, 0, 0);
        }
    }
    true
}

/// A block goes back to the site that it was allocated at.
fn restore(p: &Process, number: u32, me: u32) {
    let r = p.regions.at(number);
    leave(r.site, true, r.bytes, me);
    come_back(r.origin, true, r.bytes);
    p.shadow.put(r.start as *const u8, r.origin);
    trace::tell_of(me, &Record::Unlabelled { address: r.start, site: r.origin });
}

/// What was known of a block whose memory has a new block by now, by an allocation that came before
/// the old one's end was noted.
fn drop_stale(p: &Process, address: u64, me: u32) {
    let number = p.regions.table.get(address);
    if number == 0 {
        return;
    }
    let r = p.regions.at(number);
    let heap = r.what == What::Block || (r.what == What::Chunk && r.origin != 0);
    if heap && p.shadow.get(address) != r.site {
        end_inside(p, number, me);
        p.regions.remove(number);
    }
}

/// A region ends: what is in it first.
fn end(p: &Process, number: u32, me: u32) {
    end_inside(p, number, me);
    end_alone(p, number, me);
}

/// A region in which there is no other one ends: its bytes leave their site.
fn end_alone(p: &Process, number: u32, me: u32) {
    let (what, site, address, bytes, parent) = {
        let r = p.regions.at(number);
        (r.what, r.site, r.start, r.bytes, r.parent)
    };
    trace::tell_of(me, &Record::Closed { address, site });
    leave(site, true, bytes, me);
    if what == What::PoolBlock && parent != 0 {
        lend(p.regions.at(parent).site, -(bytes as i64));
    }
    p.regions.remove(number);
}

/// Ends the regions inside one: from the last byte to the first, and of those that begin at the
/// same byte the innermost first, so that each is empty by then.
fn end_inside(p: &Process, number: u32, me: u32) {
    let (start, bytes) = (p.regions.at(number).start, p.regions.at(number).bytes);
    let mut from = start + bytes.max(1) - 1;
    while let Some((at, inner)) = p.regions.table.last_before(from, start) {
        if inner == number {
            return;
        }
        let mut inner = inner;
        while inner != 0 && inner != number {
            let under = p.regions.at(inner).under;
            if goes_with(p, inner, number) {
                end_alone(p, inner, me);
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
fn goes_with(p: &Process, number: u32, around: u32) -> bool {
    let mut at = number;
    while at != 0 && at != around {
        let region = p.regions.at(at);
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
pub fn block_ended(block: *const u8, site: u32, me: u32) {
    let p = process();
    let regions = &p.regions;
    let held = if me == NOBODY { regions.lock.try_acquire() } else { regions.lock.acquire() };
    if held.is_none() || !regions.table.is_made() {
        return p.lost(Loss::NoRegion);
    }
    let mut number = regions.table.get(block as u64);
    while number != 0 && regions.at(number).site != site {
        number = regions.at(number).under;
    }
    if number != 0 {
        end_inside(p, number, me);
        regions.remove(number);
    }
}

/// Memory is about to be unmapped: regions in it that are not the allocator's end.
#[cold]
#[inline(never)]
pub fn unmapped(lane: &LaneState, start: u64, bytes: u64) {
    let p = process();
    let Some(_held) = p.regions.acquire(p) else {
        return;
    };
    let mut from = start.saturating_add(bytes).saturating_sub(1);
    while let Some((at, number)) = p.regions.table.last_before(from, start) {
        let foreign = p.regions.at(number).origin == 0;
        if foreign {
            end(p, number, lane.index);
        }
        if p.regions.table.get(at) != 0 && foreign {
            continue;
        }
        if at <= start {
            return;
        }
        from = at - 1;
    }
}

/// Adds memory to a pool.
pub fn pool_add(lane: &mut LaneState, pool: u32, chunk: u64, bytes: u64) -> bool {
    let p = process();
    let held = if pool == 0 || bytes == 0 { None } else { p.regions.acquire(p) };
    if held.is_none() {
        return false;
    }
    drop_stale(p, chunk, lane.index);
    let known = p.regions.table.get(chunk);
    if known != 0 && p.regions.at(known).what == What::Block {
        // The label goes: a chunk is called like its pool.
        restore(p, known, lane.index);
        p.regions.remove(known);
    } else if known != 0 && p.regions.at(known).what == What::Chunk {
        p.lost(Loss::NoRegion);
        return false;
    }
    let block = p.shadow.get(chunk);
    let number = if block != 0 {
        let usable = front::usable(chunk as *mut u8);
        let of = Dimensions::of_site(block);
        let to = Dimensions { label: pool, flags: of.flags | KEY_POOL_CHUNK, ..of };
        move_block(lane, chunk, block, to, usable, usable, What::Chunk)
    } else {
        let flags = KEY_POOL_CHUNK | KEY_OUTSIDE;
        let of = Dimensions { label: pool, flags, scope: scope_here(lane), ..here(lane) };
        outside(lane, chunk, bytes, bytes, of, What::Chunk)
    };
    if number == 0 {
        p.lost(Loss::NoRegion);
        return false;
    }
    p.regions.at(number).pool = pool;
    true
}

/// Takes a chunk from its pool; blocks in it end.
pub fn pool_remove(lane: &LaneState, chunk: u64) -> bool {
    let p = process();
    let Some(_held) = p.regions.acquire(p) else {
        return false;
    };
    let mut number = p.regions.table.get(chunk);
    while number != 0 && p.regions.at(number).what != What::Chunk {
        number = p.regions.at(number).under;
    }
    if number == 0 {
        return false;
    }
    if p.regions.at(number).origin == 0 {
        end(p, number, lane.index);
    } else {
        end_inside(p, number, lane.index);
        restore(p, number, lane.index);
        p.regions.remove(number);
    }
    true
}

/// A pool gave a block out. `stack` is the node of the caller's stack.
pub fn pool_allocated(
    lane: &mut LaneState,
    pool: u32,
    block: u64,
    requested: u64,
    usable: u64,
    stack: u32,
) -> bool {
    let p = process();
    let held = if pool == 0 || block == 0 { None } else { p.regions.acquire(p) };
    if held.is_none() {
        return false;
    }
    match give_out(lane, pool, block, requested, usable.max(requested).max(1), stack) {
        0 => {
            p.lost(Loss::NoRegion);
            false
        }
        site => {
            let block = told_block(block, site, requested, usable.max(requested).max(1));
            trace::tell(lane, &Record::Opened(block));
            true
        }
    }
}

/// The site of the new block.
fn give_out(
    lane: &mut LaneState,
    pool: u32,
    block: u64,
    requested: u64,
    usable: u64,
    stack: u32,
) -> u32 {
    let p = process();
    let regions = &p.regions;
    let first = regions.table.get(block);
    if first != 0 && regions.at(first).what == What::PoolBlock {
        // Its end was not told.
        end(p, first, lane.index);
    }
    let parent = regions.holding(block);
    let outside = parent == 0
        || sites::key_of(regions.at(parent).site)
            // SAFETY: keys stay mapped; flags never change.
            .is_some_and(|key| unsafe { (*key).flags } & KEY_OUTSIDE != 0);
    let flags = KEY_POOL_BLOCK | if outside { KEY_OUTSIDE } else { 0 };
    let of = Dimensions { stack, scope: scope_here(lane), label: pool, flags, ..here(lane) };
    let of = if lane.is_by_size() { of.sized(requested) } else { of };
    let site = sites::of_key(lane, of);
    if site == 0 {
        return 0;
    }
    let of_pool = Region { parent, pool, ..region(What::PoolBlock, block, usable, site) };
    if regions.add(of_pool) == 0 {
        return 0;
    }
    // SAFETY: the lane's own site; the header is mapped.
    unsafe { sites::allocated(site, requested, usable, (*lane.header).epoch, false) };
    if parent != 0 {
        lend(regions.at(parent).site, usable as i64);
    }
    site
}

/// The pool took a block back.
pub fn pool_freed(lane: &LaneState, block: u64) -> bool {
    let p = process();
    let Some(_held) = p.regions.acquire(p) else {
        return false;
    };
    let number = pool_block(p, block);
    if number != 0 {
        end(p, number, lane.index);
    }
    number != 0
}

fn pool_block(p: &Process, block: u64) -> u32 {
    let number = p.regions.table.get(block);
    let is = number != 0 && p.regions.at(number).what == What::PoolBlock;
    if is { number } else { 0 }
}

/// A pool resized or moved a block.
pub fn pool_reallocated(
    lane: &mut LaneState,
    old: u64,
    block: u64,
    requested: u64,
    usable: u64,
    stack: u32,
) -> bool {
    let p = process();
    let Some(_held) = p.regions.acquire(p) else {
        return false;
    };
    let number = pool_block(p, old);
    if number == 0 {
        return false;
    }
    let pool = p.regions.at(number).pool;
    end(p, number, lane.index);
    let usable = usable.max(requested).max(1);
    let site = give_out(lane, pool, block, requested, usable, stack);
    if site != 0 {
        // SAFETY: the lane's own site.
        unsafe { (*sites::at(site)).reallocations += 1 };
        let block = told_block(block, site, requested, usable);
        trace::tell(lane, &Record::Opened(heaptide_trace::Block { reallocated: true, ..block }));
    }
    site != 0
}

/// What lies at an address; none if nothing known does.
pub fn resolve(address: u64) -> Option<Block> {
    let p = process();
    let _held = p.regions.acquire(p)?;
    let number = p.regions.holding(address);
    if number != 0 {
        let r = p.regions.at(number);
        let heap = r.what == What::Block || (r.what == What::Chunk && r.origin != 0);
        if !heap || p.shadow.get(r.start) == r.site {
            return Some(told(p.regions.at(number), address));
        }
    }
    let least = address.saturating_sub(stats::longest_block(p));
    let (start, site) = p.shadow.last_before(address, least)?;
    let bytes = front::usable(start as *mut u8);
    (address - start < bytes.max(1))
        .then(|| told(&region(What::Block, start, bytes, site), address))
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
    let name = if r.label != 0 { r.label } else { r.pool };
    if name != 0 {
        // SAFETY: an interned name, whose value is a string.
        let text = names::text(unsafe { (*names::at(name)).value } as u32);
        (block.label, block.label_length) = (text.as_ptr(), text.len());
    }
    if let Some(index) = (address - r.start).checked_div(r.element_bytes) {
        block.index = index;
    }
    block
}
