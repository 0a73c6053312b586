//! The changes of site counters by labels and pools: blocks are added and removed without being
//! allocated or freed.

use crate::event::lane::LaneState;
use crate::event::sampling;
use crate::store::ids::SiteId;
use crate::store::sampled_sites::{self, By};
use crate::store::shared::store;
use crate::store::sites;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::Word;

/// Returns the number of the current peak.
fn epoch() -> u32 {
    store().header().epoch.get()
}

/// Returns whether sites count only sampled blocks.
fn is_sampled() -> bool {
    store().header().sample_mean_bytes.get() != 0
}

/// Moves a block to a site of this lane, since it got a name. If as many bytes are live as at the
/// peak, it has the name at the peak: a block gets its name after its allocation, which may have
/// made the peak.
pub fn rename(lane: &mut LaneState, from: SiteId, to: SiteId, declared: u64, usable: u64) {
    let me = lane.index();
    let can_be_at_peak = is_sampled() || from.owner() == me;
    let at_peak = can_be_at_peak && lane.peak_again();
    remove(from, usable, me, at_peak);
    add(to, declared, usable, at_peak);
}

/// Removes a block's bytes from a site without a free. `me` is the calling thread's lane.
pub fn move_out(site: SiteId, bytes: u64, me: u32) {
    remove(site, bytes, me, false);
}

/// `at_peak`: the removal is part of the peak. Sites of other lanes cannot have that.
fn remove(site: SiteId, bytes: u64, me: u32, at_peak: bool) {
    if is_sampled() {
        let by = if site.owner() == me { By::Own } else { By::Other };
        sampling::charge(site, bytes, by, at_peak);
    } else if site.owner() == me {
        sites::add_free(site.record(), bytes, epoch(), false, at_peak);
    } else {
        sites::add_remote_free(site.record(), 1, bytes, epoch());
    }
}

/// Reverts a [`move_out`].
pub fn take_back(site: SiteId, bytes: u64) {
    if is_sampled() {
        let weight = sampling::weight(bytes);
        return sampled_sites::take_back(site.sampled_record(), weight, epoch());
    }
    sites::add_remote_free(site.record(), 1u64.wrapping_neg(), bytes.wrapping_neg(), epoch());
}

/// Adds a block to a site of the thread's lane. `at_peak`: it is part of the peak.
fn add(site: SiteId, declared: u64, usable: u64, at_peak: bool) {
    if is_sampled() {
        return add_sampled(site, declared, usable, at_peak);
    }
    sites::add_alloc(site.record(), declared, usable, epoch(), at_peak);
    if let Some(key) = site.key() {
        key.moved_blocks.add(1);
        key.moved_bytes.add(usable);
        key.moved_requested_bytes.add(declared);
    }
}

fn add_sampled(site: SiteId, declared: u64, usable: u64, at_peak: bool) {
    let weight = sampling::weight(usable);
    sampled_sites::add_alloc(site.sampled_record(), weight, declared, epoch(), at_peak);
    if let Some(key) = site.key() {
        key.moved_blocks.add(weight.blocks);
        key.moved_bytes.add(weight.bytes);
        key.moved_requested_bytes.add(weight.requested(declared));
        key.lent_bytes.fetch_add(1, Relaxed); // the number of sampled blocks
    }
}

/// Moves bytes from a chunk's site to a block in it, or back if negative.
pub fn lend(site: SiteId, bytes: i64) {
    if let Some(key) = site.key() {
        key.lent_bytes.fetch_add(bytes as u64, Relaxed);
    }
    sites::add_remote_free(site.record(), 0, bytes as u64, epoch());
}
