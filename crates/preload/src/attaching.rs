//! Support for a command that attaches to a running program: it loads this library and calls
//! [`heaptide_attach`], which prepares a recording. Then it stops all threads, patches code, and
//! starts the recording by setting the recorder's state. To detach, it stops the threads again
//! while none is in the recorder, and clears the state.
//!
//! The program can continue to run even if the command dies at any point.

use crate::attachment::{self, NOWHERE, heaptide_attachment};
use crate::hooks::NAMES;
use crate::intercept::outcome;
use crate::{Preload, imports, next_symbol, openmp, python_wrapping};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;
use heaptide_format::attachment::{
    LINK_ATTACHED, LINK_IDLE, Memory, OUTCOME_NO_PROFILE, OUTCOME_NOTED, OUTCOME_PREPARED,
};
use heaptide_recorder::event::process::process;
use heaptide_recorder::event::start::{Prepared, prepare_attached};
use heaptide_recorder::store::shared::store;
use heaptide_recorder::sys::range::Range;
use heaptide_recorder::sys::tls::{thread_pointer, tls};
use heaptide_recorder::sys::{kernel, memory, wiped};

/// Prepares a recording. `settings` are `NAME=VALUE` strings, each followed by a zero byte, like in
/// the environment.
///
/// Called only by a command, while nothing is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn heaptide_attach(settings: *const u8, bytes: usize) {
    // SAFETY: the command wrote them before the call.
    let settings = unsafe { core::slice::from_raw_parts(settings, bytes) };
    attachment::link().store(LINK_ATTACHED, Release);
    attachment::collect_changes(true);
    outcome::note_attached();
    let prepared = prepare_attached::<Preload>(settings);
    if prepared == Prepared::Ready {
        imports::take_over(&NAMES);
    }
    attachment::collect_changes(false);
    if prepared != Prepared::Ready {
        attachment::link().store(LINK_IDLE, Release);
    }
    let (outcome, errno) = match prepared {
        Prepared::Ready => (OUTCOME_PREPARED, 0),
        Prepared::NoProfile(errno) => (OUTCOME_NO_PROFILE, errno),
        Prepared::Noted => (OUTCOME_NOTED, 0),
    };
    describe(outcome, errno);
    attachment::report_end();
}

/// Frees the memory of a recording whose state the command has cleared, and puts the allocators of
/// Python back.
#[unsafe(no_mangle)]
pub extern "C" fn heaptide_release() {
    python_wrapping::put_back();
    // SAFETY: this is the thread in which the command makes calls.
    let shared = unsafe { heaptide_attachment.get() };
    for memory in &mut shared.released {
        let Memory { address, bytes } = core::mem::replace(memory, NOWHERE);
        if bytes > 0 {
            // SAFETY: mappings of the recorder. The command has cleared all references to them,
            // while no thread was in this library.
            unsafe { kernel::unmap(address as *mut u8, bytes as usize) };
        }
    }
}

/// Stores the addresses of everything that the command needs.
fn describe(outcome: u32, errno: i32) {
    let p = process();
    // SAFETY: this is the thread in which the command makes calls.
    let shared = unsafe { heaptide_attachment.get() };
    shared.state_at = &raw const p.state as u64;
    shared.thread_offset = (&raw const *tls() as u64).wrapping_sub(thread_pointer());
    shared.code = memory_of(next_symbol::own_code());
    shared.callers = memory_of(openmp::code());
    shared.is_used = 1;
    shared.header_at = store().base.load(Relaxed) as u64;
    shared.wiped_count = 0;
    for (place, (address, bytes)) in shared.wiped.iter_mut().zip(wiped::noted()) {
        *place = Memory { address: address as u64, bytes: bytes as u64 };
        shared.wiped_count += 1;
    }
    let [own, zeros] = memory::of_recording().map(memory_of);
    let profile = Memory { address: shared.header_at, bytes: store().reserved.load(Relaxed) };
    shared.released = [own, zeros, profile, NOWHERE];
    fence(Release);
    shared.errno = errno as u64;
    shared.outcome = outcome;
}

fn memory_of(range: Range) -> Memory {
    Memory { address: range.low, bytes: range.high - range.low }
}
