//! The table of the sizes of live blocks of families and of Python's allocators: many programs
//! contain no function that returns them, because the linker removes unused functions.

use crate::allocator::Address;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::live_blocks::{number_of_size, size_of_number};
use heaptide_recorder::event::lane::LaneState;
use heaptide_recorder::store::shadow::take_word;
use heaptide_recorder::store::shared::store;

/// Stores the size of a new block.
pub fn keep_size(block: Address, usable: u64) {
    store().sizes.put(block, number_of_size(usable));
}

/// Does the same with the lane's cache of the table.
#[inline(always)]
pub fn keep_size_in(lane: &mut LaneState, block: Address, usable: u64) {
    match lane.size_leaves.word(block) {
        Some(word) => word.store(number_of_size(usable), Relaxed),
        None => keep_size_in_leaf(lane, block, usable),
    }
}

#[inline(never)]
fn keep_size_in_leaf(lane: &mut LaneState, block: Address, usable: u64) {
    let sizes = &store().sizes;
    if sizes.is_made() {
        keep_size(block, usable);
        lane.size_leaves.find(sizes, block);
    }
}

/// Returns and removes the size of a block likewise; `None` if it was not recorded.
#[inline(always)]
pub fn take_size_in(lane: &mut LaneState, block: Address) -> Option<u64> {
    match lane.size_leaves.word(block) {
        Some(word) => size_of_number(take_word(word)),
        None => take_size_in_leaf(lane, block),
    }
}

#[inline(never)]
fn take_size_in_leaf(lane: &mut LaneState, block: Address) -> Option<u64> {
    let sizes = &store().sizes;
    if !sizes.is_made() {
        return None;
    }
    size_of_number(take_word(lane.size_leaves.find(sizes, block)?))
}

/// Returns the size of a live block of any family.
pub fn size_of(block: Address) -> Option<u64> {
    let sizes = &store().sizes;
    if !sizes.is_made() {
        return None;
    }
    size_of_number(sizes.get(block as u64))
}

/// Returns and removes the size of a block; `None` if it was not recorded.
pub fn take_size(block: Address) -> Option<u64> {
    let sizes = &store().sizes;
    if !sizes.is_made() {
        return None;
    }
    size_of_number(sizes.take(block))
}
