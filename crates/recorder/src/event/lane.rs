//! Lanes: who writes which counters. A thread has one lane from its first allocation to its exit;
//! threads of the same name that never overlap share one after the other.

use crate::api::thread_measure;
use crate::event::fast_path::{self, LEAVES, Leaf};
use crate::event::process::{Process, State, process, start};
use crate::event::record::Entry;
use crate::event::trace::{self, Writer};
use crate::event::{peak, stats};
use crate::store::ids::{ScopeId, SiteId};
use crate::store::place::Place;
use crate::store::profile::Cursor;
use crate::store::{modules, scopes, sites};
use crate::sys::front::{self, Front};
use crate::sys::libc::Function;
use crate::sys::memory::{self, InChild};
use crate::sys::range::Range;
use crate::sys::tls::{thread_pointer, tls};
use crate::sys::{confined, kernel, own_stack};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use heaptide_format::shared::{FileHeader, Lane, Word};
use heaptide_format::{Kind, Loss, Mode, Sums};
use heaptide_unwind::memo::Memo;
use heaptide_unwind::stack::{Frame, Work};

/// Lanes a process may have; beyond them threads are counted as lost. 65 536 threads at once are
/// more than Linux runs by default.
const LANES_MAX: usize = 1 << 16;
/// Other stacks (coroutines, signal stacks) that a thread remembers.
pub const RANGES: usize = 8;
/// Entries of a lane's memory of stack-tree children; a power of two.
pub const RECALL: usize = 1 << 14;
/// Inner ends of stacks that a lane remembers; a power of two.
pub const MEMOS: usize = 512;
/// Bytes of a lane's buffer for reading `/proc`.
pub const BUFFER: usize = 16 << 10;

/// The part of a lane that only its thread uses. Its memory is wiped in a forked child, so `mode` 0
/// says that the pointer to it is stale.
#[repr(C)]
pub struct LaneState {
    /// A [`Mode`], or 0.
    pub mode: u32,
    /// Some of the `FLAG_` bits.
    pub flags: u32,
    /// Its record in the profile.
    pub record: &'static Lane,
    pub header: &'static FileHeader,
    pub live: peak::Live,
    /// `mode`, where events of the thread may take the fast path ([`crate::event::fast_path`]),
    /// else 0.
    pub quick: u32,
    /// Usable bytes allocated at which the next sample is due.
    pub next_sample: u64,
    /// The block allocated last, if nothing was allocated since: its free makes it a temporary.
    pub last_block: *mut u8,
    /// Where the thread is, and the records that it makes.
    pub place: Place,
    /// The value of [`crate::store::shared::Store::generation`] that kept frames and ranges belong
    /// to.
    pub generation: u32,
    /// The stack that the thread runs on.
    pub stack: Range,
    pub ranges: [Range; RANGES],
    pub range_next: u32,
    /// Frames that `kept` and `scratch` have room for.
    pub frames: usize,
    pub kept: *mut Frame,
    pub scratch: *mut Frame,
    pub depth: usize,
    /// Outer frames that are not in `kept`, of a stack deeper than the limit.
    pub cut: usize,
    pub work: Work,
    pub nodes: Cursor,
    /// Leaves of the shadow table used last.
    pub leaves: [Leaf; LEAVES],
    /// Odd while the thread calls monitors.
    pub calling: AtomicU32,
    /// The block that the thread is moving by realloc, while there are monitors; or 0.
    pub moving: AtomicU64,
    /// What the lane's sums were when the thread took it.
    pub before: Sums,
    pub recall: *mut [u64; 2],
    pub memos: *mut Memo,
    /// Whether memos are worth a look ([`crate::event::stacks`]), and stacks that were not the last
    /// one.
    pub credit: i32,
    pub probe: u32,
    pub buffer: *mut u8,
    /// The end of a stack for work that needs more than the thread may have left.
    pub own_stack: *mut u8,
    /// Where the lane's events go; null where they are not traced. And the memory for it.
    pub trace: *mut Writer,
    pub trace_memory: *mut Writer,
    /// 1 while a thread has it.
    in_use: AtomicU32,
    tid: AtomicU32,
    thread_pointer: AtomicU64,
    /// Another thread gave this lane's thread a new name.
    renamed: AtomicU32,
    /// The thread took the lane after it had begun to exit: nobody will give it back.
    late: bool,
}

/// Where records of lanes, and of their root scopes, are made.
pub struct Records {
    lanes: Cursor,
    roots: Cursor,
}

/// Frames a stack may have; deeper ones are cut at their outer end. Memory is used only as deep as
/// stacks are.
const MAX_DEPTH: usize = 16_384;
/// The same where address space is scarce.
const MAX_DEPTH_SCARCE: usize = 1024;

/// The unwinder's limit of frames a stack in this process.
pub fn max_depth(p: &Process) -> usize {
    if p.scarce.load(Relaxed) { MAX_DEPTH_SCARCE } else { MAX_DEPTH }
}

/// Bytes of a lane's own stack: unwind tables are evaluated there.
const OWN_STACK: usize = 16 << 10;

/// How a lane's memory is divided, in bytes: state, kept frames, scratch frames, recall
/// table, memos, buffer, own stack, trace.
struct Parts {
    kept: usize,
    scratch: usize,
    recall: usize,
    memos: usize,
    buffer: usize,
    own_stack: usize,
    trace: usize,
    all: usize,
}

impl Parts {
    fn of(depth: usize) -> Parts {
        let frames = depth * size_of::<Frame>();
        let kept = size_of::<LaneState>().next_multiple_of(64);
        let scratch = kept + frames;
        let recall = scratch + frames;
        let memos = recall + RECALL * 16;
        let buffer = memos + MEMOS * size_of::<Memo>();
        let own_stack = (buffer + BUFFER).next_multiple_of(64);
        let trace = own_stack + OWN_STACK;
        Parts {
            kept,
            scratch,
            recall,
            memos,
            buffer,
            own_stack,
            trace,
            all: (trace + size_of::<Writer>()).next_multiple_of(4096),
        }
    }
}

/// Maps the table of lanes.
pub fn create_table(p: &Process) -> Option<()> {
    let bytes = LANES_MAX * size_of::<usize>();
    let table = memory::take(bytes, InChild::Nothing);
    if table.is_null() {
        return None;
    }
    p.lanes.store(table as *mut AtomicPtr<LaneState>, Relaxed);
    Some(())
}

/// Proof of being inside a hook: the lane is this call's alone, and re-entry is seen. Leaving is
/// dropping it.
pub struct Inside {
    lane: NonNull<LaneState>,
}

impl Inside {
    /// Enters the recorder by a front; none if the thread is in it already, or nothing is recorded.
    #[inline(always)]
    pub fn enter<F: Front>(entry: Entry) -> Option<Inside> {
        Inside::enter_or(entry, enter_first::<F>)
    }

    /// The same in a call that the recorder has asked for.
    pub fn enter_again(entry: Entry) -> Option<Inside> {
        Inside::enter_or(entry, enter_slow)
    }

    #[inline(always)]
    fn enter_or(entry: Entry, slow: impl FnOnce(Entry) -> Option<Inside>) -> Option<Inside> {
        let t = tls();
        // SAFETY: the thread's own block; a lane is mapped for as long as the process lives.
        unsafe {
            let lane = (*t).lane as *mut LaneState;
            if lane.is_null() || (*t).inside != 0 || (*lane).mode == 0 {
                return slow(entry);
            }
            (&raw mut (*t).inside).write_volatile(1);
            (&raw mut (*t).inside_sp).write_volatile(entry.sp);
            (&raw mut (*t).inside_bp).write_volatile(entry.bp);
            Some(Inside { lane: NonNull::new_unchecked(lane) })
        }
    }

    /// The registers at the entry of the hook. Kept here and not by the hook, whose own registers
    /// are few: only a stack needs them.
    #[inline(always)]
    pub fn entry(&self) -> Entry {
        let t = tls();
        // SAFETY: the thread's own block.
        unsafe {
            let sp = (&raw const (*t).inside_sp).read_volatile();
            Entry { sp, bp: (&raw const (*t).inside_bp).read_volatile() }
        }
    }

    /// The lane of the calling thread.
    #[inline(always)]
    pub fn lane(&mut self) -> &mut LaneState {
        // SAFETY: `inside` is set while this exists, so nobody else makes a reference to the lane.
        unsafe { self.lane.as_mut() }
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the thread's own block.
        unsafe { (&raw mut (*tls()).inside).write_volatile(0) };
    }
}

#[cold]
#[inline(never)]
fn enter_first<F: Front>(entry: Entry) -> Option<Inside> {
    front::install::<F>();
    enter_slow(entry)
}

/// Enters a thread that has no lane, or is inside already.
fn enter_slow(entry: Entry) -> Option<Inside> {
    let sp = entry.sp;
    let t = tls();
    // SAFETY: the thread's own block; its lane is mapped, wiped or not.
    unsafe {
        if (*t).busy != 0 {
            return None;
        }
        let mut lane = (*t).lane as *mut LaneState;
        if !lane.is_null() && (*lane).mode == 0 {
            // A forked child: the lane was the parent's, and the scope path. Pauses and
            // measurements go on.
            ((*t).lane, (*t).inside, (*t).busy) = (core::ptr::null_mut(), 0, 0);
            ((*t).released, (*t).retry_sp, (*t).carried) = (0, 0, 0);
            lane = core::ptr::null_mut();
        }
        if !lane.is_null() {
            // Inside already; or that call was left by a jump, and its frame is gone from this same
            // stack.
            let left = sp > (*t).inside_sp
                && (*lane).stack.holds(sp)
                && (*lane).stack.holds((*t).inside_sp);
            if !left {
                return None;
            }
        } else {
            let p = process();
            if p.state() == State::Off {
                return None;
            }
            (*t).busy = 1;
            lane = if p.state() == State::Active || own_stack::call(start) == Some(true) {
                acquire(p, sp)
            } else {
                lane
            };
            (*t).busy = 0;
            if lane.is_null() {
                return None;
            }
            (*t).lane = lane as *mut u8;
        }
        (*t).inside = 1;
        ((*t).inside_sp, (*t).inside_bp) = (entry.sp, entry.bp);
        NonNull::new(lane).map(|lane| Inside { lane })
    }
}

/// A lane for the calling thread; null if there is none.
fn acquire(p: &Process, sp: u64) -> *mut LaneState {
    let lane = {
        let Some(mut records) = p.lane_records.acquire() else {
            p.lost(Loss::NoLane);
            return core::ptr::null_mut();
        };
        let name = kernel::thread_name();
        let lane = match free_lane(p, &name) {
            Some(lane) => lane,
            None => create(p, &mut records, &name),
        };
        if lane.is_null() {
            p.lost(Loss::NoLane);
            return lane;
        }
        // SAFETY: an unused lane, ours under the lock.
        unsafe { occupy(p, lane, sp) };
        lane
    };
    watch_exit(lane);
    lane
}

/// An unused lane of this name, one whose late owner died included.
fn free_lane(p: &Process, name: &[u8; 16]) -> Option<*mut LaneState> {
    let lanes = all(p);
    let named = |lane: &&*mut LaneState| {
        // SAFETY: lanes stay mapped; the field does not change.
        let record = unsafe { (***lane).record };
        record.name.iter().zip(name).all(|(a, b)| a.get() == *b)
    };
    let unused = |lane: &&*mut LaneState| {
        // SAFETY: lanes stay mapped; `in_use` is atomic.
        unsafe { (***lane).in_use.load(Acquire) == 0 }
    };
    if let Some(lane) = lanes.iter().filter(unused).find(named) {
        return Some(*lane);
    }
    let pid = p.pid.load(Relaxed);
    let abandoned = |lane: &&*mut LaneState| {
        // SAFETY: as above; `late` was set before `in_use`.
        let state = unsafe { &***lane };
        state.late && confined::may_call() && kernel::thread_is_gone(pid, state.tid.load(Relaxed))
    };
    let lane = *lanes.iter().filter(named).find(abandoned)?;
    p.lanes_in_use.fetch_sub(1, Relaxed);
    Some(lane)
}

/// All lanes so far.
pub fn all(p: &Process) -> &'static [*mut LaneState] {
    let table = p.lanes.load(Relaxed);
    if table.is_null() {
        return &[];
    }
    // SAFETY: entries below the count were written before it grew.
    unsafe {
        core::slice::from_raw_parts(table as *const *mut LaneState, p.lane_count.load(Acquire))
    }
}

/// The records of all lanes so far.
pub fn records(p: &Process) -> impl Iterator<Item = &'static Lane> {
    // SAFETY: lanes stay mapped; the field does not change.
    all(p).iter().map(|&lane| unsafe { (*lane).record })
}

fn create(p: &Process, records: &mut Records, name: &[u8; 16]) -> *mut LaneState {
    let index = p.lane_count.load(Relaxed);
    if index >= LANES_MAX {
        return core::ptr::null_mut();
    }
    let depth = max_depth(p);
    let parts = Parts::of(depth);
    let memory = memory::take(parts.all, InChild::Zeros);
    if memory.is_null() {
        return core::ptr::null_mut();
    }
    let Some(record) = records.lanes.record::<Lane>(Kind::Lanes, index as u32) else {
        // SAFETY: fresh memory, which nobody knows.
        unsafe { memory::release(memory, parts.all, InChild::Zeros) };
        return core::ptr::null_mut();
    };
    set_name(record, name);
    record.index.set(index as u32);
    // SAFETY: fresh memory, divided as its size was summed up. There is a reference to the state
    // only once all fields that may not be zero are set.
    unsafe {
        let state = memory as *mut LaneState;
        (&raw mut (*state).header).write(p.header());
        (&raw mut (*state).record).write(record);
        (&raw mut (*state).place.scope).write(ScopeId::NONE.record());
        (&raw mut (*state).place.here_record).write(SiteId::NONE.record());
        (*state).place.lane = index as u32;
        (*state).kept = memory.add(parts.kept) as *mut Frame;
        (*state).scratch = memory.add(parts.scratch) as *mut Frame;
        (*state).recall = memory.add(parts.recall) as *mut [u64; 2];
        (*state).memos = memory.add(parts.memos) as *mut Memo;
        (*state).buffer = memory.add(parts.buffer);
        (*state).own_stack = memory.add(parts.own_stack + OWN_STACK);
        (*state).trace_memory = memory.add(parts.trace) as *mut Writer;
        (*state).frames = depth;
        if p.header().mode.get() != Mode::Counters as u32 {
            let place = &mut (*state).place;
            place.root_scope = scopes::create_root(&mut records.roots, index as u32);
            place.base_site = sites::create(place, 0);
            if place.base_site.is_none() || place.root_scope.is_none() {
                memory::release(memory, parts.all, InChild::Zeros);
                return core::ptr::null_mut();
            }
            record.base_site.set(place.base_site.number());
        }
        records.lanes.commit_record(record);
        (*p.lanes.load(Relaxed).add(index)).store(state, Relaxed);
        p.lane_count.store(index + 1, Release);
        state
    }
}

/// # Safety
/// `lane` is unused and the lane lock is held.
unsafe fn occupy(p: &Process, lane: *mut LaneState, sp: u64) {
    let t = tls();
    // SAFETY: as promised.
    let state = unsafe { &mut *lane };
    // SAFETY: the thread's own block.
    let t = unsafe { &*t };
    {
        let in_use = p.lanes_in_use.fetch_add(1, AcqRel) + 1;
        if in_use > 1 {
            p.threaded.store(true, Release);
        }
        p.header().lanes_at_once.fetch_max(in_use, Relaxed);
        state.live.begin(p, p.header());
        state.last_block = core::ptr::null_mut();
        (state.depth, state.cut) = (0, 0);
        state.before = stats::of_lane(state);
        state.next_sample = 0;
        resume_scope(state);
        let paused = if t.paused > 0 { FLAG_PAUSED } else { 0 };
        let measured = if thread_measure::are_going_on() { FLAG_MEASURED } else { 0 };
        state.flags = paused | measured;
        state.credit = 256;
        state.generation = p.generation.load(Relaxed);
        state.ranges = [Range::EMPTY; RANGES];
        state.stack = Range::of_thread(sp, thread_pointer());
        if state.stack == Range::EMPTY {
            let mapping = modules::mapping_of(sp, state.buffer());
            state.stack = mapping.unwrap_or(Range::EMPTY);
        }
        state.late = t.released > 0;
        let tid = kernel::gettid();
        state.tid.store(tid, Relaxed);
        state.thread_pointer.store(thread_pointer(), Relaxed);
        state.renamed.store(0, Relaxed);
        state.in_use.store(1, Release);
        state.record.tid.set(tid);
        state.record.threads.add(1);
        state.leaves = [Leaf::NONE; LEAVES];
        state.mode = p.header().mode.get();
        trace::begin(state, tid);
        fast_path::settle(state);
    }
}

/// In [`LaneState::flags`]: the thread is paused.
pub const FLAG_PAUSED: u32 = 1;
/// It measures itself.
pub const FLAG_MEASURED: u32 = 2;

/// Puts a thread that takes a lane where it was in the lane it had, or outside of all scopes.
fn resume_scope(state: &mut LaneState) {
    let place = &mut state.place;
    (place.unplaced, place.inherited) = (0, 0);
    place.last_node = sites::NO_NODE;
    if place.root_scope.is_none() {
        return;
    }
    scopes::go(place, place.root_scope);
    // SAFETY: the thread's own block.
    let t = unsafe { &mut *tls() };
    match core::mem::take(&mut t.carried) {
        // Ends of scopes that a fork's parent began close nothing here.
        0 => place.inherited = t.depth,
        scope => {
            let own = scopes::translated(place, ScopeId::new(scope));
            scopes::go(place, own);
        }
    }
}

fn set_name(record: &Lane, name: &[u8; 16]) {
    for (byte, value) in record.name.iter().zip(name) {
        byte.set(*value);
    }
}

impl LaneState {
    /// The lane's index.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.place.lane
    }

    /// Gives the lane back: its thread exits or takes another.
    fn release(&mut self) {
        let p = process();
        self.live.publish(p, self.header);
        let now = p.now();
        self.tell_work();
        p.note_time(now);
        self.record.tid.set(0);
        p.lanes_in_use.fetch_sub(1, AcqRel);
        self.in_use.store(0, Release);
    }

    /// The lane's buffer for reading `/proc`.
    pub fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: BUFFER bytes of the lane's memory that nothing else refers to.
        unsafe { core::slice::from_raw_parts_mut(self.buffer, BUFFER) }
    }

    /// Adds what the unwinder did to the profile's count.
    pub fn tell_work(&mut self) {
        let stepped = core::mem::take(&mut self.work.stepped);
        self.header.frames_stepped.fetch_add(stepped, Relaxed);
    }

    /// Takes a name that another thread gave, if the lane never had another thread: then all of it
    /// is this one's.
    pub fn follow_renaming(&mut self) {
        if self.renamed.swap(0, Relaxed) != 0 && self.record.threads.get() == 1 {
            set_name(self.record, &kernel::thread_name());
        }
    }
}

static KEY_CREATE: Function = Function::new(b"pthread_key_create\0");
static SET_SPECIFIC: Function = Function::new(b"pthread_setspecific\0");
/// The key whose destructor sees threads exit, plus one; it outlives forks.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key early: the first 32 need no memory in a thread.
pub fn create_key() {
    if KEY.load(Relaxed) != 0 || KEY_CREATE.get() == 0 {
        return;
    }
    let mut key = 0u32;
    // SAFETY: libc's pthread_key_create.
    unsafe {
        let create: extern "C" fn(*mut u32, extern "C" fn(*mut u8)) -> i32 =
            core::mem::transmute(KEY_CREATE.get());
        if create(&mut key, thread_exits) == 0 {
            KEY.store(key + 1, Relaxed);
        }
    }
}

fn watch_exit(lane: *mut LaneState) {
    let key = KEY.load(Relaxed);
    if key == 0 || SET_SPECIFIC.get() == 0 {
        return;
    }
    // SAFETY: libc's pthread_setspecific with a key of ours; a value other than null has the
    // destructor run.
    unsafe {
        let set: extern "C" fn(u32, *mut LaneState) -> i32 =
            core::mem::transmute(SET_SPECIFIC.get());
        set(key - 1, lane);
    }
}

extern "C" fn thread_exits(_: *mut u8) {
    give_back();
    forget_thread();
}

/// Gives the thread's lane back, unless it is inside the recorder.
fn give_back() {
    let t = tls();
    // SAFETY: the thread's own block and lane.
    unsafe {
        let lane = (*t).lane as *mut LaneState;
        if lane.is_null() || (*t).inside != 0 || (*lane).mode == 0 {
            return;
        }
        (*t).lane = core::ptr::null_mut();
        (*t).released += 1;
        (*lane).release();
    }
}

/// The thread is gone for good.
fn forget_thread() {
    let t = tls();
    // SAFETY: the thread's own block.
    unsafe { ((*t).depth, (*t).carried, (*t).paused) = (0, 0, 0) };
    thread_measure::give_back();
    if let Some(platform) = front::platform() {
        (platform.thread_exits)();
    }
}

/// The calling thread has a new name: it goes on in another lane, or its unused lane takes the
/// name.
pub fn renamed_self() {
    let t = tls();
    // SAFETY: the thread's own block and lane.
    unsafe {
        let lane = (*t).lane as *mut LaneState;
        if lane.is_null() || (*t).inside != 0 || (*lane).mode == 0 {
            return;
        }
        let (record, place) = ((*lane).record, &(*lane).place);
        let name = kernel::thread_name();
        let frees: u64 = record.freed_classes.iter().map(Word::get).sum();
        if record.usable_bytes.get() == 0 && frees == 0 && record.threads.get() == 1 {
            return set_name(record, &name);
        }
        if record.name.iter().zip(name).all(|(a, b)| a.get() == b) {
            return;
        }
        let scope = ScopeId::of(place.scope);
        if !place.root_scope.is_none() && scope != place.root_scope {
            (*t).carried = scope.number();
        }
        give_back();
        (*t).released -= 1;
    }
}

/// Another thread, known by its pthread_t, has a new name: it changes lanes when it next comes by.
pub fn renamed_other(pthread: u64) {
    for &lane in all(process()) {
        // SAFETY: lanes stay mapped; both fields are atomic.
        unsafe {
            if (*lane).in_use.load(Acquire) != 0 && (*lane).thread_pointer.load(Relaxed) == pthread
            {
                (*lane).renamed.store(1, Relaxed);
            }
        }
    }
}
