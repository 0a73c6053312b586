//! How the image ended, as far as it can tell itself.

use crate::event::process::{Process, State, process};
use crate::event::{accounts, output};
use crate::store::profile;
use crate::sys::libc::Function;
use crate::sys::{confined, kernel};
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::End;
use heaptide_format::shared::Word;

static ON_EXIT: Function = Function::new(b"on_exit\0");
static ATEXIT: Function = Function::new(b"__cxa_atexit\0");

/// Has libc tell of the exit. Registered first, so told last: the guest's own exit handlers are
/// recorded.
pub fn register() {
    // SAFETY: libc's functions. glibc has on_exit, which knows the status; the others do without.
    unsafe {
        if ON_EXIT.get() != 0 {
            let on_exit: extern "C" fn(extern "C" fn(i32, *mut u8), *mut u8) -> i32 =
                core::mem::transmute(ON_EXIT.get());
            on_exit(exits, core::ptr::null_mut());
        } else if ATEXIT.get() != 0 {
            type Handler = extern "C" fn(*mut u8);
            let atexit: extern "C" fn(Handler, *mut u8, *mut u8) -> i32 =
                core::mem::transmute(ATEXIT.get());
            atexit(exits_without_status, core::ptr::null_mut(), core::ptr::null_mut());
        }
    }
}

extern "C" fn exits(status: i32, _: *mut u8) {
    end(Some(status));
}

extern "C" fn exits_without_status(_: *mut u8) {
    end(None);
}

/// The last of the image that the recorder sees.
fn end(status: Option<i32>) {
    note(status);
    let p = process();
    if is_own(p) && confined::may_call() {
        output::write_at_exit(p);
        profile::remove_temporary(p);
    }
}

/// The image is about to become another program; whether that was noted. It is not in a child that
/// borrows our memory.
pub fn note_exec() -> bool {
    let p = process();
    if !is_own(p) || !confined::may_call() {
        return false;
    }
    let now = p.now();
    p.note_time(now);
    let header = p.header();
    header.end_time_ns.set(now);
    header.end_kind.set(End::Exec as u32);
    true
}

/// It did not: the exec failed.
pub fn take_exec_back(noted: bool) {
    if noted {
        let header = process().header();
        header.end_kind.set(End::Unknown as u32);
        header.end_time_ns.set(0);
    }
}

/// Whether the calling process is the one that is recorded, and not a child that borrows its memory
/// (vfork).
pub fn is_own(p: &Process) -> bool {
    p.state() == State::Active && (!confined::may_call() || kernel::getpid() == p.pid.load(Relaxed))
}

/// The image ends with this status, or with one that cannot be told. Not in a child that borrows
/// our memory (vfork): the image is the parent's.
pub fn note(status: Option<i32>) {
    let p = process();
    if !is_own(p) {
        return;
    }
    let header = p.header();
    let now = p.now();
    p.note_time(now);
    header.end_time_ns.set(now);
    if let Some(status) = status {
        header.end_code.set(status & 0xff);
        header.end_kind.set(End::Exited as u32);
    }
    accounts::take_at_end(p, now);
}
