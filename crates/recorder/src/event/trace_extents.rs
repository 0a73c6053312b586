//! Extents of events: a lane writes one, and goes on in another when it is full.
//!
//! An extent that is full waits for whoever moves its contents elsewhere, and is then written anew
//! by any lane, so the file does not grow with the number of events. Where nobody does, or the
//! bound is reached, the trace ends, and all else goes on.

use crate::event::process::Process;
use crate::store::ids::{NodeId, ScopeId};
use crate::store::profile::{self, NoExtent};
use crate::sys::arch;
use crate::sys::clock;
use crate::sys::confined;
use crate::sys::kernel::{self, Errno};
use crate::sys::locked::Locked;
use crate::sys::wiped::Wiped;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heaptide_format::shared::{ExtentHeader, TraceStart, Word};
use heaptide_format::{
    Kind, Loss, TRACE_EXTENT_MAX, TRACE_FULL, TRACE_MOVED, TRACE_NOBODY, TRACE_WRITING,
};
use heaptide_trace::{Encoder, LONGEST, Record};

/// A lane's first extent; later ones are four times as long each, up to the longest.
const FIRST: u64 = 16 << 10;
/// Full extents that may be written anew once they are moved; more are left to who moves them.
const WAITING: usize = 4096;
/// How often a lane waits for its turn to make the file grow.
const PATIENCE: usize = 32;
/// More full extents than these say that whoever moves them is behind.
const BEHIND: usize = 16;
/// Records between two comparisons of clock and time, in the long run.
const BETWEEN: u32 = 4096;
/// Bits of the clock's nanoseconds that are dropped, so that the next event is most often less than
/// a byte away.
const NS_SHIFT: u32 = 3;

/// What counts ticks.
#[repr(u32)]
enum Clock {
    /// Nothing, any more: time stands still.
    None = 0,
    /// The processor's counter.
    Counter = 1,
    /// The monotonic clock.
    Monotonic = 2,
}

/// What all lanes share. Zero is: no trace.
struct Shared {
    clock: AtomicU32,
    numbers: AtomicU32,
    full: Locked<Full>,
    nobody: Locked<Writer>,
}

// SAFETY: zero is a valid value of every field.
static SHARED: Wiped<Shared> = unsafe { Wiped::new() };

/// Has a forked child find no trace.
///
/// Errors: the kernel's.
pub fn wipe_in_children() -> Result<(), Errno> {
    SHARED.wipe_in_children()
}

/// Full extents, the oldest first.
struct Full {
    first: usize,
    count: usize,
    extents: [Option<&'static ExtentHeader>; WAITING],
}

/// A lane's place in its extent. Zero is: none yet.
pub struct Writer {
    encoder: Encoder,
    pub extent: Option<&'static ExtentHeader>,
    next: *mut u8,
    end: *mut u8,
    length: u64,
    /// What the records so far say.
    pub scope: ScopeId,
    pub tid: u32,
    pub node: NodeId,
    /// The stack of the free in hand.
    pub node_here: NodeId,
    /// Records until clock and time are compared, and how many that were the last time.
    compare_in: u32,
    between: u32,
}

/// Chooses what counts ticks.
pub fn begin_clock() {
    let clock = if clock::counter_is_a_clock() { Clock::Counter } else { Clock::Monotonic };
    set_clock(clock as u32);
}

/// The guest is about to forbid itself to read the clock.
pub fn stop_clock() {
    set_clock(Clock::None as u32);
}

/// What counts ticks now, as a number to give back to [`set_clock`].
pub fn clock() -> u32 {
    SHARED.get().clock.load(Relaxed)
}

/// Has something else count ticks.
pub fn set_clock(clock: u32) {
    SHARED.get().clock.store(clock, Relaxed);
}

#[inline(always)]
fn ticks(p: &Process) -> u64 {
    match SHARED.get().clock.load(Relaxed) {
        1 => arch::counter() >> arch::COUNTER_SHIFT, // not forbidden: see `stop_clock`
        2 if confined::may_call() => p.now() >> NS_SHIFT,
        _ => 0,
    }
}

/// Packs a record that belongs to no lane; false if it could not be stored.
pub fn pack_of_nobody(p: &Process, record: &Record) -> bool {
    SHARED.get().nobody.try_acquire().is_some_and(|mut writer| {
        pack(p, &mut writer, TRACE_NOBODY, |encoder, room, ticks| {
            encoder.record(room, ticks, record)
        })
    })
}

/// Packs a record and makes it visible; false if there is no room, and will not be.
#[inline(always)]
pub fn pack(
    p: &Process,
    writer: &mut Writer,
    lane: u32,
    by: impl FnOnce(&mut Encoder, &mut [u8; LONGEST], u64) -> usize,
) -> bool {
    let room = (writer.end as usize).wrapping_sub(writer.next as usize);
    if room < LONGEST && !next_extent(p, writer, lane) {
        return false;
    }
    // SAFETY: the extent has that much room left, which is the lane's alone.
    let length = unsafe {
        let room = &mut *(writer.next as *mut [u8; LONGEST]);
        by(&mut writer.encoder, room, ticks(p))
    };
    writer.next = writer.next.wrapping_add(length);
    if let Some(extent) = writer.extent {
        let begin = profile::first_record(extent) as u64;
        extent.committed.store((writer.next as u64).wrapping_sub(begin), Release);
    }
    writer.compare_in = writer.compare_in.wrapping_sub(1);
    if writer.compare_in == 0 {
        compare(p, writer);
    }
    true
}

/// The first record of an extent of events.
fn start_of(extent: &'static ExtentHeader) -> &'static TraceStart {
    // SAFETY: extents stay mapped and begin with one.
    unsafe { &*(profile::first_record(extent) as *const TraceStart) }
}

/// The clock and the time of this moment; no time where it cannot be had.
fn now(p: &Process) -> (u64, u64) {
    let time = if confined::may_call() { p.now() } else { 0 };
    (ticks(p), time)
}

/// Notes once more how clock and time stand to each other.
#[cold]
#[inline(never)]
fn compare(p: &Process, writer: &mut Writer) {
    writer.between = (writer.between * 2).clamp(1, BETWEEN);
    writer.compare_in = writer.between;
    let (ticks, time) = now(p);
    if let Some(extent) = writer.extent.filter(|_| time != 0) {
        let start = start_of(extent);
        start.last_ticks.set(ticks);
        start.last_time_ns.set(time);
    }
}

/// Goes on in another extent; false if there is none, which ends the trace.
#[cold]
#[inline(never)]
fn next_extent(p: &Process, writer: &mut Writer, lane: u32) -> bool {
    if let Some(extent) = writer.extent {
        leave(p, writer, extent);
    }
    let Some(extent) = moved_extent().or_else(|| new_extent(p, writer, lane)) else {
        stop(p);
        return false;
    };
    let (ticks, time_ns) = now(p);
    let number = SHARED.get().numbers.fetch_add(1, Relaxed).wrapping_add(1);
    // Nobody else writes the extent. Readers see no contents before `committed` covers them, and
    // that they are others by their number.
    let start = start_of(extent);
    extent.committed.store(0, Release);
    start.number.store(number, Release);
    extent.lane.set(lane);
    start.ticks.set(ticks);
    start.time_ns.set(time_ns);
    start.last_ticks.set(0);
    start.last_time_ns.set(0);
    start.scope.set(writer.scope.number());
    start.tid.set(writer.tid);
    start.node.set(writer.node.number());
    start.state.store(TRACE_WRITING, Release);
    let length = extent.length.get();
    (writer.extent, writer.length) = (Some(extent), length);
    writer.next = profile::first_record(extent).wrapping_add(size_of::<TraceStart>());
    writer.end = profile::address_of(extent).wrapping_add(length as usize);
    extent.committed.store(size_of::<TraceStart>() as u64, Release);
    writer.encoder.begin(ticks);
    (writer.compare_in, writer.between) = (1, 0);
    true
}

/// The extent is full: whoever moves its contents may do so, and its memory is not the guest's for
/// now.
fn leave(p: &Process, writer: &mut Writer, extent: &'static ExtentHeader) {
    compare(p, writer);
    start_of(extent).state.store(TRACE_FULL, Release);
    if confined::may_call() {
        let (memory, bytes) = (profile::address_of(extent), writer.length as usize);
        // SAFETY: extents stay mapped; what was written to them is in the file.
        let _ = unsafe { kernel::advise(memory, bytes, kernel::MADV_DONTNEED) };
    }
    writer.extent = None;
    (writer.next, writer.end) = (core::ptr::null_mut(), core::ptr::null_mut());
    if queue_full(extent) > BEHIND && confined::may_call() {
        // Who moves them needs the processor too.
        kernel::sched_yield();
    }
}

/// Notes a full extent; how many there are, as far as is known.
fn queue_full(extent: &'static ExtentHeader) -> usize {
    let Some(mut full) = SHARED.get().full.acquire() else {
        return 0;
    };
    if full.count < WAITING {
        let place = (full.first + full.count) % WAITING;
        full.extents[place] = Some(extent);
        full.count += 1;
    }
    full.count
}

/// The oldest extent that was full, if its contents were moved.
fn moved_extent() -> Option<&'static ExtentHeader> {
    let mut full = SHARED.get().full.acquire()?;
    let first = full.first % WAITING;
    let extent = full.extents[first].filter(|_| full.count > 0)?;
    if start_of(extent).state.load(Acquire) != TRACE_MOVED {
        return None;
    }
    full.first = (first + 1) % WAITING;
    full.count -= 1;
    if confined::may_call() {
        let (memory, bytes) = (profile::address_of(extent), extent.length.get() as usize);
        // SAFETY: extents stay mapped; that it is there changes no contents.
        let _ = unsafe { kernel::advise(memory, bytes, kernel::MADV_POPULATE_WRITE) };
    }
    Some(extent)
}

/// A new extent, if the bound allows it and the file can grow.
fn new_extent(p: &Process, writer: &Writer, lane: u32) -> Option<&'static ExtentHeader> {
    let length = (writer.length * 4).clamp(FIRST, TRACE_EXTENT_MAX);
    let header = p.header();
    if header.trace_stopped_ns.get() != 0 {
        return None;
    }
    let limit = header.trace_limit.get();
    let before = header.trace_bytes.fetch_add(length, Relaxed);
    let all = before.saturating_add(length).saturating_add(header.trace_elsewhere.get());
    let fits = limit == 0 || all <= limit;
    let extent = if fits { grown(p, lane, length) } else { None };
    if extent.is_none() {
        header.trace_bytes.fetch_sub(length, Relaxed);
    }
    extent
}

/// An extent more of the file. The end of a trace is for good, so its turn is waited for longer
/// than elsewhere.
fn grown(p: &Process, lane: u32, length: u64) -> Option<&'static ExtentHeader> {
    for _ in 0..PATIENCE {
        match profile::try_extent(p, Kind::Events, lane, length) {
            Ok(extent) => return Some(extent),
            Err(NoExtent::Room | NoExtent::Limit) => break,
            Err(NoExtent::Turn) => {}
        }
    }
    p.lost(Loss::NoSpace);
    None
}

/// There is no room for what happens from here on.
fn stop(p: &Process) {
    let stopped = &p.header().trace_stopped_ns;
    let _ = stopped.compare_exchange(0, p.now().max(1), Relaxed, Relaxed);
}
