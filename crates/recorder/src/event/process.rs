//! The recorder's state in this process, and the counts of processes without a profile.
//!
//! The state of each module is in pages that the kernel wipes in a forked child
//! ([`crate::sys::wiped`]). So every kind of child, including that of a raw clone, finds
//! [`State::New`] and starts a recording of its own, or none if it execs.

use crate::store::profile;
use crate::store::shared::store;
use crate::sys::locked::Guarded;
use crate::sys::wiped::Wiped;
use crate::sys::{confined, kernel};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use heaptide_format::shared::{UnrecordedProgram, Word};
use heaptide_format::{UNRECORDED_PATH, UNRECORDED_WHOLE, UNRECORDED_WRITING, UnrecordedChild};

/// The state of the recorder in one process image.
///
/// New → Starting → Active → (Confined) ; Starting → Off. A fork leads back to New.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nothing has happened yet. 0, as wiped memory reads.
    New = 0,
    /// One thread initialises the recorder; the calls of others are forwarded.
    Starting = 1,
    /// Recording.
    Active = 2,
    /// Not recording: not wanted here, or no profile could be created.
    Off = 3,
}

/// The state that all threads share and no module owns. All zeros: a process that was not started.
#[repr(C)]
pub struct Process {
    pub state: AtomicU32,
    /// Frees that no lane counts, since they happened inside the recorder, and their bytes.
    pub nested_frees: AtomicU64,
    pub nested_bytes: AtomicU64,
    /// Live bytes at the last sample of the timeline.
    pub sampled_live: AtomicI64,
    /// Set once more than one thread was seen at a time.
    pub threaded: AtomicBool,
    /// Set if verified reuse is disabled, for tests.
    pub no_reuse: AtomicBool,
    /// Links of the stack tree's root.
    pub root: Guarded<heaptide_unwind::tree::Links>,
}

// SAFETY: all zeros is a valid value: a process that was not started.
#[unsafe(link_section = ".bss.wiped")]
static PROCESS: Wiped<Process, 1536> = unsafe { Wiped::new() };

/// Returns the state that threads share.
#[inline(always)]
pub fn process() -> &'static Process {
    PROCESS.get()
}

/// Makes a forked child start as a process that was not started.
pub fn wipe_in_children() {
    PROCESS.wipe_in_children();
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

/// Returns whether the calling process is the recorded one, and not a child that borrows its memory
/// (vfork).
pub fn is_own() -> bool {
    process().state() == State::Active
        && (!confined::may_call() || kernel::getpid() == store().pid.load(Relaxed))
}

/// Counts a forked process or a program started by exec that has no profile. `path` names the
/// program's file; it is empty for a fork of this program.
pub fn count_unrecorded(why: UnrecordedChild, path: &[u8]) {
    let Some(header) = profile::family() else { return };
    header.unrecorded_children[why as usize].fetch_add(1, Relaxed);
    let path = end_of(path);
    if let Some(entry) = header.unrecorded_programs.iter().find(|entry| is_of(entry, why, path)) {
        entry.count.fetch_add(1, Relaxed);
    }
}

/// Reverts such a count.
pub fn discount_unrecorded(why: UnrecordedChild, path: &[u8]) {
    let Some(header) = profile::family() else { return };
    header.unrecorded_children[why as usize].fetch_sub(1, Relaxed);
    let path = end_of(path);
    let mut entries = header.unrecorded_programs.iter();
    if let Some(entry) = entries.find(|entry| is_whole(entry, why, path)) {
        entry.count.fetch_sub(1, Relaxed);
    }
}

/// Returns the part of a path that is kept.
fn end_of(path: &[u8]) -> &[u8] {
    &path[path.len().saturating_sub(UNRECORDED_PATH)..]
}

/// Returns whether an entry is for a program. A free entry is filled for it.
fn is_of(entry: &UnrecordedProgram, why: UnrecordedChild, path: &[u8]) -> bool {
    // Another process may write at the same time: the loser uses the next entry.
    if entry.state.compare_exchange(0, UNRECORDED_WRITING, Acquire, Relaxed).is_err() {
        return is_whole(entry, why, path);
    }
    entry.path.iter().zip(path).for_each(|(kept, &byte)| kept.set(byte));
    entry.length.set(path.len() as u32);
    entry.state.store(UNRECORDED_WHOLE + why as u32, Release);
    true
}

/// Returns whether an entry is complete and for a program.
fn is_whole(entry: &UnrecordedProgram, why: UnrecordedChild, path: &[u8]) -> bool {
    entry.state.load(Acquire) == UNRECORDED_WHOLE + why as u32
        && entry.length.get() as usize == path.len()
        && entry.path.iter().zip(path).all(|(kept, &byte)| kept.get() == byte)
}

/// Returns the state of a process in which nothing has happened yet.
#[cfg(test)]
pub fn unstarted() -> std::boxed::Box<Process> {
    // SAFETY: all zeros is a valid value.
    unsafe { std::boxed::Box::<Process>::new_zeroed().assume_init() }
}
