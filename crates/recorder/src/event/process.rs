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
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use heaptide_format::shared::{UnrecordedProgram, Word};
use heaptide_format::{UNRECORDED_PATH, UNRECORDED_WHOLE, UNRECORDED_WRITING, UnrecordedChild};

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

/// Whether this process, or one that it is a fork of, had several threads at a time.
static EVER_THREADED: AtomicBool = AtomicBool::new(false);

/// There are several threads.
pub fn note_threads() {
    EVER_THREADED.store(true, Relaxed);
}

/// Whether this process, or one that it is a fork of, had several threads at a time.
pub fn was_ever_threaded() -> bool {
    EVER_THREADED.load(Relaxed)
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

/// Counts a process or a program started by exec that has no profile. `path` is of its file; empty
/// if it is a fork of this program.
pub fn count_unrecorded(why: UnrecordedChild, path: &[u8]) {
    let Some(header) = profile::family() else { return };
    header.unrecorded_children[why as usize].fetch_add(1, Relaxed);
    let path = end_of(path);
    if let Some(entry) = header.unrecorded_programs.iter().find(|entry| is_of(entry, why, path)) {
        entry.count.fetch_add(1, Relaxed);
    }
}

/// Takes such a count back.
pub fn discount_unrecorded(why: UnrecordedChild, path: &[u8]) {
    let Some(header) = profile::family() else { return };
    header.unrecorded_children[why as usize].fetch_sub(1, Relaxed);
    let path = end_of(path);
    let mut entries = header.unrecorded_programs.iter();
    if let Some(entry) = entries.find(|entry| is_whole(entry, why, path)) {
        entry.count.fetch_sub(1, Relaxed);
    }
}

/// What of a path is kept.
fn end_of(path: &[u8]) -> &[u8] {
    &path[path.len().saturating_sub(UNRECORDED_PATH)..]
}

/// Whether an entry is of a program, also because it was free and is so now.
fn is_of(entry: &UnrecordedProgram, why: UnrecordedChild, path: &[u8]) -> bool {
    // Another process may write at the same time: the loser takes the next entry.
    if entry.state.compare_exchange(0, UNRECORDED_WRITING, Acquire, Relaxed).is_err() {
        return is_whole(entry, why, path);
    }
    entry.path.iter().zip(path).for_each(|(kept, &byte)| kept.set(byte));
    entry.length.set(path.len() as u32);
    entry.state.store(UNRECORDED_WHOLE + why as u32, Release);
    true
}

/// Whether a whole entry is of a program.
fn is_whole(entry: &UnrecordedProgram, why: UnrecordedChild, path: &[u8]) -> bool {
    entry.state.load(Acquire) == UNRECORDED_WHOLE + why as u32
        && entry.length.get() as usize == path.len()
        && entry.path.iter().zip(path).all(|(kept, &byte)| kept.get() == byte)
}

/// The state of a process in which nothing happened yet.
#[cfg(test)]
pub fn unstarted() -> std::boxed::Box<Process> {
    // SAFETY: zero is a valid value of every field.
    unsafe { std::boxed::Box::<Process>::new_zeroed().assume_init() }
}
