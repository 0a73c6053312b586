//! Sites: the counters of one combination of stack, scope path, label and lane. The lane's thread
//! writes its half; other threads that free a block add to the other half. Both halves keep the
//! values that they had at the peak.

use crate::store::ids::{KeyId, NameId, NodeId, ScopeId, SiteId};
use crate::store::place::Place;
use crate::store::shared::{LABELLED, Store, store};
use crate::sys::memory::{self, InChild};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};
use heaptide_format::shared::{Key, Site, Word};
use heaptide_format::{Call, KEY_BIT, KEY_CALL, KEY_LABELLED, KEY_SIZED, Kind, PAGE, SITE_GRANULE};

/// A node that never exists: [`Place::last_node`] after the scope has changed.
pub const NO_NODE: NodeId = NodeId::new(u32::MAX);

/// Creates the table of the lanes that own the profile's pages. Returns none without memory.
pub fn create_owners(p: &Store) -> Option<()> {
    let pages = (p.reserved.load(Relaxed) / PAGE) as usize;
    let owners = memory::take(pages * size_of::<AtomicU32>(), InChild::Nothing);
    p.owners.store(owners as *mut AtomicU32, Relaxed);
    (!owners.is_null()).then_some(())
}

impl SiteId {
    /// Returns the index of the lane that the site belongs to.
    #[inline(always)]
    pub fn owner(self) -> u32 {
        self.owner_word() & !LABELLED
    }

    /// Returns the owner, with [`LABELLED`] if blocks of the site have a label or belong to a pool.
    #[inline(always)]
    pub fn owner_word(self) -> u32 {
        const PER_PAGE: u32 = (PAGE / SITE_GRANULE) as u32;
        store().owner_of_page((self.number() / PER_PAGE) as u64).get()
    }

    /// Returns whether the blocks of the site have a label or belong to a pool.
    #[inline(always)]
    pub fn is_labelled(self) -> bool {
        self.owner_word() & LABELLED != 0
    }

    /// Returns the key of the site, if it has one.
    pub fn key(self) -> Option<&'static Key> {
        key_of(self.record())
    }
}

/// Returns the key of a site's record, if it has one.
pub fn key_of(site: &Site) -> Option<&'static Key> {
    let key = site.key.get();
    (key & KEY_BIT != 0).then(|| KeyId::new(key & !(KEY_BIT | KEY_LABELLED)).record())
}

/// Creates a site of this lane; none if there is no room. `key` is a value for [`Site::key`].
#[cold]
#[inline(never)]
pub fn create(place: &mut Place, key: u32) -> SiteId {
    let labelled = key >> 30 == (KEY_BIT | KEY_LABELLED) >> 30;
    let (records, owner) = if labelled {
        (&mut place.labelled_records, place.lane | LABELLED)
    } else {
        (&mut place.site_records, place.lane)
    };
    let is_sampled = store().header().sample_mean_bytes.get() != 0;
    let kind = if is_sampled { Kind::SampledSites } else { Kind::Sites };
    let Some(site) = records.record::<Site>(kind, owner) else {
        return SiteId::NONE;
    };
    site.key.set(key);
    records.commit_record(site);
    SiteId::of(site)
}

/// Returns the lane's site for a stack in the current scope; none if it cannot be created. A node
/// stores its first site, which nearly always is this one; a lane has an index of the others.
#[inline(always)]
pub fn of_node(place: &mut Place, node: NodeId) -> SiteId {
    if node == place.last_node {
        return place.last_site;
    }
    let site = find(place, node);
    if !site.is_none() {
        place.last_node = node;
        place.last_site = site;
    }
    site
}

#[inline(always)]
fn find(place: &mut Place, node: NodeId) -> SiteId {
    let scope = ScopeId::of(place.scope);
    if scope != place.root_scope {
        return of_key(place, Dimensions { stack: node, scope, ..Dimensions::of(place) });
    }
    if node.is_none() {
        return place.base_site;
    }
    let first = SiteId::new(node.record().site.get());
    if !first.is_none() && first.owner() == place.lane {
        return first;
    }
    find_or_create(place, node, first)
}

/// Returns the lane's site for the current scope, without a stack; none if it cannot be created.
#[inline(always)]
pub fn of_scope(place: &mut Place) -> SiteId {
    if place.here.is_none() { first_of_scope(place) } else { place.here }
}

#[cold]
#[inline(never)]
fn first_of_scope(place: &mut Place) -> SiteId {
    let record = place.scope;
    let scope = ScopeId::of(record);
    let site = if scope == place.root_scope {
        place.base_site
    } else {
        of_key(place, Dimensions { scope, ..Dimensions::of(place) })
    };
    record.site.set(site.number());
    is_here(place, site);
    site
}

/// Sets the site of the scope that the thread is in.
#[inline(always)]
pub fn is_here(place: &mut Place, site: SiteId) {
    (place.here, place.here_record) = (site, site.record());
}

/// The dimensions that distinguish a site, apart from its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Dimensions {
    pub stack: NodeId,
    pub scope: ScopeId,
    pub label: NameId,
    pub flags: u32,
    pub lane: u32,
    pub size: u64,
}

impl Dimensions {
    /// Returns those of the lane alone.
    pub fn of(place: &Place) -> Dimensions {
        Dimensions::of_stack(NodeId::NONE, place.lane)
    }

    /// Returns those of the lane and the scope that its thread is in.
    pub fn here(place: &Place) -> Dimensions {
        let scope = ScopeId::of(place.scope);
        let scope = if scope == place.root_scope { ScopeId::NONE } else { scope };
        Dimensions { scope, ..Dimensions::of(place) }
    }

    fn of_stack(stack: NodeId, lane: u32) -> Dimensions {
        Dimensions { stack, scope: ScopeId::NONE, label: NameId::NONE, flags: 0, lane, size: 0 }
    }

    /// Returns those of a site, whose scope may belong to another lane.
    pub fn of_site(site: SiteId) -> Dimensions {
        match site.key() {
            None => Dimensions::of_stack(NodeId::new(site.record().key.get()), site.owner()),
            Some(key) => Dimensions {
                stack: NodeId::new(key.stack.get()),
                scope: ScopeId::new(key.scope.get()),
                label: NameId::new(key.label.get()),
                flags: key.flags.get(),
                lane: key.lane.get(),
                size: key.size.get(),
            },
        }
    }

    /// Restricts them to blocks of a requested size.
    pub fn sized(self, requested: u64) -> Dimensions {
        Dimensions { flags: self.flags | KEY_SIZED, size: requested, ..self }
    }

    /// Restricts them to blocks allocated by `call`.
    pub fn called(self, call: Call) -> Dimensions {
        Dimensions { flags: self.flags & !KEY_CALL | call.flags(), ..self }
    }

    fn words(self) -> [u32; 7] {
        let [stack, scope] = [self.stack.number(), self.scope.number()];
        let size = [self.size as u32, (self.size >> 32) as u32];
        [stack, scope, self.label.number(), self.flags, self.lane, size[0], size[1]]
    }
}

/// Returns the lane's site for dimensions other than a stack alone; none if it cannot be created.
#[inline(never)]
pub fn of_key(place: &mut Place, of: Dimensions) -> SiteId {
    let known = place.index_of_sites.get(of.words());
    if known != 0 {
        return SiteId::new(known);
    }
    let Some(key) = place.keys.record::<Key>(Kind::Keys, place.lane) else {
        return SiteId::NONE;
    };
    key.stack.set(of.stack.number());
    key.scope.set(of.scope.number());
    key.label.set(of.label.number());
    key.flags.set(of.flags);
    key.lane.set(of.lane);
    key.size.set(of.size);
    let unlabelled = KEY_SIZED | KEY_CALL;
    let is_labelled = !of.label.is_none() || of.flags & !unlabelled != 0;
    let labelled = if is_labelled { KEY_LABELLED } else { 0 };
    place.keys.commit_record(key);
    let site = create(place, KeyId::of(key).number() | KEY_BIT | labelled);
    // Without an index entry the site would be created again for each event.
    if site.is_none() || !place.index_of_sites.insert(of.words(), site.number()) {
        return SiteId::NONE;
    }
    key.site.set(site.number());
    site
}

/// Returns the lane's site for a stack, outside of all scopes.
pub fn of_stack(place: &mut Place, node: NodeId) -> SiteId {
    find_or_create(place, node, SiteId::new(node.record().site.get()))
}

#[inline(never)]
fn find_or_create(place: &mut Place, node: NodeId, first: SiteId) -> SiteId {
    let words = Dimensions::of_stack(node, 0).words();
    if !first.is_none() {
        let known = place.index_of_sites.get(words);
        if known != 0 {
            return SiteId::new(known);
        }
    }
    let site = create(place, node.number());
    if site.is_none() {
        return SiteId::NONE;
    }
    let link = &node.record().site;
    let linked =
        first.is_none() && link.compare_exchange(0, site.number(), AcqRel, Relaxed).is_ok();
    if !linked && !place.index_of_sites.insert(words, site.number()) {
        // Without an index entry the site would be created again for each event.
        return place.unstored_site;
    }
    site
}

/// Reads a word that only the calling thread writes. Unlike an atomic load, it can be an operand of
/// a comparison.
#[inline(always)]
pub fn own_word(word: &AtomicU64) -> u64 {
    // SAFETY: no other thread writes it, so there is no race.
    unsafe { *word.as_ptr() }
}

/// Reads the epoch of the owner's half likewise.
#[inline(always)]
pub fn own_epoch(site: &Site) -> u32 {
    // SAFETY: no other thread writes it.
    unsafe { *site.epoch.as_ptr() }
}

/// Counts an allocation by the site's lane, on its thread. `rose`: it made a new peak, and is part
/// of that peak.
#[inline(always)]
pub fn add_alloc(site: &Site, requested: u64, usable: u64, epoch: u32, rose: bool) {
    if !rose && site.epoch.get() != epoch {
        keep(site, epoch);
    }
    // First, since it limits how much an event may have counted when the process is killed.
    if requested > own_word(&site.largest_bytes) {
        site.largest_bytes.set(requested);
    }
    site.allocations.add(1);
    site.requested_bytes.add(requested);
    site.usable_bytes.add(usable);
}

/// Keeps the owner's half at its value at the peak.
#[inline(always)]
fn keep(site: &Site, epoch: u32) {
    site.peak_blocks.set(site.allocations.get().wrapping_sub(site.frees.get()));
    site.peak_bytes.set(site.usable_bytes.get().wrapping_sub(site.freed_bytes.get()));
    site.epoch.set(epoch);
}

/// Counts a free by the site's lane, on its thread.
#[inline(always)]
pub fn add_free(site: &Site, usable: u64, epoch: u32, temporary: bool, rose: bool) {
    if !rose && site.epoch.get() != epoch {
        keep(site, epoch);
    }
    site.frees.add(1);
    site.freed_bytes.add(usable);
    site.temporary.add(temporary as u64);
}

/// Counts bytes of a site of mappings that were unmapped, and the mappings (0 or 1) that ended with
/// them. Both are negative when an unmapping that failed is reverted.
pub fn unmapped(site: &Site, gone: u64, bytes: u64, epoch: u32, rose: bool) {
    if !rose && site.epoch.get() != epoch {
        keep(site, epoch);
    }
    site.frees.add(gone);
    site.freed_bytes.add(bytes);
}

/// Counts frees by another thread. Both numbers are negative when a removal is reverted.
#[inline(never)]
pub fn add_remote_free(site: &Site, blocks: u64, usable: u64, epoch: u32) {
    let seen = site.remote_epoch.get();
    if seen != epoch && site.remote_epoch.compare_exchange(seen, epoch, AcqRel, Relaxed).is_ok() {
        site.remote_peak_frees.set(site.remote_frees.get());
        site.remote_peak_freed_bytes.set(site.remote_freed_bytes.get());
    }
    site.remote_frees.fetch_add(blocks, Relaxed);
    site.remote_freed_bytes.fetch_add(usable, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    fn site() -> Box<Site> {
        // SAFETY: all zeros is a valid value.
        unsafe { Box::<Site>::new_zeroed().assume_init() }
    }

    fn at_peak(site: &Site) -> (u64, u64) {
        (site.peak_blocks.get(), site.peak_bytes.get())
    }

    #[test]
    fn each_counter_has_its_part_of_an_event() {
        let site = site();
        add_alloc(&site, 100, 112, 1, true);
        add_alloc(&site, 40, 48, 1, true);
        add_free(&site, 112, 1, true, false);
        assert_eq!([site.allocations.get(), site.frees.get(), site.temporary.get()], [2, 1, 1]);
        assert_eq!([site.requested_bytes.get(), site.usable_bytes.get()], [140, 160]);
        assert_eq!([site.freed_bytes.get(), site.largest_bytes.get()], [112, 100]);
    }

    #[test]
    fn the_first_change_after_a_peak_keeps_what_was_live_then() {
        let site = site();
        add_alloc(&site, 10, 16, 0, true);
        add_alloc(&site, 10, 16, 0, true);
        // Another site made the peak of this epoch.
        add_free(&site, 16, 1, false, false);
        assert_eq!((at_peak(&site), site.epoch.get()), ((2, 32), 1));
        add_free(&site, 16, 1, false, false);
        assert_eq!(at_peak(&site), (2, 32), "once a peak");
        add_alloc(&site, 10, 16, 2, false);
        assert_eq!(at_peak(&site), (0, 0), "nothing was live at the second");
    }

    #[test]
    fn what_makes_a_peak_belongs_to_it() {
        let site = site();
        add_alloc(&site, 10, 16, 7, true);
        assert_eq!((at_peak(&site), site.epoch.get()), ((0, 0), 0));
        add_free(&site, 16, 7, false, false);
        assert_eq!(at_peak(&site), (1, 16));
    }

    #[test]
    fn other_threads_have_a_half_of_their_own() {
        let site = site();
        add_remote_free(&site, 1, 16, 3);
        add_remote_free(&site, 1, 16, 3);
        assert_eq!((site.remote_peak_frees.get(), site.remote_peak_freed_bytes.get()), (0, 0));
        add_remote_free(&site, 1, 16, 4);
        assert_eq!((site.remote_peak_frees.get(), site.remote_peak_freed_bytes.get()), (2, 32));
        add_remote_free(&site, 1u64.wrapping_neg(), 16u64.wrapping_neg(), 4);
        assert_eq!((site.remote_frees.get(), site.remote_freed_bytes.get()), (2, 32));
        assert_eq!((site.frees.get(), site.epoch.get()), (0, 0), "the owner's is as it was");
    }

    #[test]
    fn dimensions_that_differ_have_keys_that_differ() {
        let none = Dimensions::of_stack(NodeId::new(1), 2);
        let others = [
            Dimensions { stack: NodeId::new(2), ..none },
            Dimensions { scope: ScopeId::new(1), ..none },
            Dimensions { label: NameId::new(1), ..none },
            Dimensions { lane: 3, ..none },
            none.sized(0),
            none.sized(1 << 32),
            none.called(Call::Malloc),
            none.called(Call::New),
            none.called(Call::New).sized(0),
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(other.words(), none.words());
            assert!(others[..i].iter().all(|before| before.words() != other.words()));
        }
    }
}
