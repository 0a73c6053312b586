//! What interceptions need as long as their object is loaded: islands, and the functions whose
//! addresses their stubs have.

use super::island::Island;
use crate::family::Function;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// Functions of all families.
const FUNCTIONS_MAX: usize = 512;
/// Islands of families: one for each family of an object.
const ISLANDS_MAX: usize = 64;

/// One look at a time changes them; a function is never changed while a stub has its address.
struct Functions(UnsafeCell<[Option<Function>; FUNCTIONS_MAX]>);

// SAFETY: written by one look at a time, to places that no stub knows.
unsafe impl Sync for Functions {}

static FUNCTIONS: Functions = Functions(UnsafeCell::new([const { None }; FUNCTIONS_MAX]));
/// The island whose stubs have the function's address; 0: the place is free.
static ISLAND_OF: [AtomicUsize; FUNCTIONS_MAX] = [const { AtomicUsize::new(0) }; FUNCTIONS_MAX];

/// An island, and the object that it serves.
struct Kept {
    island: AtomicUsize,
    object: AtomicUsize,
}

static ISLANDS: [Kept; ISLANDS_MAX] =
    [const { Kept { island: AtomicUsize::new(0), object: AtomicUsize::new(0) } }; ISLANDS_MAX];

/// Whether anything is intercepted.
pub fn is_empty() -> bool {
    ISLANDS.iter().all(|kept| kept.island.load(Relaxed) == 0)
}

/// Keeps a function for a stub of an island; none if there is no room.
pub fn keep(function: Function, island: &Island) -> Option<&'static Function> {
    let index = ISLAND_OF.iter().position(|owner| owner.load(Relaxed) == 0)?;
    ISLAND_OF[index].store(island.address(), Relaxed);
    // SAFETY: a free place in the table; one look at a time takes places.
    unsafe {
        let place = FUNCTIONS.0.get().cast::<Option<Function>>().add(index);
        place.write(Some(function));
        (*place).as_ref()
    }
}

/// Keeps an island until its object is unloaded. False if there is no room.
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
    // SAFETY: as the caller promises.
    unsafe { island.release() };
}

/// Frees what was kept for an object that is no longer loaded.
pub fn forget(object: usize) {
    for kept in &ISLANDS {
        let address = kept.island.load(Relaxed);
        if address != 0 && kept.object.load(Relaxed) == object {
            // SAFETY: the address of an island; the code that jumped to it is gone.
            unsafe { release(Island::at(address)) };
        }
    }
}
