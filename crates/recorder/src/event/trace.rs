//! Every event, where it happens: packed into an extent of the lane's own, and told by one store.
//!
//! An extent that is full waits for whoever moves its contents elsewhere, and is then written anew
//! by any lane, so the file does not grow with the number of events. Where nobody does, or the
//! bound is reached, the trace ends, and all else goes on.

use crate::api::regions::NOBODY;
use crate::event::lane::{self, Inside, LaneState};
use crate::event::process::{Process, process};
use crate::event::stacks;
use crate::store::ids::{NodeId, ScopeId, SiteId};
use crate::store::profile::{self, No};
use crate::sys::confined::{self, NO_COUNTER};
use crate::sys::kernel;
use crate::sys::locked::Locked;
use crate::sys::options::Options;
use core::arch::x86_64::{__cpuid, _rdtsc};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use heaptide_format::shared::{ExtentHeader, FileHeader, TraceStart, Word};
use heaptide_format::{
    Kind, Loss, Mode, TRACE_EXTENT_MAX, TRACE_FREE_STACKS, TRACE_FULL, TRACE_MOVED, TRACE_NOBODY,
    TRACE_ON, TRACE_WRITING,
};
use heaptide_trace::{Block, Encoder, LONGEST, Record};

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
/// Bits of the time stamp counter that are dropped: a tick is some ten nanoseconds, so that the
/// next event is most often less than a byte away.
const TSC_SHIFT: u32 = 5;
/// The same of nanoseconds.
const NS_SHIFT: u32 = 3;

/// Whether frees have stacks; their entry looks here.
pub static FREE_STACKS: AtomicBool = AtomicBool::new(false);

/// What counts ticks.
#[repr(u32)]
enum Clock {
    /// Nothing, any more: time stands still.
    None = 0,
    /// The time stamp counter.
    Counter = 1,
    /// The monotonic clock.
    Monotonic = 2,
}

/// What all lanes share. Zero is: no trace.
pub struct Shared {
    clock: AtomicU32,
    numbers: AtomicU32,
    full: Locked<Full>,
    nobody: Locked<Writer>,
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
    extent: Option<&'static ExtentHeader>,
    next: *mut u8,
    end: *mut u8,
    length: u64,
    /// What the records so far say.
    scope: ScopeId,
    tid: u32,
    node: NodeId,
    /// The stack of the free in hand.
    node_here: NodeId,
    /// Records until clock and time are compared, and how many that were the last time.
    compare_in: u32,
    between: u32,
}

/// Turns the trace on in a fresh profile's header.
pub fn prepare(p: &Process, header: &FileHeader, options: &Options) {
    if !options.trace {
        return;
    }
    let with = if options.free_stacks { TRACE_FREE_STACKS } else { 0 };
    FREE_STACKS.store(options.free_stacks, Relaxed);
    let clock = if counter_is_a_clock() { Clock::Counter } else { Clock::Monotonic };
    p.trace.clock.store(clock as u32, Relaxed);
    header.trace_limit.set(options.max_size);
    header.trace.set(TRACE_ON | with);
}

/// Whether the time stamp counter runs evenly and all cores agree on it: the processor says the
/// one, the kernel's choice of a clock the other.
fn counter_is_a_clock() -> bool {
    const ADVANCED_POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    let mut buffer = [0u8; 16];
    let path = b"/sys/devices/system/clocksource/clocksource0/current_clocksource\0";
    let chosen = kernel::Path::new(path).map(|path| kernel::read_file(path, &mut buffer));
    let steady =
        __cpuid(0x8000_0000).eax >= ADVANCED_POWER && __cpuid(ADVANCED_POWER).edx & INVARIANT != 0;
    let allowed = !NO_COUNTER.load(Relaxed);
    allowed && steady && matches!(chosen, Some(Ok(b"tsc\n" | b"kvm-clock\n")))
}

/// The guest is about to forbid itself to read the clock.
pub fn stop_clock() {
    set_clock(Clock::None as u32);
}

/// What counts ticks now, as a number to give back to [`set_clock`].
pub fn clock() -> u32 {
    process().trace.clock.load(Relaxed)
}

/// Has something else count ticks.
pub fn set_clock(clock: u32) {
    process().trace.clock.store(clock, Relaxed);
}

#[inline(always)]
fn ticks(p: &Process) -> u64 {
    match p.trace.clock.load(Relaxed) {
        // SAFETY: not forbidden: see `stop_clock`.
        1 => unsafe { _rdtsc() >> TSC_SHIFT },
        2 if confined::may_call() => p.now() >> NS_SHIFT,
        _ => 0,
    }
}

impl LaneState {
    /// Whether events of this thread are traced.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        !self.trace.is_null()
    }
}

/// A thread took the lane: from here on its events are traced, if any are.
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
            tell(lane, &Record::Thread(tid));
        }
        (*lane.trace_memory).tid = tid;
    }
}

/// A block was allocated.
#[inline(never)]
pub fn allocated(
    lane: &mut LaneState,
    block: *const u8,
    (site, requested, usable): (SiteId, u64, u64),
    reallocated: bool,
) {
    let site = site.number();
    let block = Block { address: block as u64, site, requested, usable, reallocated };
    write(lane, |encoder, room, ticks| encoder.allocated(room, ticks, &block));
}

/// A block is about to be freed.
#[inline(never)]
pub fn freed(lane: &mut LaneState, block: *const u8) {
    say_where(lane);
    write(lane, |encoder, room, ticks| encoder.freed(room, ticks, block as u64));
}

/// A block is about to be reallocated.
#[inline(never)]
pub fn moving(lane: &mut LaneState, block: *const u8) {
    say_where(lane);
    write(lane, |encoder, room, ticks| encoder.moving(room, ticks, block as u64));
}

/// Anything else.
#[inline(never)]
pub fn tell(lane: &mut LaneState, record: &Record) {
    if lane.is_traced() {
        // What ends a reallocation is where that began.
        use Record::{Node, Released, Scope, StillThere, Thread};
        if !matches!(record, Thread(_) | Scope(_) | Node(_) | StillThere | Released) {
            say_where(lane);
        }
        write(lane, |encoder, room, ticks| encoder.record(room, ticks, record));
    }
}

/// The same for who has but the lane's index, or is nobody.
pub fn tell_of(index: u32, record: &Record) {
    let p = process();
    if p.header().trace.get() & TRACE_ON == 0 {
        return;
    }
    if index == NOBODY {
        return tell_of_nobody(p, record);
    }
    if let Some(&lane) = lane::all(p).get(index as usize) {
        // SAFETY: the calling thread's lane, which stays mapped.
        tell(unsafe { &mut *lane }, record);
    }
}

/// What happens inside the recorder is in no lane.
#[cold]
pub fn tell_of_nobody(p: &Process, record: &Record) {
    if p.header().trace.get() & TRACE_ON == 0 {
        return;
    }
    let told = p.trace.nobody.try_acquire().is_some_and(|mut writer| {
        pack(p, &mut writer, TRACE_NOBODY, |encoder, room, ticks| {
            encoder.record(room, ticks, record)
        })
    });
    if !told && p.header().trace_stopped_ns.get() == 0 {
        p.lost(Loss::NoEvent);
    }
}

/// Notes the stack of the free in hand, where frees have stacks.
pub fn stands_here(inside: &mut Inside) {
    let entry = inside.entry();
    let lane = inside.lane();
    if lane.is_traced() && FREE_STACKS.load(Relaxed) {
        let node = stacks::capture(lane, entry.registers());
        // SAFETY: the lane's own memory.
        unsafe { (*lane.trace).node_here = node };
    }
}

/// Tells the scope and the stack of what follows, if they are others than before.
#[inline(always)]
fn say_where(lane: &mut LaneState) {
    // SAFETY: the lane's own memory.
    let (before, node) = unsafe {
        let writer = &mut *lane.trace;
        (writer.scope, core::mem::replace(&mut writer.node_here, NodeId::NONE))
    };
    let scope = ScopeId::of(lane.place.scope);
    if scope != before {
        // SAFETY: as above.
        unsafe { (*lane.trace).scope = scope };
        let scope = Record::Scope(scope.number());
        write(lane, |encoder, room, ticks| encoder.record(room, ticks, &scope));
    }
    // SAFETY: as above; the memory is there whether or not the trace has just ended.
    unsafe {
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
    if !pack(process(), writer, lane.place.lane, by) {
        lane.trace = core::ptr::null_mut();
    }
}

/// Packs a record and makes it visible; false if there is no room, and will not be.
#[inline(always)]
fn pack(
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
    let Some(extent) = moved_extent(p).or_else(|| new_extent(p, writer, lane)) else {
        stop(p);
        return false;
    };
    let (ticks, time_ns) = now(p);
    let number = p.trace.numbers.fetch_add(1, Relaxed).wrapping_add(1);
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
    if put_in_line(p, extent) > BEHIND && confined::may_call() {
        // Who moves them needs the processor too.
        kernel::sched_yield();
    }
}

/// Notes a full extent; how many there are, as far as is known.
fn put_in_line(p: &Process, extent: &'static ExtentHeader) -> usize {
    let Some(mut full) = p.trace.full.acquire() else {
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
fn moved_extent(p: &Process) -> Option<&'static ExtentHeader> {
    let mut full = p.trace.full.acquire()?;
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
            Err(No::Room) => break,
            Err(No::Turn) => {}
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
