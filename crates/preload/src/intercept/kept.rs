//! Data of interceptions with the lifetime of their object: islands, and the functions that their
//! stubs refer to.

use super::island::Island;
use crate::family_calls::Function;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// The most functions of all families.
const FUNCTIONS_MAX: usize = 512;
/// The most islands: one per family of an object, per library of OpenMP and per device driver.
const ISLANDS_MAX: usize = 64;

/// Written by one check at a time; a function is never changed while a stub refers to it.
struct Functions(UnsafeCell<[Option<Function>; FUNCTIONS_MAX]>);

// SAFETY: written by one check at a time, to slots that no stub refers to.
unsafe impl Sync for Functions {}

static FUNCTIONS: Functions = Functions(UnsafeCell::new([const { None }; FUNCTIONS_MAX]));
/// The island whose stubs refer to the function; 0: the slot is free.
static ISLAND_OF: [AtomicUsize; FUNCTIONS_MAX] = [const { AtomicUsize::new(0) }; FUNCTIONS_MAX];

/// An island, and its object.
struct Kept {
    island: AtomicUsize,
    object: AtomicUsize,
}

static ISLANDS: [Kept; ISLANDS_MAX] =
    [const { Kept { island: AtomicUsize::new(0), object: AtomicUsize::new(0) } }; ISLANDS_MAX];

/// Returns whether no function of a family is intercepted.
pub fn is_empty() -> bool {
    ISLAND_OF.iter().all(|owner| owner.load(Relaxed) == 0)
}

/// Stores a function for a stub of an island; `None` if there is no space.
pub fn keep(function: Function, island: &Island) -> Option<&'static Function> {
    let index = ISLAND_OF.iter().position(|owner| owner.load(Relaxed) == 0)?;
    ISLAND_OF[index].store(island.address(), Relaxed);
    // SAFETY: a free slot of the table; only one check at a time takes slots.
    unsafe {
        let place = FUNCTIONS.0.get().cast::<Option<Function>>().add(index);
        place.write(Some(function));
        (*place).as_ref()
    }
}

/// Keeps an island until its object is unloaded. Returns false if there is no space.
pub fn keep_island(island: &Island, object: usize) -> bool {
    let free = ISLANDS.iter().find(|kept| kept.island.load(Relaxed) == 0);
    free.inspect(|kept| {
        kept.object.store(object, Relaxed);
        kept.island.store(island.address(), Relaxed);
    })
    .is_some()
}

/// Frees an island and its functions.
///
/// # Safety
/// Nothing jumps to it.
pub unsafe fn release(island: Island) {
    let address = island.address();
    let functions = ISLAND_OF.iter().filter(|owner| owner.load(Relaxed) == address);
    functions.for_each(|owner| owner.store(0, Relaxed));
    let islands = ISLANDS.iter().filter(|kept| kept.island.load(Relaxed) == address);
    islands.for_each(|kept| kept.island.store(0, Relaxed));
    // SAFETY: the caller's contract.
    unsafe { island.release() };
}

/// Frees the data of an object that is no longer loaded.
pub fn forget(object: usize) {
    for kept in &ISLANDS {
        let address = kept.island.load(Relaxed);
        if address != 0 && kept.object.load(Relaxed) == object {
            // SAFETY: the address of an island; the code that jumped to it is unloaded.
            unsafe { release(Island::at(address)) };
        }
    }
}
