//! The recorder's state in this process, and what has no profile.
//!
//! The state of every module lies in pages that the kernel wipes in a forked child
//! ([`crate::sys::wiped`]). So every kind of child, also of a raw clone, finds [`State::New`] and
//! starts a recording of its own, or none if it execs.

use crate::store::profile;
use crate::store::shared::{Store, store};
use crate::sys::kernel::Errno;
use crate::sys::locked::Guarded;
use crate::sys::wiped::Wiped;
use core::ops::Deref;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use heaptide_format::UnrecordedChild;

/// The recorder's life in one process image.
///
/// New → Starting → Active → (Confined) ; Starting → Off. A fork leads back to New.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nothing happened yet. Zero, as wiped memory reads.
    New = 0,
    /// One thread sets things up; others forward.
    Starting = 1,
    /// Recording.
    Active = 2,
    /// Not recording: not wanted here, or no profile could be made.
    Off = 3,
}

/// What all threads share and no module owns. Zero is the state of a process that was not started.
#[repr(C)]
pub struct Process {
    pub state: AtomicU32,
    /// Frees that no lane counts, for they happened inside the recorder, and their bytes.
    pub nested_frees: AtomicU64,
    pub nested_bytes: AtomicU64,
    /// More than one thread has been seen at once.
    pub threaded: AtomicBool,
    /// Verified reuse is off, for tests.
    pub no_reuse: AtomicBool,
    /// Links of the stack tree's root.
    pub root: Guarded<heaptide_unwind::tree::Links>,
}

// SAFETY: zero is a valid value of every field, and together they are a process that was not
// started.
static PROCESS: Wiped<Process, 1536> = unsafe { Wiped::new() };

/// The shared state.
#[inline(always)]
pub fn process() -> &'static Process {
    PROCESS.get()
}

/// Has a forked child find a process that was not started.
///
/// Errors: the kernel's.
pub fn wipe_in_children() -> Result<(), Errno> {
    PROCESS.wipe_in_children()
}

/// What is the store's is reached through the process, too.
impl Deref for Process {
    type Target = Store;

    #[inline(always)]
    fn deref(&self) -> &Store {
        store()
    }
}

impl Process {
    #[inline(always)]
    pub fn state(&self) -> State {
        match self.state.load(Acquire) {
            0 => State::New,
            1 => State::Starting,
            2 => State::Active,
            _ => State::Off,
        }
    }
}

/// Counts a process or a program started by exec that has no profile.
pub fn count_unrecorded(why: UnrecordedChild) {
    change_unrecorded(why, 1);
}

/// Takes such a count back.
pub fn discount_unrecorded(why: UnrecordedChild) {
    change_unrecorded(why, u64::MAX);
}

fn change_unrecorded(why: UnrecordedChild, by: u64) {
    if let Some(header) = profile::family() {
        header.unrecorded_children[why as usize].fetch_add(by, Relaxed);
    }
}

/// The state of a process in which nothing happened yet.
#[cfg(test)]
pub fn unstarted() -> std::boxed::Box<Process> {
    // SAFETY: zero is a valid value of every field.
    unsafe { std::boxed::Box::<Process>::new_zeroed().assume_init() }
}
