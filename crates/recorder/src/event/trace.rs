//! Every event, where it happens: packed into an extent of the lane's own, and told by one store.
//!
//! An extent that is full waits for whoever moves its contents elsewhere, and is then written anew
//! by any lane, so the file does not grow with the number of events. Where nobody does, or the
//! bound is reached, the trace ends, and all else goes on.

use crate::api::regions::NOBODY;
use crate::event::lane::{self, Inside, LaneState};
use crate::event::process::{Process, process};
use crate::event::stacks;
use crate::store::profile::{self, No};
use crate::store::scopes;
use crate::sys::confined::{self, NO_COUNTER};
use crate::sys::kernel;
use crate::sys::locked::Locked;
use crate::sys::options::Options;
use core::arch::x86_64::{__cpuid, _rdtsc};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use heaptide_format::{
    EXTENT_HEADER, ExtentHeader, FileHeader, Kind, Loss, Mode, TRACE_EXTENT_MAX, TRACE_FREE_STACKS,
    TRACE_FULL, TRACE_MOVED, TRACE_NOBODY, TRACE_ON, TRACE_WRITING, TraceStart,
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
    extents: [*mut ExtentHeader; WAITING],
}

/// A lane's place in its extent. Zero is: none yet.
pub struct Writer {
    encoder: Encoder,
    extent: *mut ExtentHeader,
    next: *mut u8,
    end: *mut u8,
    length: u64,
    /// What the records so far say.
    scope: u32,
    tid: u32,
    node: u32,
    /// The stack of the free in hand.
    node_here: u32,
    /// Records until clock and time are compared, and how many that were the last time.
    compare_in: u32,
    between: u32,
}

/// Turns the trace on in a fresh profile's header.
///
/// # Safety
/// The header is mapped, and nobody else knows it yet.
pub unsafe fn prepare(p: &Process, header: *mut FileHeader, options: &Options) {
    if !options.trace {
        return;
    }
    let with = if options.free_stacks { TRACE_FREE_STACKS } else { 0 };
    FREE_STACKS.store(options.free_stacks, Relaxed);
    let clock = if counter_is_a_clock() { Clock::Counter } else { Clock::Monotonic };
    p.trace.clock.store(clock as u32, Relaxed);
    // SAFETY: as promised.
    unsafe { ((*header).trace_limit, (*header).trace) = (options.max_size, TRACE_ON | with) };
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
    // SAFETY: the header is mapped; the memory is the lane's own.
    unsafe {
        if (*lane.header).trace & TRACE_ON == 0 || lane.mode == Mode::Counters as u32 {
            return;
        }
        lane.trace = lane.trace_memory;
        if (*lane.trace).extent.is_null() {
            (*lane.trace).scope = scopes::id(lane.scope);
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
    (site, requested, usable): (u32, u64, u64),
    reallocated: bool,
) {
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
    // SAFETY: the header is mapped while there are sites.
    if unsafe { (*p.header()).trace } & TRACE_ON == 0 {
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
    // SAFETY: the header is mapped while there are sites.
    if unsafe { (*p.header()).trace } & TRACE_ON == 0 {
        return;
    }
    let told = p.trace.nobody.try_acquire().is_some_and(|mut writer| {
        pack(p, &mut writer, TRACE_NOBODY, |encoder, room, ticks| {
            encoder.record(room, ticks, record)
        })
    });
    // SAFETY: as above.
    if !told && unsafe { (*p.header()).trace_stopped_ns } == 0 {
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
        (writer.scope, core::mem::take(&mut writer.node_here))
    };
    let scope = scopes::id(lane.scope);
    if scope != before {
        // SAFETY: as above.
        unsafe { (*lane.trace).scope = scope };
        write(lane, |encoder, room, ticks| encoder.record(room, ticks, &Record::Scope(scope)));
    }
    // SAFETY: as above; the memory is there whether or not the trace has just ended.
    unsafe {
        if (*lane.trace_memory).node != node {
            (*lane.trace_memory).node = node;
            write(lane, |encoder, room, ticks| encoder.record(room, ticks, &Record::Node(node)));
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
    if !pack(process(), writer, lane.index, by) {
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
    let begin = (writer.extent as u64).wrapping_add(EXTENT_HEADER);
    // SAFETY: the extent's header is mapped; one thread writes it.
    unsafe { committed(writer.extent) }.store((writer.next as u64).wrapping_sub(begin), Release);
    writer.compare_in = writer.compare_in.wrapping_sub(1);
    if writer.compare_in == 0 {
        compare(p, writer);
    }
    true
}

/// # Safety
/// The header is mapped.
unsafe fn committed(extent: *mut ExtentHeader) -> &'static AtomicU64 {
    // SAFETY: as promised; the field is only used atomically.
    unsafe { AtomicU64::from_ptr(&raw mut (*extent).committed) }
}

fn start_of(extent: *mut ExtentHeader) -> *mut TraceStart {
    extent.wrapping_byte_add(EXTENT_HEADER as usize) as *mut TraceStart
}

fn state_of(extent: *mut ExtentHeader) -> &'static AtomicU32 {
    // SAFETY: extents stay mapped; the field is only used atomically.
    unsafe { AtomicU32::from_ptr(&raw mut (*start_of(extent)).state) }
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
    if time != 0 {
        // SAFETY: the writer's own extent.
        unsafe {
            let start = start_of(writer.extent);
            ((*start).last_ticks, (*start).last_time_ns) = (ticks, time);
        }
    }
}

/// Goes on in another extent; false if there is none, which ends the trace.
#[cold]
#[inline(never)]
fn next_extent(p: &Process, writer: &mut Writer, lane: u32) -> bool {
    if !writer.extent.is_null() {
        leave(p, writer);
    }
    let Some(extent) = moved_extent(p).or_else(|| new_extent(p, writer, lane)) else {
        stop(p);
        return false;
    };
    let (ticks, time_ns) = now(p);
    let number = p.trace.numbers.fetch_add(1, Relaxed).wrapping_add(1);
    let Writer { scope, tid, node, .. } = *writer;
    // SAFETY: an extent that nobody else writes. Readers see no contents before `committed` says
    // so, and that they are others by their number.
    unsafe {
        committed(extent).store(0, Release);
        AtomicU32::from_ptr(&raw mut (*start_of(extent)).number).store(number, Release);
        (*extent).lane = lane;
        let fresh =
            TraceStart { ticks, time_ns, scope, tid, node, number, ..TraceStart::default() };
        let start = TraceStart { state: (*start_of(extent)).state, ..fresh };
        *start_of(extent) = start;
        state_of(extent).store(TRACE_WRITING, Release);
        let length = (*extent).length as usize;
        let begin = start_of(extent) as *mut u8;
        (writer.extent, writer.length) = (extent, length as u64);
        writer.next = begin.add(size_of::<TraceStart>());
        writer.end = (extent as *mut u8).add(length);
        committed(extent).store(size_of::<TraceStart>() as u64, Release);
    }
    writer.encoder.begin(ticks);
    (writer.compare_in, writer.between) = (1, 0);
    true
}

/// The extent is full: whoever moves its contents may do so, and its memory is not the guest's for
/// now.
fn leave(p: &Process, writer: &mut Writer) {
    compare(p, writer);
    let extent = writer.extent;
    // SAFETY: extents stay mapped; what was written to them is in the file.
    unsafe {
        state_of(extent).store(TRACE_FULL, Release);
        if confined::may_call() {
            let _ =
                kernel::advise(extent as *mut u8, writer.length as usize, kernel::MADV_DONTNEED);
        }
    }
    writer.extent = core::ptr::null_mut();
    (writer.next, writer.end) = (core::ptr::null_mut(), core::ptr::null_mut());
    if put_in_line(p, extent) > BEHIND && confined::may_call() {
        // Who moves them needs the processor too.
        kernel::sched_yield();
    }
}

/// Notes a full extent; how many there are, as far as is known.
fn put_in_line(p: &Process, extent: *mut ExtentHeader) -> usize {
    let Some(mut full) = p.trace.full.acquire() else {
        return 0;
    };
    if full.count < WAITING {
        let place = (full.first + full.count) % WAITING;
        // SAFETY: the place is below WAITING.
        unsafe { *(&raw mut full.extents).cast::<*mut ExtentHeader>().add(place) = extent };
        full.count += 1;
    }
    full.count
}

/// The oldest extent that was full, if its contents were moved.
fn moved_extent(p: &Process) -> Option<*mut ExtentHeader> {
    let mut full = p.trace.full.acquire()?;
    // SAFETY: the place is below WAITING; extents stay mapped.
    unsafe {
        let extent = *(&raw const full.extents).cast::<*mut ExtentHeader>().add(full.first);
        if full.count == 0 || state_of(extent).load(Acquire) != TRACE_MOVED {
            return None;
        }
        full.first = (full.first + 1) % WAITING;
        full.count -= 1;
        if confined::may_call() {
            let length = (*extent).length as usize;
            let _ = kernel::advise(extent as *mut u8, length, kernel::MADV_POPULATE_WRITE);
        }
        Some(extent)
    }
}

/// A new extent, if the bound allows it and the file can grow.
fn new_extent(p: &Process, writer: &Writer, lane: u32) -> Option<*mut ExtentHeader> {
    let length = (writer.length * 4).clamp(FIRST, TRACE_EXTENT_MAX);
    let header = p.header();
    // SAFETY: the header is mapped; what two write is only used atomically.
    unsafe {
        if (*header).trace_stopped_ns != 0 {
            return None;
        }
        let taken = AtomicU64::from_ptr(&raw mut (*header).trace_bytes);
        let elsewhere = AtomicU64::from_ptr(&raw mut (*header).trace_elsewhere).load(Relaxed);
        let before = taken.fetch_add(length, Relaxed);
        let all = before.saturating_add(length).saturating_add(elsewhere);
        let fits = (*header).trace_limit == 0 || all <= (*header).trace_limit;
        let extent = if fits { grown(p, lane, length) } else { None };
        if extent.is_none() {
            taken.fetch_sub(length, Relaxed);
        }
        extent
    }
}

/// An extent more of the file. The end of a trace is for good, so its turn is waited for longer
/// than elsewhere.
fn grown(p: &Process, lane: u32, length: u64) -> Option<*mut ExtentHeader> {
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
    let header: *mut FileHeader = p.header();
    // SAFETY: the header is mapped; the field is only used atomically.
    let stopped = unsafe { AtomicU64::from_ptr(&raw mut (*header).trace_stopped_ns) };
    let _ = stopped.compare_exchange(0, p.now().max(1), Relaxed, Relaxed);
}
