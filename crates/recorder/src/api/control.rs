//! Control by the program: on and off, pauses. All of it is stored in words of the profile's
//! header.

use crate::event::lane::{FLAG_PAUSED, LaneState};
use crate::event::marks;
use crate::store::control_words::{clear, set};
use crate::store::shared::store;
use crate::sys::tls::tls;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use heaptide_format::{CONTROL_OFF, CONTROL_PAUSE, MarkKind};

/// Turns recording of the process on or off, and puts a mark if that changes it. On also overrides
/// an off of a command or the environment; an off by the program can only be reverted by the
/// program.
pub fn turn(lane: &LaneState, on: bool) {
    let p = store();
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

/// Adds a pause of this thread or of the process.
pub fn pause(lane: &mut LaneState, whole_process: bool) {
    if whole_process {
        store().header().control.fetch_add(CONTROL_PAUSE, AcqRel);
        return;
    }
    let paused = &tls().paused;
    paused.set(paused.get() + 1);
    lane.flag(FLAG_PAUSED, true);
}

/// Removes a pause of this thread or of the process, if there is one.
pub fn resume(lane: &mut LaneState, whole_process: bool) {
    if whole_process {
        let control = &store().header().control;
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
