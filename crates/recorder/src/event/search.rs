//! Waits at the end of the image until a command has searched its memory for what keeps its blocks
//! (`heaptide run --retain`).

use crate::event::process::is_own;
use crate::store::shared::store;
use crate::sys::options::Options;
use crate::sys::wiped::Wiped;
use crate::sys::{clock, confined, kernel};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use heaptide_format::shared::{FileHeader, Word};
use heaptide_format::{SEARCH_AWAITED, SEARCH_PATIENCE_NS};

/// The time between two looks at the header.
const INTERVAL_NS: u64 = 5_000_000;

/// Whether the image has waited.
// SAFETY: all zeros is a valid value: it has not.
#[unsafe(link_section = ".bss.wiped")]
static HAS_WAITED: Wiped<AtomicBool> = unsafe { Wiped::new() };

/// Makes forked children wait at their own end.
pub fn wipe_in_children() {
    HAS_WAITED.wipe_in_children();
}

/// Waits, once, if a command requested it and shows that it is there.
pub fn wait() {
    let is_wanted = Options::known().is_some_and(|options| options.retain);
    if !is_wanted || !is_own() || !confined::may_call() {
        return;
    }
    if HAS_WAITED.get().swap(true, AcqRel) {
        return;
    }
    let header = store().header();
    kernel::allow_tracing(true);
    wait_for_command(header);
    kernel::allow_tracing(false);
}

fn wait_for_command(header: &FileHeader) {
    header.search_thread.set(kernel::gettid());
    let (mut beats, mut seen_ns) = (header.search_beats.load(Relaxed), clock::system_ns());
    // A command that ends before the program has stored that it does not search.
    let begun = header.search.compare_exchange(0, SEARCH_AWAITED, AcqRel, Relaxed);
    while begun.is_ok() && header.search.load(Acquire) == SEARCH_AWAITED {
        kernel::wait_for_change(&header.search, SEARCH_AWAITED, INTERVAL_NS);
        let (now, now_ns) = (header.search_beats.load(Relaxed), clock::system_ns());
        if now != beats {
            (beats, seen_ns) = (now, now_ns);
        } else if now_ns.wrapping_sub(seen_ns) > SEARCH_PATIENCE_NS {
            return header.search.store(0, Release);
        }
    }
}
