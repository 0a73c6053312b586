//! The part of Kokkos' tool interface that needs no driver: regions and kernels are scopes, labels
//! of memory are labels of blocks, and events are marks.

use crate::api::interface::{
    end_in_scopes, in_scopes, intern_value, with_lane_index, with_regions,
};
use crate::api::regions;
use crate::event::marks;
use crate::store::names::{self, Value};
use crate::store::scopes;
use crate::sys::front::Front;

/// The most bytes between the start of a block and the address that Kokkos announces: versions
/// before 4 align it themselves, and announce what follows their header.
const WITHIN_BYTES: u64 = 256;

/// Begins the scope of a kernel. Returns its number, 0 if there is no room.
pub fn kernel_begins<F: Front>(attribute: &[u8], name: &[u8]) -> u32 {
    let number = intern_value::<F>(attribute, Value::Text(name));
    if number != 0 {
        in_scopes::<F>(|lane| scopes::begin(&mut lane.place, names::id(number)));
    }
    number
}

/// Ends the scope of a kernel.
pub fn kernel_ends<F: Front>(number: u32) {
    if number != 0 {
        end_in_scopes::<F>(|lane| scopes::end(&mut lane.place, names::id(number)));
    }
}

/// Begins a scope for a region.
pub fn region_begins<F: Front>(name: &[u8]) {
    in_scopes::<F>(|lane| scopes::begin_named(&mut lane.place, names::REGION, name));
}

/// Ends the innermost region, and the scopes in it; without one, it does nothing.
pub fn region_ends<F: Front>() {
    end_in_scopes::<F>(|lane| {
        let name = scopes::innermost(&lane.place, names::REGION);
        // One for which there was no room is ended without a name.
        if !name.is_none() || lane.place.unplaced > 0 {
            scopes::end(&mut lane.place, name);
        }
    });
}

/// Attaches a label to the block of the host that contains an address. Returns false if there is
/// none.
pub fn label_block<F: Front>(address: u64, name: &[u8]) -> bool {
    with_regions::<F>(|lane| regions::label_around(lane, address, WITHIN_BYTES, name))
}

/// Puts a mark on the timeline.
pub fn mark<F: Front>(name: &[u8]) {
    with_lane_index::<F, _>(|lane| marks::mark_here(name, lane));
}
