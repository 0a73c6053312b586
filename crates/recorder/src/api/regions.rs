//! Named memory: labelled blocks, pools with their chunks and blocks, and mappings and arrays that
//! are no blocks of an allocator. Each is a region ([`crate::event::regions`]).
//!
//! A block that gets a label moves to the site with that label. A pool's block has a site of its
//! own, and borrows its bytes from the chunk's site. So live bytes are counted once, and the
//! remaining bytes of the chunk's site are the pool's idle space.

use crate::event::lane::LaneState;
use crate::event::regions::{
    List, Region, What, drop_stale, end, end_inside, region, regions, restore, set_site_of_block,
    site_of_block,
};
use crate::event::relabel::{lend, rename};
use crate::event::{stats, trace};
use crate::store::ids::{NameId, NodeId, ScopeId, ShapeId, SiteId};
use crate::store::names;
use crate::store::shapes::Array;
use crate::store::shared::store;
use crate::store::sites::{self, Dimensions};
use crate::sys::front;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::{Key, Word};
use heaptide_format::{DIMENSIONS, KEY_OUTSIDE, KEY_POOL_BLOCK, KEY_POOL_CHUNK, Loss};
use heaptide_trace::Record;

/// The label of a region, and the layout of its memory.
#[derive(Clone, Copy)]
pub struct Label<'a> {
    pub name: &'a [u8],
    pub element_bytes: usize,
    pub dimensions: &'a [usize],
}

/// The result of `resolve`, as in the C interface.
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

fn scope_here(lane: &LaneState) -> ScopeId {
    Dimensions::here(&lane.place).scope
}

/// Returns the bytes according to the dimensions; 0 without dimensions.
fn declared_bytes(label: &Label<'_>) -> u64 {
    if label.dimensions.is_empty() {
        return 0;
    }
    let elements = label.dimensions.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
    elements.saturating_mul(label.element_bytes as u64)
}

/// Returns a region in the form of the trace.
fn trace_block(address: u64, site: SiteId, requested: u64, usable: u64) -> heaptide_trace::Block {
    let site = site.number();
    heaptide_trace::Block { address, site, requested, usable, ..Default::default() }
}

/// A label that is being attached: its name, the shape of the memory, and its unique number.
struct Labelling {
    name: NameId,
    array: Array,
    shape: ShapeId,
    uid: u64,
}

impl Labelling {
    fn of(list: &mut List, name: NameId, label: &Label<'_>) -> Labelling {
        let array = Array::new(label.element_bytes as u64, label.dimensions);
        let shape = match array.dimension_count {
            0 => ShapeId::NONE,
            _ => list.shapes.id(name, &array),
        };
        if shape.is_none() && array.dimension_count > 0 {
            store().lost(Loss::NoRegion);
        }
        Labelling { name, array, shape, uid: list.uids + 1 }
    }

    /// Writes it into the trace, before the record of the memory.
    fn trace(&self, lane: &mut LaneState) {
        let record = Record::Labelled { uid: self.uid, shape: self.shape.number() };
        trace::write_record(lane, &record);
    }

    /// Applies it to a region.
    fn describe(&self, list: &mut List, number: u32) {
        list.uids = self.uid;
        store().header().labellings.set(self.uid);
        if !self.shape.is_none() {
            self.shape.record().labelled.add(1);
        }
        let region = list.at_mut(number);
        (region.label, region.uid, region.array) = (self.name, self.uid, self.array);
    }
}

/// Attaches a label to memory. With `bytes`, this may be memory other than a block. Returns false
/// if nothing known begins there, or there is no room.
pub fn label(lane: &mut LaneState, address: u64, label: &Label<'_>, bytes: u64) -> bool {
    let p = store();
    let name = names::id(names::intern(names::LABEL, names::Value::Text(label.name)));
    let held = if name.is_none() { None } else { regions().acquire() };
    let Some(mut held) = held else {
        p.lost(Loss::NoRegion);
        return false;
    };
    let list = &mut *held;
    drop_stale(list, address, lane.index());
    let known = list.first(address);
    let block = site_of_block(p, address);
    // Where few blocks are known, the others look like other memory.
    let may_be_outside = bytes != 0 && !lane.is_sampled();
    if known == 0 && block.is_none() && !may_be_outside {
        return false;
    }
    let labelling = Labelling::of(list, name, label);
    let by = Some(&labelling);
    let number = if known != 0 {
        relabel(lane, list, known, name, label, by)
    } else if !block.is_none() {
        let usable = front::usable(address as *mut u8);
        if usable == 0 {
            return false; // the front keeps sizes only where all blocks have sites
        }
        let named = Dimensions { label: name, ..Dimensions::of_site(block) };
        let said = declared_or(label, if named.size != 0 { named.size } else { usable });
        move_block(lane, list, address, block, named, said, usable, What::Block, by)
    } else {
        let declared = declared_or(label, bytes);
        let named =
            Dimensions { label: name, flags: KEY_OUTSIDE, scope: scope_here(lane), ..here(lane) };
        let named = if lane.is_by_size() { named.sized(declared) } else { named };
        outside(lane, list, address, bytes, declared, named, What::Other, by)
    };
    if number == 0 {
        p.lost(Loss::NoRegion);
        return false;
    }
    labelling.describe(list, number);
    true
}

/// Attaches a label to the block that contains an address, and begins at most `within` bytes before
/// it. Returns false if there is none. Where few blocks are known, only one that begins at the
/// address is found.
pub fn label_around(lane: &mut LaneState, address: u64, within: u64, name: &[u8]) -> bool {
    let text = Label { name, element_bytes: 0, dimensions: &[] };
    let p = store();
    let block = if site_of_block(p, address).is_none() && !lane.is_sampled() {
        match p.shadow.last_before(address, address.saturating_sub(within)) {
            Some((start, _)) if address - start < front::usable(start as *mut u8) => start,
            _ => return false,
        }
    } else {
        address
    };
    label(lane, block, &text, 0)
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

/// Makes an allocator's block a region, and moves it to the site of these dimensions.
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
    by: Option<&Labelling>,
) -> u32 {
    let site = sites::of_key(&mut lane.place, to);
    if site.is_none() {
        return 0;
    }
    let number = list.add(Region { origin: from, ..region(what, address, usable, site) });
    if number != 0 {
        rename(lane, from, site, declared, usable);
        set_site_of_block(store(), address, site);
        if let Some(by) = by {
            by.trace(lane);
        }
        trace::write_record(
            lane,
            &Record::Relabelled(trace_block(address, site, declared, usable)),
        );
    }
    number
}

/// Makes memory that is no allocator's block a region.
#[expect(clippy::too_many_arguments, reason = "each is one thing of the region")]
fn outside(
    lane: &mut LaneState,
    list: &mut List,
    address: u64,
    bytes: u64,
    declared: u64,
    of: Dimensions,
    what: What,
    by: Option<&Labelling>,
) -> u32 {
    let site = sites::of_key(&mut lane.place, of);
    if site.is_none() {
        return 0;
    }
    let parent = list.holding(address);
    let number = list.add(Region { parent, ..region(what, address, bytes, site) });
    if number != 0 {
        sites::add_alloc(site.record(), declared, bytes, lane.header.epoch.get(), false);
        regions().foreign.store(true, Relaxed);
        if let Some(by) = by {
            by.trace(lane);
        }
        trace::write_record(lane, &Record::Opened(trace_block(address, site, declared, bytes)));
    }
    number
}

/// Changes the label of a region. A chunk keeps the name of its pool.
fn relabel(
    lane: &mut LaneState,
    list: &mut List,
    number: u32,
    name: NameId,
    label: &Label<'_>,
    by: Option<&Labelling>,
) -> u32 {
    let Region { what, site, start, bytes, .. } = *list.at(number);
    if what == What::Chunk {
        return number;
    }
    let of = Dimensions::of_site(site);
    let known = if what == What::Block && of.size != 0 { of.size } else { bytes };
    let declared = declared_or(label, known);
    let named = Dimensions { label: name, ..of };
    let is_sized = what == What::Other && lane.is_by_size();
    let named = if is_sized { named.sized(declared) } else { named };
    let to = sites::of_key(&mut lane.place, named);
    if to.is_none() {
        return 0;
    }
    rename(lane, site, to, declared, bytes);
    list.at_mut(number).site = to;
    let now = trace_block(start, to, declared, bytes);
    if what == What::Block {
        set_site_of_block(store(), start, to);
        if let Some(by) = by {
            by.trace(lane);
        }
        trace::write_record(lane, &Record::Relabelled(now));
    } else {
        trace::write_record(lane, &Record::Closed { address: start, site: site.number() });
        if let Some(by) = by {
            by.trace(lane);
        }
        trace::write_record(lane, &Record::Opened(now));
    }
    number
}

/// Removes a label. Returns false if there is none.
pub fn unlabel(lane: &mut LaneState, address: u64) -> bool {
    let Some(mut held) = regions().acquire() else {
        return false;
    };
    let list = &mut *held;
    drop_stale(list, address, lane.index());
    let number = list.first(address);
    if number == 0 || list.at(number).label.is_none() {
        return false;
    }
    match list.at(number).what {
        What::Block => {
            restore(list.at(number), lane.index());
            list.remove(number);
        }
        What::Other => end(list, number, lane.index()),
        What::PoolBlock => {
            let pool = list.at(number).pool;
            let none = Label { name: b"", element_bytes: 0, dimensions: &[] };
            relabel(lane, list, number, pool, &none, None);
            forget_label(list.at_mut(number));
        }
        What::Chunk => forget_label(list.at_mut(number)),
    }
    true
}

fn forget_label(r: &mut Region) {
    (r.label, r.uid, r.array) = (NameId::NONE, 0, Array::new(0, &[]));
}

/// Adds memory to a pool.
pub fn pool_add(lane: &mut LaneState, pool: NameId, chunk: u64, bytes: u64) -> bool {
    let p = store();
    let held = if pool.is_none() || bytes == 0 { None } else { regions().acquire() };
    let Some(mut held) = held else {
        return false;
    };
    let list = &mut *held;
    drop_stale(list, chunk, lane.index());
    let known = list.first(chunk);
    if known != 0 && list.at(known).what == What::Block {
        // The label is removed, since a chunk has the name of its pool.
        restore(list.at(known), lane.index());
        list.remove(known);
    } else if known != 0 && list.at(known).what == What::Chunk {
        p.lost(Loss::NoRegion);
        return false;
    }
    let block = site_of_block(p, chunk);
    let number = if !block.is_none() {
        let usable = front::usable(chunk as *mut u8);
        let of = Dimensions::of_site(block);
        let to = Dimensions { label: pool, flags: of.flags | KEY_POOL_CHUNK, ..of };
        let requested = if of.size != 0 { of.size } else { usable };
        move_block(lane, list, chunk, block, to, requested, usable, What::Chunk, None)
    } else {
        let flags = KEY_POOL_CHUNK | KEY_OUTSIDE;
        let of = Dimensions { label: pool, flags, scope: scope_here(lane), ..here(lane) };
        outside(lane, list, chunk, bytes, bytes, of, What::Chunk, None)
    };
    if number == 0 {
        p.lost(Loss::NoRegion);
        return false;
    }
    list.at_mut(number).pool = pool;
    true
}

/// Removes a chunk from its pool, and ends the blocks in it.
pub fn pool_remove(lane: &LaneState, chunk: u64) -> bool {
    let Some(mut held) = regions().acquire() else {
        return false;
    };
    let list = &mut *held;
    let mut number = list.first(chunk);
    while number != 0 && list.at(number).what != What::Chunk {
        number = list.next(number);
    }
    if number == 0 {
        return false;
    }
    if list.at(number).origin.is_none() {
        end(list, number, lane.index());
    } else {
        end_inside(list, number, lane.index());
        restore(list.at(number), lane.index());
        list.remove(number);
    }
    true
}

/// Records that a pool allocated a block. `stack` is the node of the caller's stack.
pub fn pool_allocated(
    lane: &mut LaneState,
    pool: NameId,
    block: u64,
    requested: u64,
    usable: u64,
    stack: NodeId,
) -> bool {
    let p = store();
    let held = if pool.is_none() || block == 0 { None } else { regions().acquire() };
    let Some(mut list) = held else {
        return false;
    };
    let usable = usable.max(requested).max(1);
    let site = place_pool_block(lane, &mut list, pool, block, requested, usable, stack);
    if site.is_none() {
        p.lost(Loss::NoRegion);
        return false;
    }
    trace::write_record(lane, &Record::Opened(trace_block(block, site, requested, usable)));
    true
}

/// Adds the region of a new block, and returns its site.
fn place_pool_block(
    lane: &mut LaneState,
    list: &mut List,
    pool: NameId,
    block: u64,
    requested: u64,
    usable: u64,
    stack: NodeId,
) -> SiteId {
    let first = list.first(block);
    if first != 0 && list.at(first).what == What::PoolBlock {
        // Its end was not reported.
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
    sites::add_alloc(site.record(), requested, usable, lane.header.epoch.get(), false);
    if parent != 0 {
        lend(list.at(parent).site, usable as i64);
    }
    site
}

/// Records that a pool freed a block.
pub fn pool_freed(lane: &LaneState, block: u64) -> bool {
    let Some(mut held) = regions().acquire() else {
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
    let number = list.first(block);
    let is = number != 0 && list.at(number).what == What::PoolBlock;
    if is { number } else { 0 }
}

/// Records that a pool resized or moved a block.
pub fn pool_reallocated(
    lane: &mut LaneState,
    old: u64,
    block: u64,
    requested: u64,
    usable: u64,
    stack: NodeId,
) -> bool {
    let Some(mut held) = regions().acquire() else {
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
    let site = place_pool_block(lane, list, pool, block, requested, usable, stack);
    if !site.is_none() {
        site.record().reallocations.add(1);
        let block = trace_block(block, site, requested, usable);
        trace::write_record(
            lane,
            &Record::Opened(heaptide_trace::Block { reallocated: true, ..block }),
        );
    }
    !site.is_none()
}

/// Returns whether a region contains an address.
pub fn is_named(address: u64) -> bool {
    regions().acquire().is_some_and(|list| list.holding(address) != 0)
}

/// Returns the region or block that contains an address; none if none is known.
pub fn resolve(address: u64) -> Option<Block> {
    let p = store();
    let list = regions().acquire()?;
    let number = list.holding(address);
    if number != 0 {
        let r = list.at(number);
        if !r.is_heap() || site_of_block(p, r.start) == r.site {
            return Some(told(r, address));
        }
    }
    let least = address.saturating_sub(stats::longest_block());
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
        element_bytes: r.array.element_bytes,
        index: 0,
        dimension_count: r.array.dimension_count as usize,
        dimensions: r.array.dimensions,
        kind: r.what as u32,
        reserved: 0,
    };
    let name = if r.label.is_none() { r.pool } else { r.label };
    if !name.is_none() {
        let text = names::text_of(name.record());
        (block.label, block.label_length) = (text.as_ptr(), text.len());
    }
    if let Some(index) = (address - r.start).checked_div(r.array.element_bytes) {
        block.index = index;
    }
    block
}
