//! Events of a process or thread that is more than just recorded: that is off or paused, measures
//! itself, has monitors or a stack threshold, counts by size, or has a request waiting. The hot
//! path looks at two words and comes here only then.

use crate::api::{control, marks, monitors, thread_measure};
use crate::event::fast_path;
use crate::event::lane::{FLAG_MEASURED, FLAG_PAUSED, Inside, LaneState};
use crate::event::process::process;
use crate::event::record::{self, Moving};
use heaptide_format::shared::Word;
use heaptide_format::{
    COMMAND_OFF, COMMAND_REQUEST, CONTROL_BY_SIZE, CONTROL_FEWER, CONTROL_MONITORS, CONTROL_OFF,
    CONTROL_PAUSE, CONTROL_THRESHOLD, CONTROL_TIMED, Gap, Mode,
};

impl LaneState {
    /// Whether events of this thread are looked at twice.
    #[inline(always)]
    pub fn is_attended(&self) -> bool {
        self.flags != 0 || self.is_watched()
    }

    /// Whether events of the whole process are.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        control::words(self.header).get() != 0
    }

    /// Sets or clears a flag.
    pub fn flag(&mut self, bit: u32, on: bool) {
        self.flags = if on { self.flags | bit } else { self.flags & !bit };
        fast_path::settle(self);
    }

    /// Whether allocations of this thread are not recorded now.
    pub fn is_off(&self) -> bool {
        self.flags & FLAG_PAUSED != 0 || self.process_is_off()
    }

    /// Whether allocations of the whole process are not recorded now.
    pub fn process_is_off(&self) -> bool {
        let (control, command) = self.words();
        control & CONTROL_OFF != 0 || control >= CONTROL_PAUSE || command & COMMAND_OFF != 0
    }

    /// The recorder's word and the commands'.
    fn words(&self) -> (u32, u32) {
        let both = control::words(self.header).get();
        (both as u32, (both >> 32) as u32)
    }

    /// Whether monitors are to be told.
    #[inline(always)]
    pub fn has_monitors(&self) -> bool {
        self.words().0 & CONTROL_MONITORS != 0
    }

    /// Whether sites are told apart by the size requested.
    #[inline(always)]
    pub fn is_by_size(&self) -> bool {
        self.words().0 & CONTROL_BY_SIZE != 0
    }

    fn is_measured(&self) -> bool {
        self.flags & FLAG_MEASURED != 0
    }

    /// Does what a command asked for, and takes a snapshot that is due.
    fn attend_request(&mut self) {
        let (control, command) = self.words();
        if command & COMMAND_REQUEST != 0 {
            control::answer(self);
        }
        if control & CONTROL_TIMED != 0 {
            let p = process();
            marks::snapshot_if_due(p, p.now(), self.index());
        }
    }
}

#[inline(never)]
pub fn allocated(inside: &mut Inside, block: *mut u8, requested: u64, usable: u64) {
    let lane = inside.lane();
    lane.attend_request();
    if lane.is_off() {
        return;
    }
    record::allocated_attended(inside, block, requested, usable);
    let lane = inside.lane();
    if lane.is_measured() {
        thread_measure::allocated(requested, usable);
    }
    if lane.has_monitors() {
        monitors::allocated(lane, block, requested, usable);
    }
}

#[inline(never)]
pub fn freed(inside: &mut Inside, block: *mut u8, usable: u64) {
    let lane = inside.lane();
    lane.attend_request();
    // What was allocated while off was not seen; where that is not known, nothing is.
    let off = lane.is_off();
    if off && (lane.mode == Mode::Counters as u32 || process().shadow.get(block as u64) == 0) {
        return;
    }
    if record::record_freed(lane, block, usable) {
        tell_freed(lane, block, usable);
    }
}

fn tell_freed(lane: &LaneState, block: *mut u8, usable: u64) {
    if lane.is_measured() {
        thread_measure::freed(usable);
    }
    if lane.has_monitors() {
        monitors::freed(lane, block, usable);
    }
}

/// Whether the failure is to be counted.
pub fn failed(lane: &mut LaneState) -> bool {
    lane.attend_request();
    let on = !lane.is_off();
    if on && lane.is_measured() {
        thread_measure::failed();
    }
    on
}

/// A reallocation that was a free.
#[inline(never)]
pub fn released(inside: &mut Inside, moving: Moving) {
    let lane = inside.lane();
    lane.attend_request();
    let (block, usable, known) = (moving.block, moving.usable, moving.is_known(lane));
    let unseen = lane.is_off() && (lane.mode == Mode::Counters as u32 || !known);
    if !unseen {
        moving.release_old(lane);
        if known {
            tell_freed(lane, block, usable);
        }
    }
    monitors::moved(lane);
}

#[inline(never)]
pub fn reallocated(
    inside: &mut Inside,
    moving: Moving,
    block: *mut u8,
    requested: u64,
    usable: u64,
) {
    if inside.lane().is_off() {
        return released(inside, moving);
    }
    let lane = inside.lane();
    lane.attend_request();
    let (old, before) = (moving.block, moving.usable);
    let known = moving.is_known(lane);
    moving.record(inside, block, requested, usable);
    let lane = inside.lane();
    if lane.is_measured() {
        thread_measure::reallocated(
            block == old && known,
            if known { before } else { 0 },
            requested,
            usable,
        );
    }
    if lane.has_monitors() {
        tell_reallocated(lane, (old, before, known), block, requested, usable);
    }
    monitors::moved(lane);
}

/// Moved: both blocks were there for a moment. In place: never more than one.
fn tell_reallocated(
    lane: &LaneState,
    (old, before, known): (*mut u8, u64, bool),
    block: *mut u8,
    requested: u64,
    usable: u64,
) {
    if known && old == block {
        monitors::freed(lane, old, before);
    }
    monitors::allocated(lane, block, requested, usable);
    if known && old != block {
        monitors::freed(lane, old, before);
    }
}

pub fn resized(lane: &LaneState, block: *mut u8, before: u64, requested: u64, after: u64) {
    if lane.is_measured() {
        thread_measure::reallocated(true, before, requested, after);
    }
    if lane.has_monitors() {
        tell_reallocated(lane, (block, before, true), block, requested, after);
    }
}

/// What stands for the stack of a request on the other side of the threshold.
#[inline(always)]
pub fn gap(lane: &LaneState, requested: u64) -> Option<Gap> {
    let (control, _) = lane.words();
    if control & CONTROL_THRESHOLD == 0 {
        return None;
    }
    let threshold = lane.header.threshold_bytes.get();
    match (control & CONTROL_FEWER != 0, requested < threshold) {
        (false, true) => Some(Gap::BelowThreshold),
        (true, false) => Some(Gap::AboveThreshold),
        _ => None,
    }
}
