//! The moment at which the loader has mapped new objects, and has executed nothing of them: it
//! calls `_dl_debug_state` then, at which debuggers have a breakpoint. It holds its lock.
//!
//! Nothing else is in time: a hook of `dlopen` that calls the real one would change whose RUNPATH
//! counts, and once it has returned, other threads may execute what was loaded.

use super::families;
use super::island::Island;
use super::patch::{Function, Patch, may_change_code, write_all};
use crate::arch;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use heaptide_recorder::sys::loader::{is_consistent, look_up, objects};
use heaptide_recorder::sys::options::Options;
use heaptide_recorder::sys::{confined, kernel, own_stack};

/// The loader's function, as it is called when the jump is in its place.
static LOADERS_OWN: AtomicUsize = AtomicUsize::new(0);

/// Whether the first `dlopen` is to call [`watch`].
static IS_PUT_OFF: AtomicBool = AtomicBool::new(false);

/// Has the loader's notice come here from the start. A seccomp filter that the process inherited
/// may punish a change of code, so under one only programs that load libraries take that risk.
pub fn watch_at_start() {
    if Options::known().is_none_or(|options| !options.intercept) {
        return;
    }
    if kernel::has_filter() {
        IS_PUT_OFF.store(true, Relaxed);
    } else {
        watch();
    }
}

/// Does what was put off, before the program loads a library.
#[inline(always)]
pub fn before_loading() {
    if IS_PUT_OFF.load(Relaxed) && confined::may_call() && IS_PUT_OFF.swap(false, Relaxed) {
        own_stack::call(watch);
    }
}

/// Has the loader's notice come here too. Nothing changes if that is not possible.
fn watch() {
    let name = b"_dl_debug_state\0";
    let found = objects().find_map(|map| look_up(map, name));
    let Some((address, size)) = found.filter(|_| may_change_code()) else { return };
    let entry = arch::notice_entry!(look, LOADERS_OWN);
    let Some(mut island) = Island::near(address as u64) else { return };
    let function = Function { address: address as u64, size };
    let is_done = Patch::plan(function, entry, &mut island).is_ok_and(|patch| {
        LOADERS_OWN.store(patch.moved as usize, Relaxed);
        island.seal() && write_all(core::iter::once(&patch))
    });
    if !is_done {
        // SAFETY: no jump to it was written.
        unsafe { island.release() };
    }
}

extern "C" fn look() {
    if is_consistent() {
        families::look_at_mapped();
    }
}
