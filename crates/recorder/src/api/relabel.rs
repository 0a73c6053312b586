//! What labels and pools do to the counters of sites: blocks that come and go without being
//! allocated or freed.

use crate::event::lane::LaneState;
use crate::event::process::process;
use crate::store::sites;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A free without a ledger: the block's bytes leave the site.
pub fn leave(site: u32, blocks: bool, bytes: u64, me: u32) {
    let p = process();
    // SAFETY: the header is mapped while there are sites.
    let epoch = unsafe { (*p.header()).epoch };
    if blocks && sites::owner(site) == me {
        // SAFETY: the site is the calling thread's lane's.
        unsafe { sites::freed(site, bytes, epoch, false, false) };
    } else {
        sites::freed_remotely(site, blocks as u64, bytes, epoch);
    }
}

/// Takes a `leave` back.
pub fn come_back(site: u32, blocks: bool, bytes: u64) {
    // SAFETY: the header is mapped while there are sites.
    let epoch = unsafe { (*process().header()).epoch };
    sites::freed_remotely(site, (blocks as u64).wrapping_neg(), bytes.wrapping_neg(), epoch);
}

/// A block comes to a site of this lane by getting a name.
pub fn arrive(lane: &LaneState, site: u32, declared: u64, usable: u64) {
    // SAFETY: the lane's own site and key; the header is mapped.
    unsafe {
        sites::allocated(site, declared, usable, (*lane.header).epoch, false);
        if let Some(key) = sites::key_of(site) {
            (*key).moved_blocks += 1;
            (*key).moved_bytes += usable;
            (*key).moved_requested_bytes += declared;
        }
    }
}

/// Bytes go from a chunk's site to a block in it, or back.
pub fn lend(site: u32, bytes: i64) {
    if let Some(key) = sites::key_of(site) {
        // SAFETY: keys stay mapped; the field is only used atomically.
        let lent = unsafe { AtomicU64::from_ptr(&raw mut (*key).lent_bytes) };
        lent.fetch_add(bytes as u64, Relaxed);
    }
    // SAFETY: the header is mapped while there are sites.
    let epoch = unsafe { (*process().header()).epoch };
    sites::freed_remotely(site, 0, bytes as u64, epoch);
}
