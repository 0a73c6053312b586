//! The trace: each event is packed into an extent of its lane ([`trace_extents`]) and made visible
//! by one store.

use crate::event::inside::Inside;
use crate::event::lane::{self, LaneState, NOBODY};
use crate::event::stacks;
use crate::event::trace_extents::{self, pack};
use crate::store::ids::{NodeId, ScopeId, SiteId};
use crate::store::shared::{Store, store};
use crate::sys::options::Options;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use heaptide_format::shared::{FileHeader, Word};
use heaptide_format::{Loss, Mode, TRACE_ENDS, TRACE_FREE_STACKS, TRACE_ON, TRACE_SCOPES};
use heaptide_trace::{Block, Encoder, LONGEST, Record};

/// Whether frees are recorded with stacks; read by their entry.
pub static FREE_STACKS: AtomicBool = AtomicBool::new(false);

/// Whether frees are recorded with the site and the size of their block.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Enables the trace in the header of a new profile.
pub fn prepare(header: &FileHeader, options: &Options) {
    if !options.trace {
        return;
    }
    let stacks = if options.free_stacks { TRACE_FREE_STACKS } else { 0 };
    let with = stacks | if options.trace_ends { TRACE_ENDS } else { 0 };
    FREE_STACKS.store(options.free_stacks, Relaxed);
    ENDS.store(options.trace_ends, Relaxed);
    trace_extents::begin_clock();
    header.trace_limit.set(options.max_size);
    header.trace.set(TRACE_ON | TRACE_SCOPES | with);
}

/// Traces the events of a thread that took the lane, if the process is traced.
pub fn begin(lane: &mut LaneState, tid: u32) {
    if lane.header.trace.get() & TRACE_ON == 0 || lane.mode == Mode::Counters as u32 {
        return;
    }
    lane.trace = lane.trace_memory;
    // SAFETY: the lane's own memory, to which nothing else refers.
    unsafe {
        if (*lane.trace).extent.is_none() {
            (*lane.trace).scope = ScopeId::of(lane.place.scope);
        } else {
            write_scope(lane); // the thread before may have left scopes open
            write_record(lane, &Record::Thread(tid));
        }
        (*lane.trace_memory).tid = tid;
    }
}

/// Records that the thread has begun or ended a scope, or entered another context.
#[inline(always)]
pub fn scope_changed(lane: &mut LaneState) {
    if lane.is_traced() {
        write_scope(lane);
    }
}

/// Records an allocation.
#[inline(never)]
pub fn write_alloc(
    lane: &mut LaneState,
    block: *const u8,
    (site, requested, usable): (SiteId, u64, u64),
    [reallocated, remapped]: [bool; 2],
) {
    let (address, site) = (block as u64, site.number());
    let block = Block { address, site, requested, usable, reallocated, remapped };
    let element = lane.gate.element();
    if element != 0 {
        let record = Record::Element(element);
        write(lane, |encoder, room, ticks| encoder.record(room, ticks, &record));
    }
    write(lane, |encoder, room, ticks| encoder.allocated(room, ticks, &block));
}

/// Records that a block of this site and size is about to be freed.
#[inline(never)]
pub fn write_free(lane: &mut LaneState, block: *const u8, site: SiteId, usable: u64) {
    write_position(lane);
    if ENDS.load(Relaxed) {
        return ended(lane, block, (site, usable), false);
    }
    write(lane, |encoder, room, ticks| encoder.freed(room, ticks, block as u64));
}

/// Records that a block is about to be reallocated.
#[inline(never)]
pub fn write_move(lane: &mut LaneState, block: *const u8, site: SiteId, usable: u64) {
    write_position(lane);
    if ENDS.load(Relaxed) {
        return ended(lane, block, (site, usable), true);
    }
    write(lane, |encoder, room, ticks| encoder.moving(room, ticks, block as u64));
}

#[inline(never)]
fn ended(lane: &mut LaneState, block: *const u8, (site, usable): (SiteId, u64), moving: bool) {
    let record = Record::Ended { address: block as u64, site: site.number(), usable, moving };
    write(lane, |encoder, room, ticks| encoder.record(room, ticks, &record));
}

/// Records that a block was freed inside the recorder.
#[cold]
pub fn write_nested_free(block: *const u8, site: SiteId, usable: u64) {
    let (address, site) = (block as u64, site.number());
    let record = if ENDS.load(Relaxed) {
        Record::Ended { address, site, usable, moving: false }
    } else {
        Record::Freed { address }
    };
    write_for_nobody(store(), &record);
}

/// Records any other event.
#[inline(never)]
pub fn write_record(lane: &mut LaneState, record: &Record) {
    if lane.is_traced() {
        // The end of a reallocation has the position of its beginning.
        use Record::{Node, Released, Scope, StillThere, Thread};
        if !matches!(record, Thread(_) | Scope(_) | Node(_) | StillThere | Released) {
            write_position(lane);
        }
        write(lane, |encoder, room, ticks| encoder.record(room, ticks, record));
    }
}

/// Records an event for callers that only know the lane's index, or have none.
pub fn write_for(index: u32, record: &Record) {
    let p = store();
    if p.header().trace.get() & TRACE_ON == 0 {
        return;
    }
    if index == NOBODY {
        return write_for_nobody(p, record);
    }
    if let Some(&lane) = lane::all().get(index as usize) {
        // SAFETY: the calling thread's lane, which stays mapped.
        write_record(unsafe { &mut *lane }, record);
    }
}

/// Records an event that happens inside the recorder and belongs to no lane.
#[cold]
pub fn write_for_nobody(p: &Store, record: &Record) {
    if p.header().trace.get() & TRACE_ON == 0 {
        return;
    }
    let told = trace_extents::pack_of_nobody(record);
    if !told && p.header().trace_stopped_ns.get() == 0 {
        p.lost(Loss::NoEvent);
    }
}

/// Notes the stack of the current free, if frees have stacks.
pub fn capture_free(inside: &mut Inside) {
    let entry = inside.entry();
    let lane = inside.lane();
    if lane.is_traced() && FREE_STACKS.load(Relaxed) {
        let node = stacks::capture(lane, entry.registers());
        // SAFETY: the lane's own memory.
        unsafe { (*lane.trace).node_here = node };
    }
}

/// Writes the current scope if it has changed since the last record.
#[inline(never)]
fn write_scope(lane: &mut LaneState) {
    let scope = ScopeId::of(lane.place.scope);
    // SAFETY: the lane's own memory, which exists even after the trace has ended.
    if unsafe { (*lane.trace_memory).scope } == scope {
        return;
    }
    // If this record is the first of a new extent, that begins with the scope before.
    let record = Record::Scope(scope.number());
    write(lane, |encoder, room, ticks| encoder.record(room, ticks, &record));
    // SAFETY: as above.
    unsafe { (*lane.trace_memory).scope = scope };
}

/// Writes the current scope and stack if they have changed since the last record.
#[inline(always)]
fn write_position(lane: &mut LaneState) {
    write_scope(lane);
    // SAFETY: the lane's own memory, which exists even after the trace has ended.
    unsafe {
        let node = core::mem::replace(&mut (*lane.trace_memory).node_here, NodeId::NONE);
        if (*lane.trace_memory).node != node {
            (*lane.trace_memory).node = node;
            let node = Record::Node(node.number());
            write(lane, |encoder, room, ticks| encoder.record(room, ticks, &node));
        }
    }
}

#[inline(always)]
fn write(lane: &mut LaneState, by: impl FnOnce(&mut Encoder, &mut [u8; LONGEST], u64) -> usize) {
    if !lane.is_traced() {
        return;
    }
    // SAFETY: the lane's own memory, to which nothing else refers.
    let writer = unsafe { &mut *lane.trace };
    if !pack(writer, lane.place.lane, by) {
        lane.trace = core::ptr::null_mut();
    }
}
