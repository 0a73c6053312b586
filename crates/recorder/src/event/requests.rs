//! Requests of commands. The next event of any thread handles them.

use crate::event::lane::LaneState;
use crate::event::marks;
use crate::event::timeline;
use crate::store::control_words::{clear, set};
use crate::store::shared::store;
use crate::sys::wiped::Wiped;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use heaptide_format::shared::Word;
use heaptide_format::{
    CONTROL_FEWER, CONTROL_THRESHOLD, MarkKind, REQUEST_BELOW, REQUEST_TEXT, Request,
};

/// The last request that a thread took.
// SAFETY: all zeros is a valid value: no request.
#[unsafe(link_section = ".bss.wiped")]
static TAKEN: Wiped<AtomicU32> = unsafe { Wiped::new() };

/// Makes forked children start without a request.
pub fn wipe_in_children() {
    TAKEN.wipe_in_children();
}

/// Restricts stacks to requests of at least `bytes`, or below it; 0 records all.
pub fn threshold(bytes: u64, below: bool) {
    let p = store();
    clear(CONTROL_THRESHOLD | CONTROL_FEWER);
    if bytes == 0 {
        return;
    }
    p.header().threshold_bytes.set(bytes);
    set(if below { CONTROL_THRESHOLD | CONTROL_FEWER } else { CONTROL_THRESHOLD });
}

/// Handles a request of a command, once, on the first thread that notices it.
#[cold]
#[inline(never)]
pub fn answer(lane: &mut LaneState) {
    let header = lane.header;
    let request = header.request.load(Acquire);
    let before = header.answered.load(Acquire);
    let taken = TAKEN.get();
    let seen = taken.load(Acquire);
    if before == request || seen == request {
        return;
    }
    if taken.compare_exchange(seen, request, AcqRel, Relaxed).is_err() {
        return;
    }
    perform(lane);
    header.answered.store(request, Release);
    // Its command may have given up and ended, and the next request may just have arrived.
    header.command_request.swap(0, SeqCst);
    if header.request.load(SeqCst) != request {
        header.command_request.store(1, Release);
    }
}

fn perform(lane: &mut LaneState) {
    let header = lane.header;
    let mut text = [0u8; REQUEST_TEXT];
    // The command writes all of this before it increments `request`.
    for (byte, given) in text.iter_mut().zip(&header.request_text) {
        *byte = given.get();
    }
    let (kind, time) = (header.request_kind.get(), header.request_time_ns.get());
    let value = header.request_value.get();
    let name = &text[..(header.request_length.get() as usize).min(REQUEST_TEXT)];
    match kind {
        k if k == Request::Mark as u32 => {
            marks::mark_at(store(), time, name, MarkKind::Mark, u32::MAX, 0);
        }
        k if k == Request::Snapshot as u32 => {
            marks::note_snapshot(time, name, value as u32);
        }
        k if k == Request::Reset as u32 => {
            marks::reset(lane);
        }
        k if k == Request::Flush as u32 => flush(lane),
        k if k == Request::Turned as u32 => {
            let kind = if value == 0 { MarkKind::Off } else { MarkKind::On };
            marks::mark_at(store(), time, b"", kind, u32::MAX, 0);
        }
        k if k == Request::Threshold as u32 => {
            threshold(value & !REQUEST_BELOW, value & REQUEST_BELOW != 0)
        }
        _ => {}
    }
}

/// Publishes the counters that the thread holds back, and takes a sample.
pub fn flush(lane: &mut LaneState) {
    lane.publish_live();
    timeline::sample(lane);
}
