//! Lanes: the owners of counters. A thread has one lane from its first allocation to its exit.
//! Threads with the same name that never overlap share one, one after the other.

use crate::event::gate::Gate;
use crate::event::peak;
use crate::event::process::process;
use crate::event::python::Chain;
use crate::event::sampler::Sampler;
use crate::event::shadow_cache::Leaves;
use crate::event::tally::Tallies;
use crate::event::trace_extents::Writer;
use crate::store::budgets::LANES_MAX;
use crate::store::control_words;
use crate::store::place::Place;
use crate::store::profile::Cursor;
use crate::store::sites::own_word;
use crate::sys::front::{self, Route};
use crate::sys::kernel;
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

/// Number of other stacks (coroutines, signal stacks) that a thread remembers.
pub const RANGES: usize = 8;
/// Entries of a lane's cache of children in the stack tree; a power of two.
pub const RECALL: usize = 1 << 14;
/// Number of inner ends of stacks that a lane remembers; a power of two.
pub const MEMOS: usize = 512;
/// Size of a lane's buffer for reading `/proc`, in bytes.
pub const BUFFER: usize = 16 << 10;

/// The index of no lane: its holder may not write the owner's half of any site.
pub const NOBODY: u32 = u32::MAX;
/// Bit of [`LaneState::flags`]: the thread is paused.
pub const FLAG_PAUSED: u32 = 1;
/// Bit of [`LaneState::flags`]: the thread measures itself.
pub const FLAG_MEASURED: u32 = 2;

/// The part of a lane that only its thread uses. Its memory is wiped in a forked child, where the
/// gate then shows that the pointer to it is stale.
#[repr(C)]
pub struct LaneState {
    pub gate: Gate,
    /// Where entries of the front continue with events of the thread.
    pub route: Route,
    /// The lane's record in the profile.
    pub record: &'static Lane,
    pub header: &'static FileHeader,
    /// The block that was allocated last; a free that follows directly makes it a temporary block.
    pub last_block: *mut u8,
    pub live: peak::Live,
    /// Selects the blocks of the lane that are sampled.
    pub sampler: Sampler,
    /// A [`heaptide_format::Mode`].
    pub mode: u32,
    /// `FLAG_` bits.
    pub flags: u32,
    /// Equal to `mode` if events of the thread may take the fast path
    /// ([`crate::event::fast_path`]), otherwise 0.
    pub quick: u32,
    /// The same for blocks whose size the front knows.
    pub quick_of_size: u32,
    /// The value of [`crate::store::shared::Store::generation`] for which kept frames and ranges
    /// are valid.
    pub generation: u32,
    /// The range of the stack that the thread runs on.
    pub stack: Range,
    /// The kept frames of that stack.
    pub unwinder: Stack<'static>,
    /// The scope of the thread, and its records. The fields that every event reads are the first of
    /// it and the last before it, so that they share few cache lines.
    pub place: Place,
    /// Other stacks of the thread.
    pub others: Others,
    pub nodes: Cursor,
    /// The leaves of the shadow table that were used last.
    pub leaves: Leaves,
    /// The same of the table of sizes.
    pub size_leaves: Leaves,
    /// Odd while the thread calls monitors.
    pub calling: AtomicU32,
    /// The block that the thread is moving by realloc while there are monitors, or 0.
    pub moving: AtomicU64,
    /// The lane's sums when the thread took it.
    pub before: Sums,
    /// The Python frames that the thread had last.
    pub python: Chain,
    pub recall: *mut [u64; 2],
    pub memos: *mut Memo,
    /// A score of whether memos are worth reading ([`crate::event::stacks`]), and the number of
    /// stacks that differed from the one before.
    pub credit: i32,
    pub probe: u32,
    /// The end of a stack for work that needs more than the thread may have left.
    pub own_stack: *mut u8,
    /// The writer of the lane's events, null if they are not traced; and the memory for it.
    pub trace: *mut Writer,
    pub trace_memory: *mut Writer,
    /// 1 while a thread has the lane.
    pub in_use: AtomicU32,
    pub tid: AtomicU32,
    pub thread_pointer: AtomicU64,
    /// Set if another thread renamed this lane's thread.
    pub renamed: AtomicU32,
    /// Set if the thread took the lane after it had begun to exit: it will not be released.
    pub late: bool,
    /// The counters of each scope, for programs that use malloc-tag's interface.
    pub tallies: Tallies,
}

/// Other stacks (of coroutines, of signals) that a thread ran on, and the lane's buffer for finding
/// them.
#[repr(C)]
pub struct Others {
    pub ranges: [Range; RANGES],
    /// The index of the range to be replaced next.
    pub next: u32,
    /// `BUFFER` bytes for reading `/proc`.
    pub buffer: *mut u8,
}

/// Cursors for the records of lanes and their root scopes.
pub struct Records {
    pub lanes: Cursor,
    pub roots: Cursor,
    pub former_threads: Cursor,
    /// Number of records of former threads.
    pub former: u32,
}

/// All lanes of the process. All zeros: none yet.
pub struct Lanes {
    /// By index; entries below the count do not change.
    pub table: AtomicPtr<AtomicPtr<LaneState>>,
    /// A hash of each lane's name, by index: lanes are many, and their memory is far apart.
    names: AtomicPtr<AtomicU32>,
    pub count: AtomicUsize,
    pub in_use: AtomicU32,
    /// Records of lanes and of their root scopes. The lock is held for the whole creation of a
    /// lane.
    pub records: Locked<Records>,
}

// SAFETY: all zeros is a valid value.
#[unsafe(link_section = ".bss.wiped")]
static LANES: Wiped<Lanes> = unsafe { Wiped::new() };

/// Returns the lanes of this process.
pub fn lanes() -> &'static Lanes {
    LANES.get()
}

/// Makes forked children start without lanes.
pub fn wipe_in_children() {
    LANES.wipe_in_children();
}

/// Maps the table of lanes. Returns none without memory.
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

/// Returns the lanes with this name.
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

/// Returns the FNV-1a hash of a name.
fn number_of(name: &[u8; 16]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Returns all lanes.
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

/// Returns the lane of the calling thread, for reading.
pub fn of_thread() -> Option<&'static LaneState> {
    // SAFETY: null, or the thread's own lane, which stays mapped.
    unsafe { (tls().lane.get() as *const LaneState).as_ref() }
}

/// Returns the records of all lanes.
pub fn records() -> impl Iterator<Item = &'static Lane> {
    // SAFETY: lanes stay mapped; the field does not change.
    all().iter().map(|&lane| unsafe { (*lane).record })
}

/// Sets the name of a lane, which must have its index already.
pub fn set_name(record: &Lane, name: &[u8; 16]) {
    let names = lanes().names.load(Relaxed);
    // SAFETY: the table has an entry for each index of a lane.
    unsafe { (*names.add(record.index.get() as usize)).store(number_of(name), Relaxed) };
    for (byte, value) in record.name.iter().zip(name) {
        byte.set(*value);
    }
}

impl LaneState {
    /// Byte offsets of fields, for entries whose first instructions are not Rust.
    pub const GATE_AT: usize = offset_of!(LaneState, gate);
    pub const ROUTE_AT: usize = offset_of!(LaneState, route);

    /// Returns the lane's index.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.place.lane
    }

    /// Returns the usable bytes that the lane's threads allocated.
    #[inline(always)]
    pub fn allocated(&self) -> u64 {
        own_word(&self.record.usable_bytes)
    }

    /// Changes the lane's live bytes by `change` > 0, which has not been counted yet
    /// ([`peak::Live::grow`]).
    #[inline(always)]
    pub fn grow(&mut self, change: i64) -> bool {
        let allocated = self.allocated();
        self.live.grow(process(), self.header, allocated, change)
    }

    /// Changes the lane's live bytes by `change` ≤ 0 ([`peak::Live::shrink`]).
    #[inline(always)]
    pub fn shrink(&mut self, change: i64) -> bool {
        let allocated = self.allocated();
        self.live.shrink(process(), self.header, allocated, change)
    }

    /// Publishes the lane's live bytes to other lanes.
    pub fn publish_live(&mut self) {
        let allocated = self.allocated();
        self.live.publish(process(), self.header, allocated, 0);
    }

    /// Publishes what the lane holds back, if anything.
    pub fn publish_rest(&mut self) {
        if self.live.is_held_back(self.allocated()) {
            self.publish_live();
        }
    }

    /// Notes that the thread has entered or left scopes ([`peak::Live::enter`]).
    #[inline(always)]
    pub fn in_scope(&mut self) {
        self.live.enter(self.place.scope, &self.record.usable_bytes);
    }

    /// Updates the bounds after something other than live bytes has changed what a new high is.
    pub fn renew_bounds(&mut self) {
        let allocated = self.allocated();
        self.live.renew_bounds(process(), self.header, allocated);
    }

    /// Makes the current moment the peak, if it is as high ([`peak::Live::peak_again`]).
    pub fn peak_again(&mut self) -> bool {
        let allocated = self.allocated();
        self.live.peak_again(process(), self.header, allocated)
    }

    /// Computes the limits of [`peak::Live`] anew. Returns whether more may be allocated now.
    #[inline(always)]
    pub fn renew_limits(&mut self) -> bool {
        let allocated = self.allocated();
        let before = self.live.allocated_limit();
        self.live.set_limits(allocated);
        self.live.allocated_limit() > before
    }

    /// Returns the lane's buffer for reading `/proc`.
    pub fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: BUFFER bytes of the lane's memory that nothing else refers to.
        unsafe { core::slice::from_raw_parts_mut(self.others.buffer, BUFFER) }
    }

    /// Adds the work of the unwinder to the profile's count.
    pub fn publish_work(&mut self) {
        let stepped = core::mem::take(&mut self.unwinder.stepped);
        self.header.frames_stepped.fetch_add(stepped, Relaxed);
    }

    /// Applies a name that another thread set, unless the lane had other threads before: its
    /// records would be theirs, too.
    pub fn follow_renaming(&mut self) {
        if self.renamed.swap(0, Relaxed) != 0 && self.record.threads.get() == 1 {
            set_name(self.record, &kernel::thread_name());
        }
    }

    /// Returns whether events of this thread take the slow path.
    #[inline(always)]
    pub fn is_attended(&self) -> bool {
        self.flags != 0 || self.is_watched()
    }

    /// Returns whether events of the whole process take the slow path.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        control_words::words(self.header).get() != 0
    }

    /// Sets or clears a flag.
    pub fn flag(&mut self, bit: u32, on: bool) {
        self.flags = if on { self.flags | bit } else { self.flags & !bit };
        self.choose_path();
    }

    /// Returns whether allocations of this thread are currently not recorded.
    pub fn is_off(&self) -> bool {
        self.flags & FLAG_PAUSED != 0 || self.process_is_off()
    }

    /// Returns whether allocations of the whole process are currently not recorded.
    pub fn process_is_off(&self) -> bool {
        let (control, command) = self.words();
        control & CONTROL_OFF != 0 || control >= CONTROL_PAUSE || command & COMMAND_OFF != 0
    }

    /// Returns the recorder's control word and that of commands.
    pub fn words(&self) -> (u32, u32) {
        let both = control_words::words(self.header).get();
        (both as u32, (both >> 32) as u32)
    }

    /// Returns whether monitors have to be notified.
    #[inline(always)]
    pub fn has_monitors(&self) -> bool {
        self.words().0 & CONTROL_MONITORS != 0
    }

    /// Returns whether the lane alone counts all blocks: sites count none of them, or only those
    /// that are sampled.
    #[inline(always)]
    pub fn is_counted_by_lane(&self) -> bool {
        self.mode == Mode::Counters as u32 || self.mode == Mode::Sampled as u32
    }

    /// Returns whether sites count only the sampled blocks.
    pub fn is_sampled(&self) -> bool {
        self.mode == Mode::Sampled as u32
    }

    /// Returns whether sites are distinguished by the size requested.
    #[inline(always)]
    pub fn is_by_size(&self) -> bool {
        self.words().0 & CONTROL_BY_SIZE != 0
    }

    /// Returns whether sites are distinguished by the size requested or by the function called.
    #[inline(always)]
    pub fn is_by_request(&self) -> bool {
        self.words().0 & (CONTROL_BY_SIZE | CONTROL_BY_CALL) != 0
    }

    /// Returns whether sites are distinguished by the function called.
    pub fn is_by_call(&self) -> bool {
        self.words().0 & CONTROL_BY_CALL != 0
    }

    pub fn is_measured(&self) -> bool {
        self.flags & FLAG_MEASURED != 0
    }

    /// Returns whether events of this thread are traced.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        !self.trace.is_null()
    }

    /// Decides anew whether events of the thread may take the fast path.
    #[inline(always)]
    pub fn choose_path(&mut self) {
        let usual = self.flags == 0 && !self.is_traced();
        self.quick_of_size = if usual { self.mode } else { 0 };
        self.quick = if front::sizes_are_at_hand() { self.quick_of_size } else { 0 };
        self.route = front::platform().map_or(Route::NONE, |platform| (platform.route)(self.quick));
    }
}
