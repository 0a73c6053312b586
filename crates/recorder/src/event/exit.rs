//! The end of the image, as far as the image itself can detect it.

use crate::event::process::{is_own, process};
use crate::event::{accounts, output, search};
use crate::store::directory;
use crate::store::shared::store;
use crate::sys::confined;
use crate::sys::libc::Function;
use heaptide_format::End;
use heaptide_format::shared::Word;

static ON_EXIT: Function = Function::new(b"on_exit\0");
static ATEXIT: Function = Function::new(b"__cxa_atexit\0");
static AT_QUICK_EXIT: Function = Function::new(b"__cxa_at_quick_exit\0");

/// Registers handlers with libc, for `exit` and for `quick_exit`. They are registered first and so
/// called last: the exit handlers of the guest are recorded.
pub fn register() {
    // SAFETY: libc's functions. glibc has on_exit, which passes the status; with other libraries it
    // is unknown.
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
        if AT_QUICK_EXIT.get() != 0 {
            type Handler = extern "C" fn(*mut u8);
            let at_quick_exit: extern "C" fn(Handler, *mut u8) -> i32 =
                core::mem::transmute(AT_QUICK_EXIT.get());
            at_quick_exit(exits_quickly, core::ptr::null_mut());
        }
    }
}

extern "C" fn exits(status: i32, _: *mut u8) {
    end(Some(status));
}

extern "C" fn exits_without_status(_: *mut u8) {
    end(None);
}

/// The end is noted; the handlers of the guest have run.
extern "C" fn exits_quickly(_: *mut u8) {
    search::wait();
}

/// Handles the last point of the image that the recorder sees.
fn end(status: Option<i32>) {
    note(status);
    search::wait();
    if is_own() && confined::may_call() {
        output::write_at_exit(store());
        directory::remove_temporary(store());
    }
}

/// Handles an end whose handlers are still to run: they may write output from the recording.
pub fn end_after_handlers(status: i32) {
    note(Some(status));
}

/// Handles an end without handlers, after which nothing is written.
pub fn end_at_once(status: i32) {
    note(Some(status));
    search::wait();
    if is_own() && confined::may_call() {
        directory::remove_temporary(store());
    }
}

/// Notes that the image is about to execute another program. Returns whether that was noted; it is
/// not in a child that borrows the memory of its parent (vfork).
pub fn note_exec() -> bool {
    let p = store();
    if !is_own() || !confined::may_call() {
        return false;
    }
    let now = p.now();
    p.note_time(now);
    let header = p.header();
    header.end_time_ns.set(now);
    header.end_kind.set(End::Exec as u32);
    true
}

/// Reverts that note after the exec has failed.
pub fn take_exec_back(noted: bool) {
    if noted {
        let header = store().header();
        header.end_kind.set(End::Unknown as u32);
        header.end_time_ns.set(0);
    }
}

/// Notes that the image ends, with its status if that is known. Does nothing in a child that
/// borrows the memory of its parent (vfork), since the image is the parent's.
pub fn note(status: Option<i32>) {
    let p = store();
    if !is_own() {
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
    accounts::take_at_end(process(), now);
}
