//! Keeps walks over the loader's list of objects and their unloading apart. The loader frees an
//! entry of its list when it unloads the object; its own lock would end that, but the program can
//! hold it.
//!
//! A walk does not begin while an object is being unloaded: what it looks for is looked for again
//! later. An unloading waits until walks have ended, which take microseconds and wait for nothing.
//! If one has not ended after a number of yields, the unloading continues: a signal handler has
//! interrupted the walk, and unloads, or has left it by a jump.

use crate::sys::kernel::{self, Errno};
use crate::sys::wiped::Wiped;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;

/// How often an unloading yields to walks.
const YIELDS_MAX: u32 = 20_000;

/// All zeros: neither is in progress.
struct Counts {
    walks: AtomicU32,
    unloadings: AtomicU32,
}

// SAFETY: all zeros is a valid value.
static COUNTS: Wiped<Counts> = unsafe { Wiped::new() };

/// Makes forked children start without walks and unloadings of other threads.
///
/// Errors: those of the kernel.
pub fn wipe_in_children() -> Result<(), Errno> {
    COUNTS.wipe_in_children()
}

/// Walks over the list. Returns none, without a walk, while an object is being unloaded.
pub fn walk<T>(work: impl FnOnce() -> T) -> Option<T> {
    let counts = COUNTS.get();
    // Both sides write first and then read what the other has written.
    counts.walks.fetch_add(1, SeqCst);
    let done = (counts.unloadings.load(SeqCst) == 0).then(work);
    subtract_one(&counts.walks);
    done
}

/// An object that is being unloaded, until it is dropped.
pub struct Unloading(());

impl Unloading {
    /// Waits until walks have ended. No walk begins before the result is dropped.
    pub fn begin() -> Unloading {
        let counts = COUNTS.get();
        counts.unloadings.fetch_add(1, SeqCst);
        for _ in 0..YIELDS_MAX {
            if counts.walks.load(SeqCst) == 0 {
                return Unloading(());
            }
            kernel::sched_yield();
        }
        counts.walks.store(0, SeqCst); // so that the next one does not wait for it again
        Unloading(())
    }
}

impl Drop for Unloading {
    fn drop(&mut self) {
        subtract_one(&COUNTS.get().unloadings);
    }
}

/// The count can be zero: in a child that was forked meanwhile, by a destructor of the object or a
/// signal handler, and after an unloading that did not wait any longer.
fn subtract_one(count: &AtomicU32) {
    let _ = count.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
}
