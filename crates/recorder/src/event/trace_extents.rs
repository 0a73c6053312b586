//! Extents of events: a lane writes one, and continues in another when it is full.
//!
//! A full extent waits until a command has moved its contents out of the profile. Then any lane may
//! write it again, so the file does not grow with the number of events. If no command moves the
//! contents, or the limit is reached, the trace ends and all other recording continues.

use crate::store::ids::{NodeId, ScopeId};
use crate::store::profile;
use crate::store::shared::{Store, store};
use crate::sys::arch;
use crate::sys::clock;
use crate::sys::confined;
use crate::sys::kernel;
use crate::sys::locked::Locked;
use crate::sys::wiped::Wiped;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use heaptide_format::shared::{ExtentHeader, TraceStart, Word};
use heaptide_format::{
    Kind, Loss, TRACE_EXTENT_MAX, TRACE_FULL, TRACE_MOVED, TRACE_NOBODY, TRACE_WRITING,
};
use heaptide_trace::{Encoder, LONGEST, Record};

/// Size of a lane's first extent; each further one is four times as long, up to the maximum.
const FIRST: u64 = 16 << 10;
/// Maximum number of full extents that are written again after they were moved.
const WAITING: usize = 4096;
/// With more full extents than this, the command that moves them is behind.
const BEHIND: usize = 16;
/// Number of records between two comparisons of ticks and time, in the long run.
const BETWEEN: u32 = 4096;
/// Number of low bits of the clock's nanoseconds that are dropped, so that the ticks to the next
/// event usually fit in a byte.
const NS_SHIFT: u32 = 3;

/// The source of ticks.
#[repr(u32)]
enum Clock {
    /// None any more: time stands still.
    None = 0,
    /// The processor's counter.
    Counter = 1,
    /// The monotonic clock.
    Monotonic = 2,
}

/// The state that all lanes share. All zeros: no trace.
struct Shared {
    clock: AtomicU32,
    numbers: AtomicU32,
    full: Locked<Full>,
    nobody: Locked<Writer>,
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static SHARED: Wiped<Shared> = unsafe { Wiped::new() };

/// Makes forked children start without a trace.
pub fn wipe_in_children() {
    SHARED.wipe_in_children();
}

/// Full extents, the oldest first.
struct Full {
    first: usize,
    count: usize,
    extents: [Option<&'static ExtentHeader>; WAITING],
}

/// A lane's position in its extent. All zeros: none yet.
pub struct Writer {
    encoder: Encoder,
    pub extent: Option<&'static ExtentHeader>,
    next: *mut u8,
    end: *mut u8,
    length: u64,
    /// The scope, thread and stack of the last record.
    pub scope: ScopeId,
    pub tid: u32,
    pub node: NodeId,
    /// The stack of the current free.
    pub node_here: NodeId,
    /// Number of records until ticks and time are compared, and the last such number.
    compare_in: u32,
    between: u32,
}

/// Selects the source of ticks.
pub fn begin_clock() {
    let clock = if clock::counter_is_a_clock() { Clock::Counter } else { Clock::Monotonic };
    set_clock(clock as u32);
}

/// Stops the clock, since the guest is about to forbid itself to read it.
pub fn stop_clock() {
    set_clock(Clock::None as u32);
}

/// Returns the source of ticks as a number for [`set_clock`].
pub fn clock() -> u32 {
    SHARED.get().clock.load(Relaxed)
}

/// Sets the source of ticks.
pub fn set_clock(clock: u32) {
    SHARED.get().clock.store(clock, Relaxed);
}

#[inline(always)]
fn ticks(p: &Store) -> u64 {
    match SHARED.get().clock.load(Relaxed) {
        1 => arch::counter_in_order() >> arch::COUNTER_SHIFT, // not forbidden: see `stop_clock`
        2 if confined::may_call() => p.now() >> NS_SHIFT,
        _ => 0,
    }
}

/// Packs a record that belongs to no lane. Returns false if it could not be stored.
pub fn pack_of_nobody(record: &Record) -> bool {
    SHARED.get().nobody.try_acquire().is_some_and(|mut writer| {
        pack(&mut writer, TRACE_NOBODY, |encoder, room, ticks| encoder.record(room, ticks, record))
    })
}

/// Packs a record and makes it visible. Returns false if there is no room for it or any further
/// one.
#[inline(always)]
pub fn pack(
    writer: &mut Writer,
    lane: u32,
    by: impl FnOnce(&mut Encoder, &mut [u8; LONGEST], u64) -> usize,
) -> bool {
    let room = (writer.end as usize).wrapping_sub(writer.next as usize);
    if room < LONGEST && !next_extent(writer, lane) {
        return false;
    }
    // SAFETY: the extent has that much room left, which only this lane uses.
    let length = unsafe {
        let room = &mut *(writer.next as *mut [u8; LONGEST]);
        by(&mut writer.encoder, room, ticks(store()))
    };
    writer.next = writer.next.wrapping_add(length);
    if let Some(extent) = writer.extent {
        let begin = profile::first_record(extent) as u64;
        extent.committed.store((writer.next as u64).wrapping_sub(begin), Release);
    }
    writer.compare_in = writer.compare_in.wrapping_sub(1);
    if writer.compare_in == 0 {
        compare(writer);
    }
    true
}

/// Returns the first record of an extent of events.
fn start_of(extent: &'static ExtentHeader) -> &'static TraceStart {
    // SAFETY: extents stay mapped and begin with this record.
    unsafe { &*(profile::first_record(extent) as *const TraceStart) }
}

/// Returns the current ticks and time; the time is 0 if it is not available.
fn now(p: &Store) -> (u64, u64) {
    if !confined::may_call() {
        return (ticks(p), 0);
    }
    closest(|| (ticks(p), p.now(), ticks(p)))
}

/// Returns ticks and time of one moment, from readings of the ticks before, the time, and the ticks
/// after. A thread that is interrupted in between reads again: all times of the extent depend on
/// the pair.
fn closest(mut read: impl FnMut() -> (u64, u64, u64)) -> (u64, u64) {
    /// Ticks in which an uninterrupted thread reads the clock: one microsecond or some more.
    const USUAL: u64 = 64;
    const TRIES: usize = 3;
    let (mut shortest, mut pair) = (u64::MAX, (0, 0));
    for _ in 0..TRIES {
        let (before, time, after) = read();
        let between = after.saturating_sub(before); // cores may differ a little
        if between < shortest {
            (shortest, pair) = (between, (before + between / 2, time));
        }
        if between <= USUAL {
            break;
        }
    }
    pair
}

/// Stores a further pair of ticks and time.
#[cold]
#[inline(never)]
fn compare(writer: &mut Writer) {
    writer.between = (writer.between * 2).clamp(1, BETWEEN);
    writer.compare_in = writer.between;
    let (ticks, time) = now(store());
    if let Some(extent) = writer.extent.filter(|_| time != 0) {
        let start = start_of(extent);
        start.last_ticks.set(ticks);
        start.last_time_ns.set(time);
    }
}

/// Continues in another extent. Returns false if there is none, which ends the trace.
#[cold]
#[inline(never)]
fn next_extent(writer: &mut Writer, lane: u32) -> bool {
    if let Some(extent) = writer.extent {
        leave(writer, extent);
    }
    let Some(extent) = moved_extent().or_else(|| new_extent(store(), writer, lane)) else {
        stop(store());
        return false;
    };
    let (ticks, time_ns) = now(store());
    let number = SHARED.get().numbers.fetch_add(1, Relaxed).wrapping_add(1);
    // Nothing else writes the extent. Readers see no contents before `committed` covers them, and
    // recognise new contents by their number.
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

/// Marks a full extent as ready to be moved, and releases its memory.
fn leave(writer: &mut Writer, extent: &'static ExtentHeader) {
    compare(writer);
    start_of(extent).state.store(TRACE_FULL, Release);
    if confined::may_call() {
        let (memory, bytes) = (profile::address_of(extent), writer.length as usize);
        // SAFETY: extents stay mapped; their contents are in the file.
        let _ = unsafe { kernel::advise(memory, bytes, kernel::MADV_DONTNEED) };
    }
    writer.extent = None;
    (writer.next, writer.end) = (core::ptr::null_mut(), core::ptr::null_mut());
    if queue_full(extent) > BEHIND && confined::may_call() {
        // The command that moves them needs the processor, too.
        kernel::sched_yield();
    }
}

/// Queues a full extent. Returns the length of the queue, or 0 if it is not available.
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

/// Returns the oldest full extent, if its contents were moved.
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
        // SAFETY: extents stay mapped; populating the pages changes no contents.
        let _ = unsafe { kernel::advise(memory, bytes, kernel::MADV_POPULATE_WRITE) };
    }
    Some(extent)
}

/// Returns a new extent, if the limit allows it and the file can grow.
fn new_extent(p: &Store, writer: &Writer, lane: u32) -> Option<&'static ExtentHeader> {
    let length = (writer.length * 4).clamp(FIRST, TRACE_EXTENT_MAX);
    let header = p.header();
    if header.trace_stopped_ns.get() != 0 {
        return None;
    }
    let limit = header.trace_limit.get();
    // Counted before it is read how much is elsewhere: see `move_within_limit` of the command.
    let before = header.trace_bytes.fetch_add(length, SeqCst);
    let elsewhere = header.trace_elsewhere.load(SeqCst);
    let all = before.saturating_add(length).saturating_add(elsewhere);
    let fits = limit == 0 || all <= limit;
    let extent = if fits { grown(p, lane, length) } else { None };
    if extent.is_none() {
        header.trace_bytes.fetch_sub(length, Relaxed);
    }
    extent
}

/// Returns a new extent at the end of the file.
fn grown(p: &Store, lane: u32, length: u64) -> Option<&'static ExtentHeader> {
    let extent = profile::try_extent(p, Kind::Events, lane, length);
    if extent.is_err() {
        p.lost(Loss::NoSpace);
    }
    extent.ok()
}

/// Notes that there is no room for further events.
fn stop(p: &Store) {
    let stopped = &p.header().trace_stopped_ns;
    let _ = stopped.compare_exchange(0, p.now().max(1), Relaxed, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pair of these readings, and how many of them were made.
    fn pair_of(readings: &[(u64, u64, u64)]) -> ((u64, u64), usize) {
        let mut made = 0;
        let pair = closest(|| {
            made += 1;
            readings[made - 1]
        });
        (pair, made)
    }

    #[test]
    fn a_pair_that_was_interrupted_is_read_again() {
        assert_eq!(pair_of(&[(100, 7, 104)]), ((102, 7), 1));
        assert_eq!(pair_of(&[(100, 7, 9_100), (9_200, 150, 9_210)]), ((9_205, 150), 2));
        let always = [(0, 1, 3_000), (4_000, 2, 4_100), (5_000, 3, 9_000)];
        assert_eq!(pair_of(&always), ((4_050, 2), 3));
        assert_eq!(pair_of(&[(100, 7, 99)]), ((100, 7), 1));
    }
}
