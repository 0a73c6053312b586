//! The counters of sites of sampled blocks. Events of sampled blocks are rare, so all threads
//! change one set of counters, atomically; a site with a half for other threads would have no room
//! for the number of sampled blocks.

use crate::store::sample_weight::Weight;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use heaptide_format::shared::{SampledSite, Word};

/// The thread that freed a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// One of the site's lane.
    Own,
    /// The same, with no allocation since that of the block.
    OwnAtOnce,
    /// One of another lane.
    Other,
}

/// Counts a sampled block. `rose`: it made a new peak, and is part of that peak.
pub fn add_alloc(site: &SampledSite, weight: Weight, requested: u64, epoch: u32, rose: bool) {
    if !rose {
        keep(site, epoch);
    }
    add(&site.sampled, 1);
    add(&site.blocks, weight.blocks);
    add(&site.requested_bytes, weight.requested(requested));
    add(&site.usable_bytes, weight.bytes);
    site.largest_bytes.fetch_max(requested, Relaxed);
}

/// Counts that a reallocation returned a block that was counted.
pub fn add_realloc(site: &SampledSite, weight: Weight) {
    add(&site.reallocations, weight.blocks);
}

/// Counts the free of a sampled block.
pub fn add_free(site: &SampledSite, weight: Weight, by: By, epoch: u32, rose: bool) {
    if !rose {
        keep(site, epoch);
    }
    add(&site.sampled_freed, 1);
    add(&site.freed_blocks, weight.blocks);
    add(&site.freed_bytes, weight.bytes);
    match by {
        By::Own => {}
        By::OwnAtOnce => add(&site.temporary, weight.blocks),
        By::Other => add(&site.remote_frees, weight.blocks),
    }
}

/// Reverts the free of a sampled block by another lane.
pub fn take_back(site: &SampledSite, weight: Weight, epoch: u32) {
    keep(site, epoch);
    add(&site.sampled_freed, 1u64.wrapping_neg());
    add(&site.freed_blocks, weight.blocks.wrapping_neg());
    add(&site.freed_bytes, weight.bytes.wrapping_neg());
    add(&site.remote_frees, weight.blocks.wrapping_neg());
}

fn add(word: &AtomicU64, n: u64) {
    word.fetch_add(n, Relaxed);
}

/// Keeps what is live if the site has not changed since the peak.
fn keep(site: &SampledSite, epoch: u32) {
    let seen = site.epoch.get();
    if seen == epoch || site.epoch.compare_exchange(seen, epoch, AcqRel, Relaxed).is_err() {
        return;
    }
    let live = |all: &AtomicU64, freed: &AtomicU64| all.get().wrapping_sub(freed.get());
    site.sampled_at_peak.set(live(&site.sampled, &site.sampled_freed));
    site.peak_blocks.set(live(&site.blocks, &site.freed_blocks));
    site.peak_bytes.set(live(&site.usable_bytes, &site.freed_bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    fn site() -> Box<SampledSite> {
        // SAFETY: all zeros is a valid value.
        unsafe { Box::<SampledSite>::new_zeroed().assume_init() }
    }

    fn at_peak(site: &SampledSite) -> [u64; 3] {
        [&site.sampled_at_peak, &site.peak_blocks, &site.peak_bytes].map(|word| word.get())
    }

    #[test]
    fn frees_subtract_what_allocations_added() {
        let site = site();
        let sizes = [24, 1000, 40_000, 3 << 20];
        let weights = sizes.map(|size| Weight::of(size, 64 << 10));
        for weight in weights {
            add_alloc(&site, weight, 20, 1, true);
        }
        for (weight, by) in weights.into_iter().zip([By::Own, By::OwnAtOnce, By::Other, By::Own]) {
            add_free(&site, weight, by, 1, true);
        }
        assert_eq!((site.sampled.get(), site.sampled_freed.get()), (4, 4));
        assert_eq!(site.blocks.get(), site.freed_blocks.get());
        assert_eq!(site.usable_bytes.get(), site.freed_bytes.get());
        assert_eq!(site.temporary.get(), weights[1].blocks);
        assert_eq!(site.remote_frees.get(), weights[2].blocks);
        take_back(&site, weights[2], 1);
        assert_eq!((site.sampled_freed.get(), site.remote_frees.get()), (3, 0));
    }

    #[test]
    fn the_first_change_after_a_peak_keeps_what_was_live_then() {
        let site = site();
        let weight = Weight::of(100, 1000);
        add_alloc(&site, weight, 90, 1, true);
        add_alloc(&site, weight, 90, 1, true);
        add_free(&site, weight, By::Other, 2, false);
        let two = [2, 2 * weight.blocks, 2 * weight.bytes];
        assert_eq!((at_peak(&site), site.epoch.get()), (two, 2));
        add_free(&site, weight, By::Own, 2, false);
        assert_eq!(at_peak(&site), two, "once a peak");
        add_alloc(&site, weight, 90, 3, false);
        assert_eq!(at_peak(&site), [0; 3], "nothing was live at the third");
    }
}
