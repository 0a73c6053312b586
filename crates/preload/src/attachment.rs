//! A command attaches to a program that runs: it has the program load this library and call
//! [`heaptide_attach`], which prepares a recording. Then it stops all threads, writes what is to
//! change in code, and lets the recording begin by the word of the recorder's state. To detach, it
//! stops them again while none is in the recorder, and wipes the state.
//!
//! The command reads and writes one static for that, [`heaptide_attachment`]; nothing of what it
//! does leaves the program in a state that it could not run on in, should the command die.

use crate::intercept::outcome;
use crate::{Preload, imports, next_symbol};
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, fence};
use heaptide_format::attachment::{
    ATTACHMENT_VERSION, Attachment, CHANGES_MAX, Change, LINK_ATTACHED, LINK_IDLE, LINK_PRELOADED,
    Memory, OUTCOME_NO_PROFILE, OUTCOME_NONE, OUTCOME_NOTED, OUTCOME_PREPARED, RELEASED_MAX,
    WIPED_MAX,
};
use heaptide_recorder::event::gate::Gate;
use heaptide_recorder::event::lane::LaneState;
use heaptide_recorder::event::process::process;
use heaptide_recorder::event::start::{Prepared, prepare_attached};
use heaptide_recorder::sys::range::Range;
use heaptide_recorder::sys::tls::{Tls, thread_pointer, tls};
use heaptide_recorder::sys::{kernel, memory, wiped};
use heaptide_relocate::JUMP_BYTES;

/// Read and written by the command, and by the thread in which it calls this library.
#[repr(transparent)]
pub struct Shared(UnsafeCell<Attachment>);

// SAFETY: one thread writes at a time, the one in which a command calls; the command itself writes
// while all threads are stopped. Others read `link` only, atomically.
unsafe impl Sync for Shared {}

const NOWHERE: Memory = Memory { address: 0, bytes: 0 };

/// What the command knows of this library.
#[unsafe(no_mangle)]
#[used]
#[allow(non_upper_case_globals, reason = "its name for the command")]
pub static heaptide_attachment: Shared = Shared(UnsafeCell::new(Attachment {
    version: ATTACHMENT_VERSION,
    link: LINK_PRELOADED,
    outcome: OUTCOME_NONE,
    is_used: 0,
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

/// Whether changes of code are collected for the command.
static IS_COLLECTING: AtomicBool = AtomicBool::new(false);

fn link() -> &'static AtomicU32 {
    // SAFETY: a word of a static, which is read atomically.
    unsafe { AtomicU32::from_ptr(&raw mut (*heaptide_attachment.0.get()).link) }
}

/// Whether the library was loaded into a program that ran.
pub fn is_attached() -> bool {
    link().load(Relaxed) != LINK_PRELOADED
}

/// Whether a command that attached wants a recording; none if the library was preloaded.
pub fn is_wanted() -> Option<bool> {
    match link().load(Acquire) {
        LINK_PRELOADED => None,
        link => Some(link == LINK_ATTACHED),
    }
}

/// Notes whether the program runs already, before anything else of this library does.
pub fn note_loading() {
    if next_symbol::is_late() {
        link().store(LINK_IDLE, Release);
    }
}

/// Whether changes of code are collected for the command, which makes them while no thread runs.
pub fn is_collecting() -> bool {
    IS_COLLECTING.load(Relaxed)
}

/// Collects changes: where, what is there, what is to be there. Returns false if there is no room.
pub fn collect(
    changes: impl Iterator<Item = (u64, [u8; JUMP_BYTES], [u8; JUMP_BYTES])> + Clone,
) -> bool {
    // SAFETY: this thread is the one in which the command calls.
    let shared = unsafe { &mut *heaptide_attachment.0.get() };
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

/// Prepares a recording. `settings` are `NAME=VALUE`, each ended by a zero byte, as the environment
/// has them.
///
/// Called by a command only, while nothing is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn heaptide_attach(settings: *const u8, bytes: usize) {
    // SAFETY: the command wrote them before it called.
    let settings = unsafe { core::slice::from_raw_parts(settings, bytes) };
    link().store(LINK_ATTACHED, Release);
    IS_COLLECTING.store(true, Relaxed);
    outcome::note_attached();
    let prepared = prepare_attached::<Preload>(settings);
    if prepared == Prepared::Ready {
        imports::take_over();
    }
    IS_COLLECTING.store(false, Relaxed);
    describe(match prepared {
        Prepared::Ready => OUTCOME_PREPARED,
        Prepared::NoProfile => OUTCOME_NO_PROFILE,
        Prepared::Noted => OUTCOME_NOTED,
    });
}

/// Gives back the memory of a recording whose state the command has wiped.
#[unsafe(no_mangle)]
pub extern "C" fn heaptide_release() {
    // SAFETY: this thread is the one in which the command calls.
    let shared = unsafe { &mut *heaptide_attachment.0.get() };
    for memory in &mut shared.released {
        let Memory { address, bytes } = core::mem::replace(memory, NOWHERE);
        if bytes > 0 {
            // SAFETY: mappings of the recorder's. The command has wiped all that referred to it,
            // while no thread was in this library.
            unsafe { kernel::unmap(address as *mut u8, bytes as usize) };
        }
    }
}

/// Tells the command where everything is.
fn describe(outcome: u32) {
    let p = process();
    // SAFETY: this thread is the one in which the command calls.
    let shared = unsafe { &mut *heaptide_attachment.0.get() };
    shared.state_at = &raw const p.state as u64;
    shared.thread_offset = (&raw const *tls() as u64).wrapping_sub(thread_pointer());
    shared.code = memory_of(next_symbol::own_code());
    shared.is_used = 1;
    shared.header_at = p.base.load(Relaxed) as u64;
    shared.wiped_count = 0;
    for (place, (address, bytes)) in shared.wiped.iter_mut().zip(wiped::noted()) {
        *place = Memory { address: address as u64, bytes: bytes as u64 };
        shared.wiped_count += 1;
    }
    let [own, zeros] = memory::of_recording().map(memory_of);
    let profile = Memory { address: shared.header_at, bytes: p.reserved.load(Relaxed) };
    shared.released = [own, zeros, profile, NOWHERE];
    fence(Release);
    shared.outcome = outcome;
}

fn memory_of(range: Range) -> Memory {
    Memory { address: range.low, bytes: range.high - range.low }
}
