//! The usual event, without a call: nothing new, no new peak, no sample due, nobody watching.
//!
//! Each function first looks whether all of that is so, and changes nothing if it is not: then the
//! general way of [`crate::record`] is taken. Because nothing is called, few registers are needed
//! and none are saved; that is half of what counting costs.

use crate::lane::LaneState;
use crate::process::process;
use crate::record::MAYBE_UNMAPPED;
use crate::sites;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use heaptide_format::{Mode, Scope, size_class};

/// Counts an allocation; false if it is not usual, or needs a stack.
#[inline(always)]
pub fn allocated(lane: &mut LaneState, block: *mut u8, requested: u64, usable: u64) -> bool {
    let p = process();
    // SAFETY: the lane's own records; the header and sites stay mapped.
    unsafe {
        let record = &mut *lane.record;
        let sum = record.usable_bytes + usable;
        let own = lane.live.own() + usable as i64;
        if lane.is_attended() || sum >= lane.next_sample || own > lane.live.high() {
            return false;
        }
        if lane.mode == Mode::Scopes as u32 {
            let site = (*lane.scope).site;
            let Some(word) = p.shadow.word(block, Acquire) else {
                return false;
            };
            let s = &mut *sites::at(site);
            if site == 0 || s.epoch != (*lane.header).epoch || requested > s.largest_bytes {
                return false;
            }
            word.store(site, Relaxed);
            s.allocations += 1;
            s.requested_bytes += requested;
            s.usable_bytes += usable;
        } else if lane.mode == Mode::Stacks as u32 || requested > record.largest_bytes {
            return false;
        }
        lane.live.set_own(own);
        lane.last_block = block;
        record.usable_bytes = sum;
        record.requested_bytes += requested;
        record.requested_classes[size_class(requested)] += 1;
        record.usable_classes[size_class(usable)] += 1;
    }
    true
}

/// Counts a free; false if it is not usual.
#[inline(always)]
pub fn freed(lane: &mut LaneState, block: *mut u8, usable: u64) -> bool {
    let p = process();
    // SAFETY: as above.
    unsafe {
        let own = lane.live.own() - usable as i64;
        if lane.is_attended() || !lane.live.may_fall_to(own) || usable >= MAYBE_UNMAPPED {
            return false;
        }
        let temporary = lane.last_block == block;
        let record = &mut *lane.record;
        if lane.mode == Mode::Counters as u32 {
            record.temporary += temporary as u64;
            record.freed_here_bytes += usable;
        } else {
            let Some(word) = p.shadow.word(block, Acquire) else {
                return false;
            };
            let site = word.load(Relaxed);
            let s = &mut *sites::at(site);
            let scope: &mut Scope = &mut *lane.scope;
            if site != scope.site && !is_mine_and_plain(lane.index, site) {
                return false;
            }
            if s.epoch != (*lane.header).epoch || site == 0 {
                return false;
            }
            word.store(0, Relaxed);
            s.frees += 1;
            s.freed_bytes += usable;
            s.temporary += temporary as u64;
            scope.frees_here += 1;
            scope.freed_here_bytes += usable;
        }
        if temporary {
            lane.last_block = core::ptr::null_mut();
        }
        lane.live.set_own(own);
        record.freed_classes[size_class(usable)] += 1;
    }
    true
}

/// Whether a site is the lane's, and not one of labelled blocks. The site of a scope always is.
#[inline(always)]
fn is_mine_and_plain(lane: u32, site: u32) -> bool {
    site != 0 && sites::owner(site) == lane && !sites::is_labelled(site)
}
