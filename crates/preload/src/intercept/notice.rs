//! Notification by the loader after it has mapped new objects, and before any of their code runs:
//! it calls `_dl_debug_state`, where debuggers have a breakpoint. It holds its lock. It does the
//! same after the destructors of objects that it unloads have run, and before it unmaps them; also
//! if it unloads what a failed `dlopen` has loaded.
//!
//! No other place is early enough: a hook of `dlopen` that calls the real function would change
//! whose RUNPATH applies, and after that returns, other threads may run the loaded code.

use super::families;
use super::island::Island;
use super::patch::{Function, Patch, may_change_code, write_all};
use crate::arch;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use heaptide_recorder::sys::loader::{is_consistent, is_unloading, look_up, objects};
use heaptide_recorder::sys::options::Options;
use heaptide_recorder::sys::{confined, kernel, own_stack, unloading};

/// The loader's function, callable while the jump is in place.
static LOADERS_OWN: AtomicUsize = AtomicUsize::new(0);

/// Whether the first `dlopen` has to call [`watch`].
static IS_PUT_OFF: AtomicBool = AtomicBool::new(false);

/// Installs the notification at the start. An inherited seccomp filter may kill the process for
/// changing code, so under a filter only programs that load libraries take that risk.
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

/// Does the deferred work, before the program loads a library.
#[inline(always)]
pub fn before_loading() {
    if IS_PUT_OFF.load(Relaxed) && confined::may_call() && IS_PUT_OFF.swap(false, Relaxed) {
        own_stack::call(watch);
    }
}

/// Returns whether the loader notifies.
pub fn is_watched() -> bool {
    LOADERS_OWN.load(Relaxed) != 0
}

/// Redirects the loader's notification. Nothing changes if that fails.
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

/// Called for all namespaces, whose lists the loader does not change at the same time.
extern "C" fn look() {
    if is_unloading() {
        return unloading::begin_notified();
    }
    unloading::end_notified();
    if is_consistent() {
        families::look_at_mapped();
    }
}
