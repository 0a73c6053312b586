//! Monitors as the recorder holds them.

use std::cell::Cell;
use std::ptr;

/// Is called on the allocating thread, once for each outermost operation.
///
/// A monitor may allocate, free, and take locks of its own: what it allocates causes no calls and
/// is not recorded. It has to expect calls from all threads at once. A panic in it ends the
/// process. A realloc that moves its block calls `allocated` and then `freed`; one that does not
/// calls `freed` and then `allocated`.
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
    /// A block was allocated: `requested` bytes were asked for, it has `usable`.
    fn allocated(&self, block: *mut u8, requested: usize, usable: usize) {
        let _ = (block, requested, usable);
    }

    /// A block of `usable` bytes is about to be freed.
    fn freed(&self, block: *mut u8, usable: usize) {
        let _ = (block, usable);
    }
}

/// A monitor as the recorder holds it.
pub(crate) struct Registered {
    pub(crate) monitor: Box<dyn Monitor>,
}

thread_local! {
    /// The monitor whose callback this thread is in: what a monitor allocates causes no calls, so
    /// there is at most one.
    static INSIDE: Cell<*const Registered> = const { Cell::new(ptr::null()) };
    /// Whether that one was deregistered by its own callback, and is to be dropped after it.
    static CONDEMNED: Cell<bool> = const { Cell::new(false) };
}

impl Registered {
    /// Calls the monitor, and remembers that for as long.
    #[inline]
    pub(crate) fn enter(&self, call: impl FnOnce(&dyn Monitor)) {
        INSIDE.set(self);
        call(&*self.monitor);
        INSIDE.set(ptr::null());
    }

    /// The recorder gives it up: true if this thread is in its callback, which then sees to it.
    pub(crate) fn condemn(registered: *const Registered) -> bool {
        let inside = ptr::eq(INSIDE.get(), registered);
        if inside {
            CONDEMNED.set(true);
        }
        inside
    }

    /// Whether the callback that has just ended is to drop its monitor.
    #[inline]
    pub(crate) fn condemned(_: *const Registered) -> bool {
        CONDEMNED.replace(false)
    }
}
