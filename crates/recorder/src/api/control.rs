//! What the program tells the recorder: on and off, pauses. All of it is words in the profile's
//! header.

use crate::event::lane::{FLAG_PAUSED, LaneState};
use crate::event::marks;
use crate::event::process::process;
use crate::store::control_words::{clear, set};
use crate::sys::tls::tls;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use heaptide_format::{CONTROL_OFF, CONTROL_PAUSE, MarkKind};

/// Turns the process on or off, and marks the moment. The program's word to go on also ends what a
/// command or the environment turned off; its word to stop is for the program alone to take back.
pub fn turn(lane: &LaneState, on: bool) {
    let p = process();
    let was_off = lane.process_is_off();
    if on {
        clear(CONTROL_OFF);
        p.header().command_off.store(0, Release);
    } else {
        set(CONTROL_OFF);
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
    let paused = &tls().paused;
    paused.set(paused.get() + 1);
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
    let paused = &tls().paused;
    paused.set(paused.get().saturating_sub(1));
    if paused.get() == 0 {
        lane.flag(FLAG_PAUSED, false);
    }
}
