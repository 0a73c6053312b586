//! Keeps walks over the loader's list of objects and their unloading apart. The loader frees an
//! entry of its list when it unloads the object; its own lock would end that, but the program can
//! hold it.
//!
//! A walk does not begin while an object is being unloaded: what it looks for is looked for again
//! later. An unloading waits until walks have ended, which take microseconds and wait for nothing.
//! If one has not ended after a number of yields, the unloading continues: a signal handler has
//! interrupted the walk, and unloads, or has left it by a jump.
//!
//! An unloading lasts from the loader's notification that it removes objects to the next one: no
//! code of the program runs in between, so that a destructor that leaves by a jump or ends its
//! thread changes nothing. Where the loader's function cannot be changed, an unloading is a call of
//! `dlclose`, and is forgotten if its thread has ended.

use crate::sys::kernel;
use crate::sys::wiped::Wiped;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// How often an unloading yields to walks.
const YIELDS_MAX: u32 = 20_000;

/// All zeros: neither is in progress.
struct Counts {
    walks: AtomicU32,
    unloadings: AtomicU32,
    /// The thread of the last one that the loader did not notify; 0 is none.
    thread: AtomicU32,
    /// Whether one is in progress that the loader has notified.
    is_notified: AtomicBool,
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static COUNTS: Wiped<Counts> = unsafe { Wiped::new() };

/// Makes forked children start without walks and unloadings of other threads.
pub fn wipe_in_children() {
    COUNTS.wipe_in_children();
}

/// Walks over the list. Returns none, without a walk, while an object is being unloaded.
pub fn walk<T>(work: impl FnOnce() -> T) -> Option<T> {
    let counts = COUNTS.get();
    // Both sides write first and then read what the other has written.
    counts.walks.fetch_add(1, SeqCst);
    let done = may_walk(counts).then(work);
    subtract_one(&counts.walks);
    done
}

fn may_walk(counts: &Counts) -> bool {
    if counts.is_notified.load(SeqCst) {
        return false;
    }
    let (unloadings, thread) = (counts.unloadings.load(SeqCst), counts.thread.load(SeqCst));
    if unloadings == 0 {
        return true;
    }
    // It holds the loader's lock for ever, so there is no other one.
    let has_ended = thread != 0 && kernel::thread_is_gone(kernel::getpid(), thread);
    has_ended && counts.unloadings.compare_exchange(unloadings, 0, SeqCst, SeqCst).is_ok()
}

/// Begins an unloading that the loader has notified, which holds its lock: waits until walks have
/// ended. No walk begins before [`end_notified`].
pub fn begin_notified() {
    let counts = COUNTS.get();
    counts.is_notified.store(true, SeqCst);
    wait_for_walks(counts);
}

/// Ends an unloading that the loader has notified, if any is in progress.
pub fn end_notified() {
    COUNTS.get().is_notified.store(false, SeqCst);
}

fn wait_for_walks(counts: &Counts) {
    for _ in 0..YIELDS_MAX {
        if counts.walks.load(SeqCst) == 0 {
            return;
        }
        kernel::sched_yield();
    }
    counts.walks.store(0, SeqCst); // so that the next one does not wait for it again
}

/// An object that is being unloaded, until it is dropped; where the loader does not notify.
pub struct Unloading(());

impl Unloading {
    /// Waits until walks have ended. No walk begins before the result is dropped.
    pub fn begin() -> Unloading {
        let counts = COUNTS.get();
        counts.thread.store(kernel::gettid(), SeqCst);
        counts.unloadings.fetch_add(1, SeqCst);
        wait_for_walks(counts);
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
