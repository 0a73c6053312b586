//! What the program and commands from outside tell the recorder: on and off, thresholds, requests.
//! All of it is words in the profile's header, which is mapped here and is a file there.

use crate::api::marks::{self, Patience};
use crate::api::monitors;
use crate::event::lane::{FLAG_PAUSED, LaneState};
use crate::event::process::{Process, process};
use crate::event::timeline;
use crate::sys::libc::Function;
use crate::sys::options::Options;
use crate::sys::tls::tls;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use heaptide_format::shared::{FileHeader, Word};
use heaptide_format::{
    CONTROL_BY_SIZE, CONTROL_FEWER, CONTROL_OFF, CONTROL_PAUSE, CONTROL_THRESHOLD, CONTROL_TIMED,
    MarkKind, Mode, REQUEST_TEXT, Request,
};

/// The two words that every event looks at, as one: the recorder's, and the commands' bytes.
#[inline(always)]
pub fn words(header: &FileHeader) -> &AtomicU64 {
    // SAFETY: `control` is 8-aligned and the bytes follow it; all are atomic.
    unsafe { &*(&raw const header.control as *const AtomicU64) }
}

const _: () = assert!(offset_of!(FileHeader, control).is_multiple_of(8));
const _: () = assert!(offset_of!(FileHeader, command_off) == offset_of!(FileHeader, control) + 4);
const _: () =
    assert!(offset_of!(FileHeader, command_request) == offset_of!(FileHeader, command_off) + 1);

pub fn set(p: &Process, bit: u32) {
    p.header().control.fetch_or(bit, AcqRel);
}

pub fn clear(p: &Process, bit: u32) {
    p.header().control.fetch_and(!bit, AcqRel);
}

/// What the environment asks for, before the first event.
pub fn prepare(p: &Process, options: &Options) {
    if options.start_off {
        p.header().command_off.store(1, Release);
    }
    if let Some((bytes, below)) = options.threshold {
        threshold(bytes, below);
    }
    if options.by_size && options.mode != Mode::Counters {
        set(p, CONTROL_BY_SIZE);
    }
    monitors::resume(p);
    if options.snapshot_every_ns != 0 {
        p.moments.every_ns.store(options.snapshot_every_ns, Relaxed);
        set(p, CONTROL_TIMED);
    }
    if options.snapshot_signal != 0 {
        snapshot_on(options.snapshot_signal);
    }
}

/// Turns the process on or off, and marks the moment. The program's word to go on also ends what a
/// command or the environment turned off; its word to stop is for the program alone to take back.
pub fn turn(lane: &LaneState, on: bool) {
    let p = process();
    let was_off = lane.process_is_off();
    if on {
        clear(p, CONTROL_OFF);
        p.header().command_off.store(0, Release);
    } else {
        set(p, CONTROL_OFF);
    }
    if was_off != lane.process_is_off() {
        let kind = if on { MarkKind::On } else { MarkKind::Off };
        marks::mark(b"", kind, lane.index(), 0);
    }
}

/// One pause more, of this thread or of all.
pub fn pause(lane: &mut LaneState, whole_process: bool) {
    if whole_process {
        process().header().control.fetch_add(CONTROL_PAUSE, AcqRel);
        return;
    }
    // SAFETY: the thread's own block.
    unsafe { (*tls()).paused += 1 };
    lane.flag(FLAG_PAUSED, true);
}

/// One pause less; none if there is none.
pub fn resume(lane: &mut LaneState, whole_process: bool) {
    if whole_process {
        let control = &process().header().control;
        let less = |bits: u32| (bits >= CONTROL_PAUSE).then(|| bits - CONTROL_PAUSE);
        let _ = control.fetch_update(AcqRel, Acquire, less);
        return;
    }
    // SAFETY: the thread's own block.
    unsafe {
        let paused = &mut (*tls()).paused;
        *paused = paused.saturating_sub(1);
        if *paused == 0 {
            lane.flag(FLAG_PAUSED, false);
        }
    }
}

/// Stacks only for requests of `bytes` and more, or for those below it; 0 for all.
pub fn threshold(bytes: u64, below: bool) {
    let p = process();
    clear(p, CONTROL_THRESHOLD | CONTROL_FEWER);
    if bytes == 0 {
        return;
    }
    p.header().threshold_bytes.set(bytes);
    set(p, if below { CONTROL_THRESHOLD | CONTROL_FEWER } else { CONTROL_THRESHOLD });
}

/// In [`FileHeader::request_value`] of a threshold: for those below it.
const BELOW: u64 = 1 << 63;

/// Does what a command asked for, once, whichever thread comes first.
#[cold]
#[inline(never)]
pub fn answer(lane: &mut LaneState) {
    let header = lane.header;
    let request = header.request.load(Acquire);
    let before = header.answered.load(Acquire);
    let taken = &process().requests_taken;
    let seen = taken.load(Acquire);
    if before == request || seen == request {
        return;
    }
    if taken.compare_exchange(seen, request, AcqRel, Relaxed).is_err() {
        return;
    }
    perform(lane);
    header.answered.store(request, Release);
    // Its command may have given up and gone. The next one may just have come.
    header.command_request.swap(0, SeqCst);
    if header.request.load(SeqCst) != request {
        header.command_request.store(1, Release);
    }
}

fn perform(lane: &mut LaneState) {
    let header = lane.header;
    let mut text = [0u8; REQUEST_TEXT];
    // The command writes all this before it raises `request`.
    for (byte, given) in text.iter_mut().zip(&header.request_text) {
        *byte = given.get();
    }
    let (kind, time) = (header.request_kind.get(), header.request_time_ns.get());
    let value = header.request_value.get();
    let name = &text[..(header.request_length.get() as usize).min(REQUEST_TEXT)];
    let p = process();
    match kind {
        k if k == Request::Mark as u32 => {
            marks::mark_at(p, time, name, MarkKind::Mark, u32::MAX, 0);
        }
        k if k == Request::Snapshot as u32 => {
            marks::mark_at(p, time, name, MarkKind::Snapshot, u32::MAX, value as u32);
        }
        k if k == Request::Reset as u32 => {
            marks::reset(lane);
        }
        k if k == Request::Flush as u32 => flush(lane),
        k if k == Request::Threshold as u32 => threshold(value & !BELOW, value & BELOW != 0),
        _ => {}
    }
}

/// Publishes what the thread holds back, and takes a sample.
pub fn flush(lane: &mut LaneState) {
    lane.live.publish(process(), lane.header);
    timeline::sample(lane);
}

static SIGACTION: Function = Function::new(b"sigaction\0");

/// As libc's: the handler, a mask, flags, and a word that libc fills.
#[repr(C)]
struct SigAction {
    handler: extern "C" fn(i32),
    mask: [u64; 16],
    flags: i32,
    restorer: usize,
}

/// Has a signal take a snapshot.
fn snapshot_on(signal: u32) {
    const SA_RESTART: i32 = 0x1000_0000;
    if SIGACTION.get() == 0 {
        return;
    }
    let action = SigAction { handler: snapshot_now, mask: [0; 16], flags: SA_RESTART, restorer: 0 };
    // SAFETY: libc's sigaction, with a struct laid out as glibc and musl have it.
    unsafe {
        let sigaction: extern "C" fn(i32, *const SigAction, *mut SigAction) -> i32 =
            core::mem::transmute(SIGACTION.get());
        sigaction(signal as i32, &action, core::ptr::null_mut());
    }
}

extern "C" fn snapshot_now(_: i32) {
    let p = process();
    if p.state() == crate::event::process::State::Active {
        marks::snapshot(b"", u32::MAX, Patience::NeverWaits);
    }
}
