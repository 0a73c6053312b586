//! Monitors in the form that the recorder owns.

use std::cell::Cell;
use std::ptr;

/// Called on the allocating thread, once per outermost operation.
///
/// A monitor may allocate, free, and take its own locks; its allocations are neither recorded nor
/// reported to monitors. Any thread may call it, also several at once. A panic in it ends the
/// process. A realloc that moves its block calls `allocated` and then `freed`; one that does not
/// move it calls `freed` and then `allocated`.
///
/// ```
/// use heaptide::{Monitor, register};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// struct Largest(Arc<AtomicUsize>);
///
/// impl Monitor for Largest {
///     fn allocated(&self, _block: *mut u8, requested: usize, _usable: usize) {
///         self.0.fetch_max(requested, Ordering::Relaxed);
///     }
/// }
///
/// let largest = Arc::new(AtomicUsize::new(0));
/// match register("largest", Box::new(Largest(largest.clone()))) {
///     Ok(_registration) => {
///         drop(vec![0u8; 1000]);
///         assert_eq!(largest.load(Ordering::Relaxed), 1000);
///     }
///     Err(reason) => eprintln!("{reason}"),
/// }
/// ```
pub trait Monitor: Send + Sync {
    /// Called after a block of `usable` bytes was allocated for a request of `requested` bytes.
    fn allocated(&self, block: *mut u8, requested: usize, usable: usize) {
        let _ = (block, requested, usable);
    }

    /// Called before a block of `usable` bytes is freed.
    fn freed(&self, block: *mut u8, usable: usize) {
        let _ = (block, usable);
    }
}

/// A monitor in the form that the recorder owns.
pub(crate) struct Registered {
    pub(crate) monitor: Box<dyn Monitor>,
}

thread_local! {
    /// The monitor whose callback this thread is in. There is at most one, because allocations in a
    /// monitor cause no calls.
    static INSIDE: Cell<*const Registered> = const { Cell::new(ptr::null()) };
    /// Whether its own callback deregistered that monitor, so that it is dropped after the
    /// callback.
    static CONDEMNED: Cell<bool> = const { Cell::new(false) };
}

impl Registered {
    /// Calls the monitor, and keeps it in `INSIDE` during the call.
    #[inline]
    pub(crate) fn enter(&self, call: impl FnOnce(&dyn Monitor)) {
        INSIDE.set(self);
        call(&*self.monitor);
        INSIDE.set(ptr::null());
    }

    /// Called when the recorder releases the monitor. Returns true if this thread is in its
    /// callback, which then drops it.
    pub(crate) fn condemn(registered: *const Registered) -> bool {
        let inside = ptr::eq(INSIDE.get(), registered);
        if inside {
            CONDEMNED.set(true);
        }
        inside
    }

    /// Returns whether the callback that has just ended has to drop its monitor.
    #[inline]
    pub(crate) fn condemned(_: *const Registered) -> bool {
        CONDEMNED.replace(false)
    }
}
