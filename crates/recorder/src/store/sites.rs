//! Sites: the counters of one (stack, scope path, label, lane). The lane's thread writes its half
//! with plain stores; whoever else frees a block adds to the other half atomically. Both halves
//! keep what they were at the peak.

use crate::event::lane::LaneState;
use crate::store::scopes;
use crate::store::shared::{Store, store};
use crate::sys::memory::{self, InChild};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use heaptide_format::{
    KEY_BIT, KEY_GRANULE, KEY_LABELLED, KEY_SIZED, Key, Kind, NODE_GRANULE, Node, PAGE,
    SITE_GRANULE, Site,
};

/// No node: what [`LaneState::last_node`] is when the scope has changed.
pub const NO_NODE: u32 = u32::MAX;

/// Makes the table of the lanes that own the profile's pages.
pub fn create_owners(p: &Store) -> Option<()> {
    let pages = (p.reserved.load(Relaxed) / PAGE) as usize;
    let owners = memory::take(pages * size_of::<u32>(), InChild::Nothing);
    p.owners.store(owners as *mut u32, Relaxed);
    (!owners.is_null()).then_some(())
}

/// The record of a site.
#[inline(always)]
pub fn at(site: u32) -> *mut Site {
    let base = store().base.load(Relaxed);
    base.wrapping_add(site as usize * SITE_GRANULE as usize) as *mut Site
}

/// The index of the lane that a site belongs to.
#[inline(always)]
pub fn owner(site: u32) -> u32 {
    owner_word(site) & !LABELLED
}

/// The same, with [`LABELLED`] where blocks of the site have a label or are a pool's: they lie on
/// pages of their own, so that nobody who frees need look at the lane's half of the record.
#[inline(always)]
pub fn owner_word(site: u32) -> u32 {
    const PER_PAGE: u32 = (PAGE / SITE_GRANULE) as u32;
    // SAFETY: `owners` covers every page of the reserved profile; the site is in it.
    unsafe { *store().owners.load(Relaxed).add((site / PER_PAGE) as usize) }
}

/// See [`owner_word`].
pub const LABELLED: u32 = 1 << 31;

/// A new site of this lane; 0 if there is no room.
pub fn create(lane: &mut LaneState, key: u32) -> u32 {
    let labelled = key >> 30 == (KEY_BIT | KEY_LABELLED) >> 30;
    let (records, owner) = if labelled {
        (&mut lane.labelled_records, lane.index | LABELLED)
    } else {
        (&mut lane.site_records, lane.index)
    };
    let record = records.take(Kind::Sites, owner, size_of::<Site>());
    if record.is_null() {
        return 0;
    }
    // SAFETY: fresh zeroed room for a site.
    unsafe { (*(record as *mut Site)).key = key };
    records.commit(size_of::<Site>());
    let base = store().base.load(Relaxed);
    ((record as u64 - base as u64) / SITE_GRANULE) as u32
}

/// The lane's site for a stack, where the thread is; 0 if it cannot be made. The node remembers its
/// first site, and nearly always that is the one; a lane keeps an index of the others.
#[inline(always)]
pub fn of_node(lane: &mut LaneState, node: u32) -> u32 {
    if node == lane.last_node {
        return lane.last_site;
    }
    let site = find(lane, node);
    if site != 0 {
        lane.last_node = node;
        lane.last_site = site;
    }
    site
}

#[inline(always)]
fn find(lane: &mut LaneState, node: u32) -> u32 {
    let scope = scopes::id(lane.scope);
    if scope != lane.root_scope {
        return of_key(lane, Dimensions { stack: node, scope, ..Dimensions::of(lane) });
    }
    if node == 0 {
        return lane.base_site;
    }
    let first = first_site(node).load(Relaxed);
    if first != 0 && owner(first) == lane.index {
        return first;
    }
    find_or_create(lane, node, first)
}

/// The lane's site for the scope that the thread is in, without a stack; 0 if it cannot be made.
#[inline(always)]
pub fn of_scope(lane: &mut LaneState) -> u32 {
    match lane.here {
        0 => first_of_scope(lane),
        site => site,
    }
}

#[cold]
#[inline(never)]
fn first_of_scope(lane: &mut LaneState) -> u32 {
    let record = lane.scope;
    let scope = scopes::id(record);
    let site = if scope == lane.root_scope {
        lane.base_site
    } else {
        of_key(lane, Dimensions { scope, ..Dimensions::of(lane) })
    };
    // SAFETY: the lane's own record.
    unsafe { (*record).site = site };
    is_here(lane, site);
    site
}

/// Notes the site of the scope that the thread is in.
#[inline(always)]
pub fn is_here(lane: &mut LaneState, site: u32) {
    (lane.here, lane.here_record) = (site, at(site));
}

/// What a site stands for, apart from its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Dimensions {
    pub stack: u32,
    pub scope: u32,
    pub label: u32,
    pub flags: u32,
    pub lane: u32,
    pub size: u64,
}

impl Dimensions {
    /// Those of the lane alone.
    pub fn of(lane: &LaneState) -> Dimensions {
        Dimensions { stack: 0, scope: 0, label: 0, flags: 0, lane: lane.index, size: 0 }
    }

    /// Those of a site, whose scope may be another lane's.
    pub fn of_site(site: u32) -> Dimensions {
        // SAFETY: sites and keys stay mapped, and these fields never change.
        unsafe {
            let key = (*at(site)).key;
            let lane = owner(site);
            if key & KEY_BIT == 0 {
                return Dimensions { stack: key, scope: 0, label: 0, flags: 0, lane, size: 0 };
            }
            let Key { stack, scope, label, flags, lane, size, .. } = *key_at(key);
            Dimensions { stack, scope, label, flags, lane, size }
        }
    }

    /// The same, of blocks of this size alone.
    pub fn sized(self, requested: u64) -> Dimensions {
        Dimensions { flags: self.flags | KEY_SIZED, size: requested, ..self }
    }

    fn words(self) -> [u32; 7] {
        let size = [self.size as u32, (self.size >> 32) as u32];
        [self.stack, self.scope, self.label, self.flags, self.lane, size[0], size[1]]
    }
}

/// Whether the blocks of a site have a label, or are a pool's.
#[inline(always)]
pub fn is_labelled(site: u32) -> bool {
    owner_word(site) & LABELLED != 0
}

/// The key of a site that has one.
pub fn key_of(site: u32) -> Option<*mut Key> {
    // SAFETY: sites stay mapped; the field never changes.
    let key = unsafe { (*at(site)).key };
    (key & KEY_BIT != 0).then(|| key_at(key))
}

/// The record that a site's `key` names.
pub fn key_at(key: u32) -> *mut Key {
    let base = store().base.load(Relaxed);
    let offset = (key & !(KEY_BIT | KEY_LABELLED)) as usize * KEY_GRANULE as usize;
    base.wrapping_add(offset) as *mut Key
}

/// The lane's site for these dimensions, which are more than a stack; 0 if it cannot be made.
#[inline(never)]
pub fn of_key(lane: &mut LaneState, of: Dimensions) -> u32 {
    let known = lane.index_of_sites.get(of.words());
    if known != 0 {
        return known;
    }
    let bytes = size_of::<Key>();
    let record = lane.keys.take(Kind::Keys, lane.index, bytes) as *mut Key;
    if record.is_null() {
        return 0;
    }
    // SAFETY: fresh zeroed room for a key.
    unsafe {
        ((*record).stack, (*record).scope, (*record).label) = (of.stack, of.scope, of.label);
        ((*record).flags, (*record).lane, (*record).size) = (of.flags, of.lane, of.size);
    }
    let base = store().base.load(Relaxed);
    let id = ((record as u64 - base as u64) / KEY_GRANULE) as u32;
    let is_labelled = of.label != 0 || of.flags & !KEY_SIZED != 0;
    let labelled = if is_labelled { KEY_LABELLED } else { 0 };
    lane.keys.commit(bytes);
    let site = create(lane, id | KEY_BIT | labelled);
    // Without a place in the index the site would be made again and again.
    if site == 0 || !lane.index_of_sites.insert(of.words(), site) {
        return 0;
    }
    // SAFETY: the record just made.
    unsafe { (*record).site = site };
    site
}

fn first_site(node: u32) -> &'static AtomicU32 {
    let base = store().base.load(Relaxed);
    let record = base.wrapping_add(node as usize * NODE_GRANULE as usize) as *mut Node;
    // SAFETY: nodes stay mapped; the field is only used atomically.
    unsafe { AtomicU32::from_ptr(&raw mut (*record).site) }
}

#[inline(never)]
fn find_or_create(lane: &mut LaneState, node: u32, first: u32) -> u32 {
    if first != 0 {
        let known = lane.index_of_sites.get([node, 0, 0, 0, 0, 0, 0]);
        if known != 0 {
            return known;
        }
    }
    let site = create(lane, node);
    if site == 0 {
        return 0;
    }
    let linked = first == 0 && first_site(node).compare_exchange(0, site, AcqRel, Relaxed).is_ok();
    if !linked && !lane.index_of_sites.insert([node, 0, 0, 0, 0, 0, 0], site) {
        // Without a place in the index the site would be made again and again.
        return lane.base_site;
    }
    site
}

/// Counts an allocation of the lane. `rose`: it made a new peak, and so belongs to it.
///
/// # Safety
/// `site` is a site of the calling thread's lane.
#[inline(always)]
pub unsafe fn allocated(site: u32, requested: u64, usable: u64, epoch: u32, rose: bool) {
    // SAFETY: the record is mapped, and this half of it is the caller's to write.
    unsafe {
        let s = &mut *at(site);
        if !rose && s.epoch != epoch {
            keep(s, epoch);
        }
        s.allocations += 1;
        s.requested_bytes += requested;
        s.usable_bytes += usable;
        if requested > s.largest_bytes {
            s.largest_bytes = requested;
        }
    }
}

/// Keeps the owner's half as it was at the peak.
#[inline(always)]
fn keep(s: &mut Site, epoch: u32) {
    s.peak_blocks = s.allocations.wrapping_sub(s.frees);
    s.peak_bytes = s.usable_bytes.wrapping_sub(s.freed_bytes);
    s.epoch = epoch;
}

/// Counts a free by the lane itself.
///
/// # Safety
/// `site` is a site of the calling thread's lane.
#[inline(always)]
pub unsafe fn freed(site: u32, usable: u64, epoch: u32, temporary: bool, rose: bool) {
    // SAFETY: the record is mapped, and this half of it is the caller's to write.
    unsafe {
        let s = &mut *at(site);
        if !rose && s.epoch != epoch {
            keep(s, epoch);
        }
        s.frees += 1;
        s.freed_bytes += usable;
        s.temporary += temporary as u64;
    }
}

/// Counts frees by somebody else. Both figures may be negative: what was taken comes back.
#[inline(never)]
pub fn freed_remotely(site: u32, blocks: u64, usable: u64, epoch: u32) {
    // SAFETY: sites stay mapped; these fields are only used atomically.
    unsafe {
        let s = at(site);
        let frees = AtomicU64::from_ptr(&raw mut (*s).remote_frees);
        let bytes = AtomicU64::from_ptr(&raw mut (*s).remote_freed_bytes);
        let kept = AtomicU32::from_ptr(&raw mut (*s).remote_epoch);
        let seen = kept.load(Relaxed);
        if seen != epoch && kept.compare_exchange(seen, epoch, AcqRel, Relaxed).is_ok() {
            let peak_frees = AtomicU64::from_ptr(&raw mut (*s).remote_peak_frees);
            let peak_bytes = AtomicU64::from_ptr(&raw mut (*s).remote_peak_freed_bytes);
            peak_frees.store(frees.load(Relaxed), Relaxed);
            peak_bytes.store(bytes.load(Relaxed), Relaxed);
        }
        frees.fetch_add(blocks, Relaxed);
        bytes.fetch_add(usable, Relaxed);
    }
}
