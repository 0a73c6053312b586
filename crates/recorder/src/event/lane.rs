//! Lanes: who writes which counters. A thread has one lane from its first allocation to its exit;
//! threads of the same name that never overlap share one after the other.

use crate::event::gate::Gate;
use crate::event::peak;
use crate::event::process::process;
use crate::event::python::Chain;
use crate::event::sampling::Sampler;
use crate::event::shadow_cache::Leaves;
use crate::event::trace_extents::Writer;
use crate::store::control_words;
use crate::store::place::Place;
use crate::store::profile::Cursor;
use crate::store::sites::own_word;
use crate::sys::front::{self, Route};
use crate::sys::kernel::{self, Errno};
use crate::sys::locked::Locked;
use crate::sys::memory::{self, InChild};
use crate::sys::range::Range;
use crate::sys::tls::tls;
use crate::sys::wiped::Wiped;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use heaptide_format::shared::{FileHeader, Lane, Word};
use heaptide_format::{
    COMMAND_OFF, CONTROL_BY_CALL, CONTROL_BY_SIZE, CONTROL_MONITORS, CONTROL_OFF, CONTROL_PAUSE,
    Mode, Sums,
};
use heaptide_unwind::memo::Memo;
use heaptide_unwind::stack::Stack;

/// Lanes a process may have; beyond them threads are counted as lost. 65 536 threads at once are
/// more than Linux runs by default.
pub const LANES_MAX: usize = 1 << 16;
/// Other stacks (coroutines, signal stacks) that a thread remembers.
pub const RANGES: usize = 8;
/// Entries of a lane's memory of stack-tree children; a power of two.
pub const RECALL: usize = 1 << 14;
/// Inner ends of stacks that a lane remembers; a power of two.
pub const MEMOS: usize = 512;
/// Bytes of a lane's buffer for reading `/proc`.
pub const BUFFER: usize = 16 << 10;

/// Nobody's lane: its holder may write no lane's half of a site.
pub const NOBODY: u32 = u32::MAX;
/// In [`LaneState::flags`]: the thread is paused.
pub const FLAG_PAUSED: u32 = 1;
/// It measures itself.
pub const FLAG_MEASURED: u32 = 2;

/// The part of a lane that only its thread uses. Its memory is wiped in a forked child: then the
/// gate shows that the pointer to it is stale.
#[repr(C)]
pub struct LaneState {
    pub gate: Gate,
    /// Where entries of the front continue with events of the thread.
    pub route: Route,
    /// Its record in the profile.
    pub record: &'static Lane,
    pub header: &'static FileHeader,
    /// The block allocated last, if nothing was allocated since: its free makes it a temporary.
    pub last_block: *mut u8,
    pub live: peak::Live,
    /// Which blocks of the lane are sampled.
    pub sampler: Sampler,
    /// A [`heaptide_format::Mode`].
    pub mode: u32,
    /// Some of the `FLAG_` bits.
    pub flags: u32,
    /// `mode`, where events of the thread may take the fast path ([`crate::event::fast_path`]),
    /// else 0.
    pub quick: u32,
    /// The value of [`crate::store::shared::Store::generation`] that kept frames and ranges belong
    /// to.
    pub generation: u32,
    /// The stack that the thread runs on.
    pub stack: Range,
    /// The stack that is kept of it.
    pub unwinder: Stack<'static>,
    /// Where the thread is, and the records it makes. What every event reads comes first in it,
    /// as it comes before it here: in few lines of the cache.
    pub place: Place,
    /// Other stacks of the thread.
    pub others: Others,
    pub nodes: Cursor,
    /// Leaves of the shadow table used last.
    pub leaves: Leaves,
    /// Odd while the thread calls monitors.
    pub calling: AtomicU32,
    /// The block that the thread is moving by realloc, while there are monitors; or 0.
    pub moving: AtomicU64,
    /// What the lane's sums were when the thread took it.
    pub before: Sums,
    /// The Python frames that the thread had last.
    pub python: Chain,
    pub recall: *mut [u64; 2],
    pub memos: *mut Memo,
    /// Whether memos are worth a look ([`crate::event::stacks`]), and stacks that were not the last
    /// one.
    pub credit: i32,
    pub probe: u32,
    /// The end of a stack for work that needs more than the thread may have left.
    pub own_stack: *mut u8,
    /// Where the lane's events go; null where they are not traced. And the memory for it.
    pub trace: *mut Writer,
    pub trace_memory: *mut Writer,
    /// 1 while a thread has it.
    pub in_use: AtomicU32,
    pub tid: AtomicU32,
    pub thread_pointer: AtomicU64,
    /// Another thread gave this lane's thread a new name.
    pub renamed: AtomicU32,
    /// The thread took the lane after it had begun to exit: nobody will give it back.
    pub late: bool,
}

/// Stacks (of coroutines, of signals) that a thread ran on, and the lane's buffer to find them
/// with.
#[repr(C)]
pub struct Others {
    pub ranges: [Range; RANGES],
    /// The one to be forgotten next.
    pub next: u32,
    /// BUFFER bytes for reading `/proc`.
    pub buffer: *mut u8,
}

/// Where records of lanes, and of their root scopes, are made.
pub struct Records {
    pub lanes: Cursor,
    pub roots: Cursor,
    pub former_threads: Cursor,
    /// How many of the latter there are.
    pub former: u32,
}

/// All lanes of the process. Zero is: none yet.
pub struct Lanes {
    /// By index; entries below the count do not change.
    pub table: AtomicPtr<AtomicPtr<LaneState>>,
    /// By index, a number made of the lane's name: lanes are many, and lie far apart.
    names: AtomicPtr<AtomicU32>,
    pub count: AtomicUsize,
    pub in_use: AtomicU32,
    /// Records of lanes and of their root scopes; the lock is for all of a lane's making.
    pub records: Locked<Records>,
}

// SAFETY: zero is a valid value of every field.
static LANES: Wiped<Lanes> = unsafe { Wiped::new() };

/// The lanes of this process.
pub fn lanes() -> &'static Lanes {
    LANES.get()
}

/// Has a forked child find no lanes.
///
/// Errors: the kernel's.
pub fn wipe_in_children() -> Result<(), Errno> {
    LANES.wipe_in_children()
}

/// Maps the table of lanes.
pub fn create_table() -> Option<()> {
    let bytes = LANES_MAX * size_of::<usize>();
    let table = memory::take(bytes + LANES_MAX * size_of::<AtomicU32>(), InChild::Nothing);
    if table.is_null() {
        return None;
    }
    lanes().table.store(table as *mut AtomicPtr<LaneState>, Relaxed);
    lanes().names.store(table.wrapping_add(bytes) as *mut AtomicU32, Relaxed);
    Some(())
}

/// The lanes of this name so far.
pub fn named(name: &[u8; 16]) -> impl Iterator<Item = *mut LaneState> {
    let all = all();
    let names = lanes().names.load(Relaxed);
    let (number, name) = (number_of(name), *name);
    let has_name = move |(index, lane): &(usize, &*mut LaneState)| {
        // SAFETY: the table has an entry for each lane, and lanes stay mapped.
        unsafe {
            (*names.add(*index)).load(Relaxed) == number
                && (***lane).record.name.iter().zip(name).all(|(a, b)| a.get() == b)
        }
    };
    all.iter().enumerate().filter(has_name).map(|(_, lane)| *lane)
}

/// A number made of a name: FNV-1a.
fn number_of(name: &[u8; 16]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// All lanes so far.
pub fn all() -> &'static [*mut LaneState] {
    let table = lanes().table.load(Relaxed);
    if table.is_null() {
        return &[];
    }
    // SAFETY: entries below the count were written before it grew.
    unsafe {
        core::slice::from_raw_parts(table as *const *mut LaneState, lanes().count.load(Acquire))
    }
}

/// The lane of the calling thread, to be read.
pub fn of_thread() -> Option<&'static LaneState> {
    // SAFETY: null, or the thread's own lane, which stays mapped.
    unsafe { (tls().lane.get() as *const LaneState).as_ref() }
}

/// The records of all lanes so far.
pub fn records() -> impl Iterator<Item = &'static Lane> {
    // SAFETY: lanes stay mapped; the field does not change.
    all().iter().map(|&lane| unsafe { (*lane).record })
}

/// Names a lane, which has its index.
pub fn set_name(record: &Lane, name: &[u8; 16]) {
    let names = lanes().names.load(Relaxed);
    // SAFETY: the table has an entry for each index of a lane.
    unsafe { (*names.add(record.index.get() as usize)).store(number_of(name), Relaxed) };
    for (byte, value) in record.name.iter().zip(name) {
        byte.set(*value);
    }
}

impl LaneState {
    /// Byte offsets of fields for entries, whose first instructions are not Rust.
    pub const GATE_AT: usize = offset_of!(LaneState, gate);
    pub const ROUTE_AT: usize = offset_of!(LaneState, route);

    /// The lane's index.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.place.lane
    }

    /// Usable bytes that the lane's threads allocated.
    #[inline(always)]
    pub fn allocated(&self) -> u64 {
        own_word(&self.record.usable_bytes)
    }

    /// The lane's live bytes change by `change` > 0, which is yet to be counted
    /// ([`peak::Live::grow`]).
    #[inline(always)]
    pub fn grow(&mut self, change: i64) -> bool {
        let allocated = self.allocated();
        self.live.grow(process(), self.header, allocated, change)
    }

    /// The same for `change` ≤ 0 ([`peak::Live::shrink`]).
    #[inline(always)]
    pub fn shrink(&mut self, change: i64) -> bool {
        let allocated = self.allocated();
        self.live.shrink(process(), self.header, allocated, change)
    }

    /// Tells other lanes what is live in this one.
    pub fn publish_live(&mut self) {
        let allocated = self.allocated();
        self.live.publish(process(), self.header, allocated, 0);
    }

    /// The thread has entered or left scopes ([`peak::Live::enter`]).
    #[inline(always)]
    pub fn in_scope(&mut self) {
        self.live.enter(self.place.scope, &self.record.usable_bytes);
    }

    /// Something else than live has changed what a new high is.
    pub fn renew_bounds(&mut self) {
        let allocated = self.allocated();
        self.live.renew_bounds(process(), self.header, allocated);
    }

    /// Finds the limits of [`peak::Live`] anew. Returns whether more may be allocated now.
    #[inline(always)]
    pub fn renew_limits(&mut self) -> bool {
        let allocated = self.allocated();
        let before = self.live.allocated_limit();
        self.live.set_limits(allocated);
        self.live.allocated_limit() > before
    }

    /// The lane's buffer for reading `/proc`.
    pub fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: BUFFER bytes of the lane's memory that nothing else refers to.
        unsafe { core::slice::from_raw_parts_mut(self.others.buffer, BUFFER) }
    }

    /// Adds what the unwinder did to the profile's count.
    pub fn publish_work(&mut self) {
        let stepped = core::mem::take(&mut self.unwinder.stepped);
        self.header.frames_stepped.fetch_add(stepped, Relaxed);
    }

    /// Takes a name that another thread gave, if the lane never had another thread: then all of it
    /// is this one's.
    pub fn follow_renaming(&mut self) {
        if self.renamed.swap(0, Relaxed) != 0 && self.record.threads.get() == 1 {
            set_name(self.record, &kernel::thread_name());
        }
    }

    /// Whether events of this thread are looked at twice.
    #[inline(always)]
    pub fn is_attended(&self) -> bool {
        self.flags != 0 || self.is_watched()
    }

    /// Whether events of the whole process are.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        control_words::words(self.header).get() != 0
    }

    /// Sets or clears a flag.
    pub fn flag(&mut self, bit: u32, on: bool) {
        self.flags = if on { self.flags | bit } else { self.flags & !bit };
        self.choose_path();
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
    pub fn words(&self) -> (u32, u32) {
        let both = control_words::words(self.header).get();
        (both as u32, (both >> 32) as u32)
    }

    /// Whether monitors are to be told.
    #[inline(always)]
    pub fn has_monitors(&self) -> bool {
        self.words().0 & CONTROL_MONITORS != 0
    }

    /// Whether the lane alone counts all blocks: sites have none of them, or those that are sampled.
    #[inline(always)]
    pub fn is_counted_by_lane(&self) -> bool {
        self.mode == Mode::Counters as u32 || self.mode == Mode::Sampled as u32
    }

    /// Whether sites have the sampled blocks alone.
    pub fn is_sampled(&self) -> bool {
        self.mode == Mode::Sampled as u32
    }

    /// Whether sites are told apart by the size requested.
    #[inline(always)]
    pub fn is_by_size(&self) -> bool {
        self.words().0 & CONTROL_BY_SIZE != 0
    }

    /// Whether sites are recorded by the size requested or by the function called.
    #[inline(always)]
    pub fn is_by_request(&self) -> bool {
        self.words().0 & (CONTROL_BY_SIZE | CONTROL_BY_CALL) != 0
    }

    /// Whether sites are recorded by the function called.
    pub fn is_by_call(&self) -> bool {
        self.words().0 & CONTROL_BY_CALL != 0
    }

    pub fn is_measured(&self) -> bool {
        self.flags & FLAG_MEASURED != 0
    }

    /// Whether events of this thread are traced.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        !self.trace.is_null()
    }

    /// Looks again whether events of the thread may take the fast path.
    #[inline(always)]
    pub fn choose_path(&mut self) {
        let usual = self.flags == 0 && !self.is_traced() && front::sizes_are_at_hand();
        self.quick = if usual { self.mode } else { 0 };
        self.route = front::platform().map_or(Route::NONE, |platform| (platform.route)(self.quick));
    }
}
