//! Decides whether the program is recorded, and provides its function table.

extern crate alloc;

use crate::choice::{CHOICE, Choice, is};
use crate::{exports, static_libc};
use alloc::alloc::Layout;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};
use heaptide_recorder::event::exit;
use heaptide_recorder::sys::loader::{look_up, objects};
use heaptide_recorder::sys::options::Options;
use heaptide_recorder::sys::tls::tls;

/// The library is loaded in this process, too, and the table is a copy of the library's.
static LIBRARY: AtomicBool = AtomicBool::new(false);

/// Returns whether events are recorded; decides that at the first call.
#[inline(always)]
pub fn records() -> bool {
    match CHOICE.load(Relaxed) {
        0 => decide(),
        choice => choice == Choice::Record as u32,
    }
}

#[cold]
#[inline(never)]
fn decide() -> bool {
    let record = !follow_library() && is_asked_for();
    let choice = if record { Choice::Record } else { Choice::Forward };
    let before = CHOICE.swap(choice as u32, Relaxed);
    if record && before == Choice::Unknown as u32 {
        exit::register();
    }
    record
}

/// Returns whether the environment requests a recording. Never for a program with more rights than
/// its user, because the user would choose where it writes files.
fn is_asked_for() -> bool {
    const AT_SECURE: u64 = 23;
    // SAFETY: libc's function.
    let secure = unsafe {
        let getauxval: extern "C" fn(u64) -> u64 =
            core::mem::transmute(static_libc::find(b"getauxval\0"));
        getauxval(AT_SECURE) != 0
    };
    if secure {
        return false;
    }
    Options::get().is_some_and(|options| options.is_asked_for() && options.is_wanted())
}

/// If the library is loaded, it sees all allocations that the program's allocator requests from
/// malloc. Then calls of the interface go to the library, and nothing is counted twice.
fn follow_library() -> bool {
    // The first object is the program itself.
    let found = objects().skip(1).find_map(|map| look_up(map, b"heaptide_interface\0"));
    let Some((theirs, _)) = found else {
        return false;
    };
    let (theirs, ours) = (theirs as *const u64, exports::table());
    // SAFETY: both start with version and length in bytes, in one word; no more is written than
    // both have. Other threads may call through the table at the same time, and read either
    // function.
    unsafe {
        let words = (*theirs >> 32).min(exports::INTERFACE_BYTES as u64) as usize / 8;
        for i in 1..words {
            AtomicU64::from_ptr(ours.add(i)).store(*theirs.add(i), Relaxed);
        }
    }
    LIBRARY.store(true, Relaxed);
    true
}

/// Returns the function table for the program (`struct heaptide_interface`): null if nothing is
/// recorded here. `None` if [`Recorder`] is not the program's allocator.
pub fn interface() -> Option<*const c_void> {
    if is(Choice::Unknown) && follow_library() {
        CHOICE.store(Choice::Forward as u32, Relaxed);
    }
    if is(Choice::Unknown) {
        ask_allocator();
    }
    if is(Choice::Unknown) {
        return None;
    }
    let there = is(Choice::Record) || LIBRARY.load(Relaxed);
    Some(if there { exports::table() as *const c_void } else { core::ptr::null() })
}

/// Makes one allocation so that the program's allocator, if that is [`Recorder`], decides. It is
/// not recorded, because the thread counts as inside of the recorder.
fn ask_allocator() {
    let layout = Layout::new::<u64>();
    let busy = tls().busy.replace(1);
    // SAFETY: the block is freed with the layout of its allocation.
    unsafe {
        let block = core::hint::black_box(alloc::alloc::alloc(layout));
        if !block.is_null() {
            alloc::alloc::dealloc(block, layout);
        }
    }
    tls().busy.set(busy);
}
