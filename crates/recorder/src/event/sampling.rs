//! Selection of the blocks that are sampled.
//!
//! The usable bytes that the threads of a lane allocate form a line. Random points lie on it, a
//! Poisson process: the gap between two points is exponential and independent of all others. A
//! block is sampled if it contains a point, so a block of `n` bytes is sampled with the probability
//! 1 − exp(−n ÷ mean), regardless of thread and order. The only state is the next point. So the
//! comparison that allocations make anyway ([`crate::event::peak::Live`]) shows most of them that
//! they contain no point.

use crate::event::lane::LaneState;
use crate::event::sampler::{Sampler, mix};
use crate::store::ids::SiteId;
use crate::store::sample_weight::Weight;
use crate::store::sampled_blocks::{may_hold, sampled_blocks};
use crate::store::sampled_sites::{self, By};
use crate::store::shared::store;
use crate::sys::clock;
use crate::sys::options::Options;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::Word;
use heaptide_format::{Loss, Mode};

/// Starts sampling for a thread that takes the lane, if the process is sampled.
pub fn begin(lane: &mut LaneState) {
    if lane.mode != Mode::Sampled as u32 {
        return;
    }
    if lane.sampler.mean == 0 {
        lane.sampler = Sampler {
            filter: sampled_blocks().filter(),
            mean: lane.header.sample_mean_bytes.get().max(1),
            random: mix(seed() ^ mix(u64::from(lane.index()) + 1)),
        };
    }
    choose_next(lane);
}

/// Returns the seed of the random numbers of this process.
fn seed() -> u64 {
    let p = store();
    let of_start = || {
        let start = p.start_ns.load(Relaxed) ^ p.header().start_realtime_ns.get();
        mix(start ^ clock::counter()) ^ u64::from(p.pid.load(Relaxed))
    };
    Options::known().and_then(|options| options.sample_seed).unwrap_or_else(of_start)
}

/// Chooses the next point, in one of the following blocks.
fn choose_next(lane: &mut LaneState) {
    let gap = lane.sampler.gap();
    let allocated = lane.allocated();
    lane.live.sample_block_at(allocated.saturating_add(gap), allocated);
}

/// Returns whether the block that was counted last contains a point, and if so chooses the next
/// point.
#[inline]
pub fn is_sampled(lane: &mut LaneState) -> bool {
    let is_sampled = lane.live.is_block_sampled(lane.allocated());
    if is_sampled {
        choose_next(lane);
    }
    is_sampled
}

/// Returns whether a block may be sampled; false for nearly all that are not. The lane must be
/// sampling.
#[inline(always)]
pub fn may_be_sampled(lane: &LaneState, block: *const u8) -> bool {
    // SAFETY: the lane is sampling, so the process has a filter.
    unsafe { may_hold(lane.sampler.filter, block as u64) }
}

/// Returns whether a block is sampled. The lane must be sampling.
#[inline(always)]
pub fn is_sampled_block(lane: &LaneState, block: *const u8) -> bool {
    may_be_sampled(lane, block) && sampled_blocks().holds(block)
}

/// Returns what a sampled block of this size represents.
pub fn weight(usable: u64) -> Weight {
    Weight::of(usable, store().header().sample_mean_bytes.get())
}

/// Stores a sampled block, and counts it at its site. `rose`: it made a new peak.
pub fn note(
    lane: &LaneState,
    block: *mut u8,
    site: SiteId,
    (requested, usable): (u64, u64),
    rose: bool,
) {
    if !sampled_blocks().put(block, site.number()) {
        return store().lost(Loss::NoShadow);
    }
    let epoch = lane.header.epoch.get();
    sampled_sites::add_alloc(site.sampled_record(), weight(usable), requested, epoch, rose);
}

/// Counts that a reallocation returned a sampled block.
pub fn note_reallocated(site: SiteId, usable: u64) {
    sampled_sites::add_realloc(site.sampled_record(), weight(usable));
}

/// Charges the free of a sampled block to its site. `rose`: the change that the free is part of
/// made a new peak.
pub fn charge(site: SiteId, usable: u64, by: By, rose: bool) {
    let epoch = store().header().epoch.get();
    sampled_sites::add_free(site.sampled_record(), weight(usable), by, epoch, rose);
}

/// Stores a block again after it was taken.
pub fn put_back(block: *mut u8, site: SiteId) {
    if !site.is_none() && !sampled_blocks().put(block, site.number()) {
        store().lost(Loss::NoShadow);
    }
}

/// Removes a block that is about to be freed, and returns its site; none if it is not sampled, or
/// if nothing is.
#[inline(always)]
pub fn take(lane: &LaneState, block: *const u8) -> SiteId {
    let is_sampled = lane.mode == Mode::Sampled as u32 && may_be_sampled(lane, block);
    SiteId::new(if is_sampled { sampled_blocks().take(block) } else { 0 })
}
