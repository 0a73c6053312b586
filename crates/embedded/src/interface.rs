//! The decision whether the program is recorded, and the table of functions for the program.

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

/// The library is in this process too, and our table is a copy of its own.
static LIBRARY: AtomicBool = AtomicBool::new(false);

/// Whether events are to be recorded; decides that if nobody has.
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

/// Whether the environment asks for a recording. Never of a program that has rights its user has
/// not: the user says where files are written.
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

/// If the library is loaded, it sees all that the program's allocator asks of malloc: what programs
/// tell goes there, and nothing is counted twice.
fn follow_library() -> bool {
    // The first object is the program itself.
    let found = objects().skip(1).find_map(|map| look_up(map, b"heaptide_interface\0"));
    let Some((theirs, _)) = found else {
        return false;
    };
    let (theirs, ours) = (theirs as *const u64, exports::table());
    // SAFETY: both begin with a version and their length in bytes, in one word; no more is written
    // than both have. Other threads may call through ours at this very moment, and find the one
    // function or the other.
    unsafe {
        let words = (*theirs >> 32).min(exports::INTERFACE_BYTES as u64) as usize / 8;
        for i in 1..words {
            AtomicU64::from_ptr(ours.add(i)).store(*theirs.add(i), Relaxed);
        }
    }
    LIBRARY.store(true, Relaxed);
    true
}

/// The table of functions for the program (`struct heaptide_interface`): null if nothing records
/// here. None if [`Recorder`] is not the program's allocator.
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

/// Has the program's allocator, if that is [`Recorder`], decide. Not an event: the thread counts as
/// one that cannot be recorded just now.
fn ask_allocator() {
    let layout = Layout::new::<u64>();
    let busy = tls().busy.replace(1);
    // SAFETY: a block that is freed as it was allocated.
    unsafe {
        let block = core::hint::black_box(alloc::alloc::alloc(layout));
        if !block.is_null() {
            alloc::alloc::dealloc(block, layout);
        }
    }
    tls().busy.set(busy);
}
