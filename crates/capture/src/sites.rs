//! Sites: the counters of one (stack, lane). The lane's thread writes its half with plain stores;
//! whoever else frees a block adds to the other half atomically. Both halves keep what they were at
//! the peak.

use crate::lane::LaneState;
use crate::process::process;
use crate::sys;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use heaptide_format::{Kind, NODE_GRANULE, Node, PAGE, SITE_GRANULE, Site};

/// The record of a site.
#[inline(always)]
pub fn at(site: u32) -> *mut Site {
    let base = process().base.load(Relaxed);
    base.wrapping_add(site as usize * SITE_GRANULE as usize) as *mut Site
}

/// The index of the lane that a site belongs to.
#[inline(always)]
pub fn owner(site: u32) -> u32 {
    const PER_PAGE: u32 = (PAGE / SITE_GRANULE) as u32;
    // SAFETY: `owners` covers every page of the reserved profile; the site is in it.
    unsafe { *process().owners.load(Relaxed).add((site / PER_PAGE) as usize) as u32 }
}

/// A new site of this lane; 0 if there is no room.
pub fn create(lane: &mut LaneState, stack: u32) -> u32 {
    let record = lane.site_records.take(Kind::Sites, lane.index, size_of::<Site>());
    if record.is_null() {
        return 0;
    }
    // SAFETY: fresh zeroed room for a site.
    unsafe { (*(record as *mut Site)).key = stack };
    lane.site_records.commit(size_of::<Site>());
    let base = process().base.load(Relaxed);
    ((record as u64 - base as u64) / SITE_GRANULE) as u32
}

/// The lane's site for a stack; 0 if it cannot be made. The node remembers its first site, and
/// nearly always that is the one; a lane keeps an index of the others.
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
    if node == 0 {
        return lane.base_site;
    }
    let first = first_site(node).load(Relaxed);
    if first != 0 && owner(first) == lane.index {
        return first;
    }
    find_or_create(lane, node, first)
}

fn first_site(node: u32) -> &'static AtomicU32 {
    let base = process().base.load(Relaxed);
    let record = base.wrapping_add(node as usize * NODE_GRANULE as usize) as *mut Node;
    // SAFETY: nodes stay mapped; the field is only used atomically.
    unsafe { AtomicU32::from_ptr(&raw mut (*record).site) }
}

#[inline(never)]
fn find_or_create(lane: &mut LaneState, node: u32, first: u32) -> u32 {
    if first != 0 {
        let known = lane.index_of_sites.get(node);
        if known != 0 {
            return known;
        }
    }
    let site = create(lane, node);
    if site == 0 {
        return 0;
    }
    let linked = first == 0 && first_site(node).compare_exchange(0, site, AcqRel, Relaxed).is_ok();
    if !linked && !lane.index_of_sites.insert(node, site) {
        // Without a place in the index the site would be made again and again.
        return lane.base_site;
    }
    site
}

/// Node → site for the nodes whose first site is another lane's: open addressing, at most half
/// full.
#[repr(C)]
pub struct Index {
    entries: *mut [u32; 2],
    capacity: usize,
    used: usize,
}

impl Index {
    const LEAST: usize = 512;

    fn slot(&self, node: u32) -> *mut [u32; 2] {
        let mut i = (node as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 32;
        loop {
            // SAFETY: masked to the capacity; an entry is free before the table is full.
            let entry = unsafe { self.entries.add(i & (self.capacity - 1)) };
            // SAFETY: as above.
            let key = unsafe { (*entry)[0] };
            if key == node || key == 0 {
                return entry;
            }
            i += 1;
        }
    }

    fn get(&self, node: u32) -> u32 {
        if self.capacity == 0 {
            return 0;
        }
        // SAFETY: `slot` gives an entry of the table.
        unsafe { (*self.slot(node))[1] }
    }

    /// False if there is no memory.
    fn insert(&mut self, node: u32, site: u32) -> bool {
        if self.used * 2 >= self.capacity && !self.enlarge() {
            return false;
        }
        // SAFETY: `slot` gives an entry of the table.
        unsafe { *self.slot(node) = [node, site] };
        self.used += 1;
        true
    }

    fn enlarge(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(Index::LEAST);
        let memory = sys::map_private(capacity * 8);
        if memory.is_null() || !process().may_map() {
            return false;
        }
        let old = Index { entries: self.entries, capacity: self.capacity, used: 0 };
        self.entries = memory as *mut [u32; 2];
        self.capacity = capacity;
        for i in 0..old.capacity {
            // SAFETY: within the old table.
            let [node, site] = unsafe { *old.entries.add(i) };
            if node != 0 {
                // SAFETY: `slot` gives an entry of the new table.
                unsafe { *self.slot(node) = [node, site] };
            }
        }
        if old.capacity > 0 {
            // SAFETY: the lane's thread alone uses its index.
            unsafe { sys::unmap(old.entries as *mut u8, old.capacity * 8) };
        }
        true
    }
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

/// Counts a free by somebody else.
#[inline(never)]
pub fn freed_remotely(site: u32, usable: u64, epoch: u32) {
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
        frees.fetch_add(1, Relaxed);
        bytes.fetch_add(usable, Relaxed);
    }
}
