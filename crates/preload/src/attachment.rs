//! The state shared with a command that attached to a running program: one static, which the
//! command reads and writes while it has stopped the program's threads.

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU32};
use heaptide_format::attachment::{
    ATTACHMENT_VERSION, Attachment, CHANGES_MAX, Change, LINK_ATTACHED, LINK_PRELOADED, Memory,
    OUTCOME_NONE, RELEASED_MAX, WIPED_MAX,
};
use heaptide_recorder::event::gate::Gate;
use heaptide_recorder::event::lane::LaneState;
use heaptide_recorder::sys::tls::Tls;
use heaptide_relocate::JUMP_BYTES;

/// Read and written by the command, and by the thread in which it calls this library.
#[repr(transparent)]
pub struct Shared(UnsafeCell<Attachment>);

impl Shared {
    /// Returns the shared state.
    ///
    /// # Safety
    /// The calling thread is the one in which the command makes calls, and has no other reference
    /// to it.
    #[allow(clippy::mut_from_ref, reason = "it is the caller's to have one")]
    pub unsafe fn get(&self) -> &mut Attachment {
        // SAFETY: the caller's contract.
        unsafe { &mut *self.0.get() }
    }
}

// SAFETY: one thread writes at a time, the one in which a command makes calls; the command itself
// writes while all threads are stopped. Other threads read only `link`, atomically.
unsafe impl Sync for Shared {}

/// An empty range of memory.
pub const NOWHERE: Memory = Memory { address: 0, bytes: 0 };

/// The state shared with the command.
#[unsafe(no_mangle)]
#[used]
#[allow(non_upper_case_globals, reason = "its name for the command")]
pub static heaptide_attachment: Shared = Shared(UnsafeCell::new(Attachment {
    version: ATTACHMENT_VERSION,
    link: LINK_PRELOADED,
    outcome: OUTCOME_NONE,
    is_used: 0,
    errno: 0,
    state_at: 0,
    thread_offset: 0,
    thread_bytes: size_of::<Tls>() as u64,
    thread_locks: offset_of!(Tls, locks) as u64,
    lane_gate: (LaneState::GATE_AT + Gate::STATE_AT) as u64,
    code: NOWHERE,
    header_at: 0,
    wiped_count: 0,
    changes_count: 0,
    wiped: [NOWHERE; WIPED_MAX],
    released: [NOWHERE; RELEASED_MAX],
    changes: [Change { address: 0, before: [0; 8], after: [0; 8] }; CHANGES_MAX],
}));

/// Whether code changes are collected for the command.
static IS_COLLECTING: AtomicBool = AtomicBool::new(false);

/// Returns how the library was loaded into the program: a `LINK_` constant.
pub fn link() -> &'static AtomicU32 {
    // SAFETY: a word of a static, read atomically.
    unsafe { AtomicU32::from_ptr(&raw mut (*heaptide_attachment.0.get()).link) }
}

/// Returns whether the library was loaded into a running program.
pub fn is_attached() -> bool {
    link().load(Relaxed) != LINK_PRELOADED
}

/// Returns whether a command that attached requests a recording; `None` if the library was
/// preloaded.
pub fn is_wanted() -> Option<bool> {
    match link().load(Acquire) {
        LINK_PRELOADED => None,
        link => Some(link == LINK_ATTACHED),
    }
}

/// Returns whether code changes are collected for the command, which makes them while no thread
/// runs.
pub fn is_collecting() -> bool {
    IS_COLLECTING.load(Relaxed)
}

/// Starts or stops to collect code changes.
pub fn collect_changes(on: bool) {
    IS_COLLECTING.store(on, Relaxed);
}

/// Collects a code change: address, current bytes, new bytes. Returns false if there is no space.
pub fn collect(
    changes: impl Iterator<Item = (u64, [u8; JUMP_BYTES], [u8; JUMP_BYTES])> + Clone,
) -> bool {
    // SAFETY: this is the thread in which the command makes calls.
    let shared = unsafe { heaptide_attachment.get() };
    let first = shared.changes_count as usize;
    let count = changes.clone().count();
    let Some(room) = shared.changes.get_mut(first..first + count) else {
        return false;
    };
    for (place, (address, before, after)) in room.iter_mut().zip(changes) {
        place.address = address;
        place.before[..JUMP_BYTES].copy_from_slice(&before);
        place.after[..JUMP_BYTES].copy_from_slice(&after);
    }
    shared.changes_count += count as u32;
    true
}
