//! The state shared with a command that attached to a running program: one static, which the
//! command reads and writes while it has stopped the program's threads.

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU32};
use heaptide_format::attachment::{
    ARENAS, ATTACHMENT_VERSION, Attachment, CHANGES_MAX, Change, IMPORTS_MAX, LINK_ATTACHED,
    LINK_INSERTED, LINK_PRELOADED, Memory, OUTCOME_NONE, PROGRESS_AWAITED, PROGRESS_DONE,
    PROGRESS_NONE, PROGRESS_SEEN, RELEASED_MAX, Rebinding, WIPED_MAX,
};
use heaptide_recorder::event::gate::Gate;
use heaptide_recorder::event::lane::LaneState;
use heaptide_recorder::store::shared::store;
use heaptide_recorder::sys::tls::Tls;
use heaptide_recorder::sys::{clock, kernel, memory};
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
    callers: NOWHERE,
    header_at: 0,
    wiped_count: 0,
    changes_count: 0,
    wiped: [NOWHERE; WIPED_MAX],
    released: [NOWHERE; RELEASED_MAX],
    progress: PROGRESS_NONE,
    reserved: 0,
    imports_at: 0,
    imports_count: 0,
    blocks_at: 0,
    sizes_at: 0,
    arenas_at: [0; ARENAS],
    changes: [Change { address: 0, before: [0; 8], after: [0; 8] }; CHANGES_MAX],
}));

/// Stores where a command finds the live blocks. Called when the library is loaded.
pub fn describe_blocks() {
    // SAFETY: the loader's thread; no command has stopped it, and it writes words that no other
    // thread of the program accesses.
    let shared = unsafe { heaptide_attachment.get() };
    shared.blocks_at = ptr::from_ref(&store().shadow) as u64;
    shared.sizes_at = ptr::from_ref(&store().sizes) as u64;
    shared.arenas_at = memory::arenas_at();
}

/// Whether code changes are collected for the command.
static IS_COLLECTING: AtomicBool = AtomicBool::new(false);

/// Returns how the library was loaded into the program: a `LINK_` constant.
pub fn link() -> &'static AtomicU32 {
    // SAFETY: a word of a static, read atomically.
    unsafe { AtomicU32::from_ptr(&raw mut (*heaptide_attachment.0.get()).link) }
}

/// Reports the end of the preparation to a command that waits for it, and waits until the command
/// has stopped this thread. Not for long, because the command may have been killed. Makes no system
/// call: all other threads are stopped, and a filter may forbid it.
pub fn report_end() {
    const WAITS_NS: u64 = 100_000_000;
    // SAFETY: a word of a static, accessed atomically.
    let progress = unsafe { AtomicU32::from_ptr(&raw mut (*heaptide_attachment.0.get()).progress) };
    if progress.compare_exchange(PROGRESS_AWAITED, PROGRESS_DONE, AcqRel, Relaxed).is_ok() {
        let start = clock::system_ns();
        let is_over = || clock::system_ns().wrapping_sub(start) > WAITS_NS;
        while progress.load(Acquire) != PROGRESS_SEEN && !is_over() {
            core::hint::spin_loop();
        }
        progress.store(PROGRESS_NONE, Relaxed);
    }
}

/// Returns whether the library was loaded into a running program.
pub fn is_attached() -> bool {
    ![LINK_PRELOADED, LINK_INSERTED].contains(&link().load(Relaxed))
}

/// Returns whether a command put the library into a static program.
pub fn is_inserted() -> bool {
    link().load(Relaxed) == LINK_INSERTED
}

/// Returns whether a command that attached requests a recording; `None` if the library was
/// preloaded.
pub fn is_wanted() -> Option<bool> {
    match link().load(Acquire) {
        LINK_PRELOADED | LINK_INSERTED => None,
        link => Some(link == LINK_ATTACHED),
    }
}

/// Returns whether code changes are collected for the command, which makes them while no thread
/// runs.
pub fn is_collecting() -> bool {
    IS_COLLECTING.load(Relaxed)
}

/// Starts or stops to collect code changes and imports.
pub fn collect_changes(on: bool) {
    if on {
        // SAFETY: this is the thread in which the command makes calls.
        unsafe { heaptide_attachment.get() }.imports_count = 0;
    }
    IS_COLLECTING.store(on, Relaxed);
}

/// Collects an import to rebind: the command can write to pages that are read-only here. Each
/// system call that is saved saves two stops of the thread, during which the whole program waits.
/// Returns false if nothing is collected now, or if there is no space.
pub fn collect_import(slot: u64, hook: u64) -> bool {
    if !is_collecting() {
        return false;
    }
    // SAFETY: this is the thread in which the command makes calls.
    let shared = unsafe { heaptide_attachment.get() };
    if shared.imports_at == 0 {
        shared.imports_count = 0;
        shared.imports_at = kernel::map_private(IMPORTS_MAX * size_of::<Rebinding>()) as u64;
    }
    let at = shared.imports_count as usize;
    if shared.imports_at == 0 || at == IMPORTS_MAX {
        return false;
    }
    // SAFETY: within the memory above.
    unsafe { (shared.imports_at as *mut Rebinding).add(at).write(Rebinding { slot, hook }) };
    shared.imports_count += 1;
    true
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
