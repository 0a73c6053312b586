//! The changes of site counters by labels and pools: blocks are added and removed without being
//! allocated or freed.

use crate::event::lane::LaneState;
use crate::event::process::process;
use crate::store::ids::SiteId;
use crate::store::sites;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::Word;

/// Returns the number of the current peak.
fn epoch() -> u32 {
    process().header().epoch.get()
}

/// Removes a block's bytes from a site without a free. `me` is the calling thread's lane.
pub fn move_out(site: SiteId, bytes: u64, me: u32) {
    if site.owner() == me {
        sites::freed(site.record(), bytes, epoch(), false, false);
    } else {
        sites::freed_remotely(site.record(), 1, bytes, epoch());
    }
}

/// Reverts a [`move_out`].
pub fn take_back(site: SiteId, bytes: u64) {
    sites::freed_remotely(site.record(), 1u64.wrapping_neg(), bytes.wrapping_neg(), epoch());
}

/// Adds a block to a site of this lane, since it got a name.
pub fn move_in(lane: &LaneState, site: SiteId, declared: u64, usable: u64) {
    sites::allocated(site.record(), declared, usable, lane.header.epoch.get(), false);
    if let Some(key) = site.key() {
        key.moved_blocks.add(1);
        key.moved_bytes.add(usable);
        key.moved_requested_bytes.add(declared);
    }
}

/// Moves bytes from a chunk's site to a block in it, or back if negative.
pub fn lend(site: SiteId, bytes: i64) {
    if let Some(key) = site.key() {
        key.lent_bytes.fetch_add(bytes as u64, Relaxed);
    }
    sites::freed_remotely(site.record(), 0, bytes as u64, epoch());
}
